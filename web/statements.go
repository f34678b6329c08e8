package web

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/report"
)

// Statements closes periods and shows what was closed; *report.Statements is one.
type Statements interface {
	Close(ctx context.Context, p report.CloseParams) (*report.Frozen, error)
	Show(ctx context.Context, p report.StatementParams) (*report.Frozen, error)
	List(ctx context.Context, tenant string) (*report.StatementList, error)
	Diff(ctx context.Context, p report.DiffParams) (*report.StatementDiff, error)
}

// CloseRequest asks for a period to be closed.
type CloseRequest struct {
	Period   string   `json:"period" doc:"Calendar month, YYYY-MM"`
	Zone     string   `json:"zone,omitempty" doc:"IANA time zone of the month. Default: that of the tenant's other statements, else UTC."`
	By       []string `json:"by,omitempty" maxItems:"10" doc:"Keys of the rows. Default: project."`
	Actor    string   `json:"actor" minLength:"1" doc:"Who closes the period"`
	Reason   string   `json:"reason,omitempty"`
	Override string   `json:"override,omitempty" doc:"Why to close before the grace time is over or with open incidents; it is stored"`
	Tenant   string   `json:"tenant,omitempty" doc:"When given, it has to be the tenant of this server"`
}

// TenantQuery lets a client say which tenant it means. A server answers for one;
// figures of another than the one that was meant would be worse than an error.
type TenantQuery struct {
	Tenant string `query:"tenant" doc:"When given, it has to be the tenant of this server"`
}

func (s *server) ownTenant(tenant string) error {
	if tenant != "" && tenant != s.Tenant {
		return huma.Error422UnprocessableEntity("this server answers for the tenant "+s.Tenant, &huma.ErrorDetail{Message: "is not the tenant of this server", Location: "query.tenant"})
	}
	return nil
}

// hashOutput is an answer in its final bytes with their SHA-256 as the entity tag.
type hashOutput struct {
	ContentType string `header:"Content-Type"`
	ETag        string `header:"ETag" doc:"SHA-256 of the frozen statement; absent while the period is open"`
	Body        []byte
}

func statementOutput(f *report.Frozen, format string) (*hashOutput, error) {
	var b bytes.Buffer
	if err := report.Write(&b, f, format); err != nil {
		return nil, err
	}
	out := &hashOutput{ContentType: report.ContentType(format), Body: b.Bytes()}
	if f.Hash != "" && format == "json" {
		out.ETag = `"` + f.Hash + `"`
	}
	return out, nil
}

func (s *server) registerStatements() {
	if s.Statements == nil {
		return
	}
	registry := s.api.OpenAPI().Components.Schemas
	schemaOf := func(t reflect.Type) map[string]*huma.Response { return answers(huma.SchemaFromType(registry, t)) }
	huma.Register(s.api, huma.Operation{
		OperationID: "closeStatement", Method: http.MethodPost, Path: statementsPath, Tags: []string{"statements"},
		Summary: "Close a period",
		Description: "Freezes the usage and cost of a calendar month as known now, with the adjustments of the months closed before. " +
			"409: the month has not ended, is closed already, its grace time is not over, incidents are open, or events are not stored yet.",
		Responses: schemaOf(reflect.TypeFor[report.Statement]()), Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *struct{ Body CloseRequest }) (*hashOutput, error) {
		b := &in.Body
		if err := s.ownTenant(b.Tenant); err != nil {
			return nil, err
		}
		f, err := s.Statements.Close(ctx, report.CloseParams{
			Tenant: s.Tenant, Period: b.Period, Zone: b.Zone, By: b.By, Actor: b.Actor, Reason: b.Reason, Override: b.Override,
		})
		if err != nil {
			return nil, s.problem(ctx, "closing the period", err)
		}
		return statementOutput(f, "json")
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "listStatements", Method: http.MethodGet, Path: statementsPath, Tags: []string{"statements"},
		Summary: "The closed periods, in the order of closing", Responses: schemaOf(reflect.TypeFor[report.StatementList]()), Errors: []int{422, 500, 504},
	}, func(ctx context.Context, in *struct {
		TenantQuery
		Format string `query:"format" enum:"json,csv,table" default:"json" doc:"Form of the answer"`
	}) (*rawOutput, error) {
		if err := s.ownTenant(in.Tenant); err != nil {
			return nil, err
		}
		list, err := s.Statements.List(ctx, s.Tenant)
		if err != nil {
			return nil, s.problem(ctx, "listing the statements", err)
		}
		return written(list, in.Format)
	})
	s.registerStatement(schemaOf)
}

func (s *server) registerStatement(schemaOf func(reflect.Type) map[string]*huma.Response) {
	huma.Register(s.api, huma.Operation{
		OperationID: "statement", Method: http.MethodGet, Path: statementsPath + "/{period}", Tags: []string{"statements"},
		Summary:     "The statement of a period",
		Description: "Of a closed period the frozen statement, byte for byte; of an open one what closing it now would freeze, marked open.",
		Responses:   schemaOf(reflect.TypeFor[report.Statement]()), Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *struct {
		Period string `path:"period" doc:"Calendar month, YYYY-MM"`
		Zone   string `query:"zone" doc:"IANA time zone. Default: that of the tenant's statements, else UTC."`
		By     string `query:"by" doc:"Keys of the rows of an open period, separated by commas. Default: project."`
		Format string `query:"format" enum:"json,csv,table" default:"json" doc:"Form of the answer"`
		TenantQuery
	}) (*hashOutput, error) {
		if err := s.ownTenant(in.Tenant); err != nil {
			return nil, err
		}
		p := report.StatementParams{Tenant: s.Tenant, Period: in.Period, Zone: in.Zone}
		if in.By != "" {
			p.By = strings.Split(in.By, ",")
		}
		f, err := s.Statements.Show(ctx, p)
		if err != nil {
			return nil, s.problem(ctx, "the statement", err)
		}
		return statementOutput(f, in.Format)
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "statementDiff", Method: http.MethodGet, Path: statementsPath + "/{period}/diff", Tags: []string{"statements"},
		Summary:     "What changed in a period since it was closed",
		Description: "Usage as known now, or as of an instant, with today's prices, minus the frozen statement; and the events that came in since.",
		Responses:   schemaOf(reflect.TypeFor[report.StatementDiff]()), Errors: []int{404, 409, 422, 500, 504},
	}, func(ctx context.Context, in *struct {
		Period string `path:"period" doc:"Calendar month, YYYY-MM"`
		AsOf   string `query:"as_of" doc:"RFC 3339 instant, or a date in the zone of the statement. Default: everything stored so far."`
		Format string `query:"format" enum:"json,csv,table" default:"json" doc:"Form of the answer"`
		TenantQuery
	}) (*rawOutput, error) {
		if err := s.ownTenant(in.Tenant); err != nil {
			return nil, err
		}
		d, err := s.Statements.Diff(ctx, report.DiffParams{Tenant: s.Tenant, Period: in.Period, AsOf: in.AsOf})
		if err != nil {
			return nil, s.problem(ctx, "the difference", err)
		}
		return written(d, in.Format)
	})
}
