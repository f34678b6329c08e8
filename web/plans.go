package web

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/report"
)

// Plans checks plans, gives advice and shows charges; *report.Service is one when it knows rentals.
type Plans interface {
	Plans(ctx context.Context, p report.PlansParams) (*report.PlansReport, error)
	Advise(ctx context.Context, p report.AdviseParams) (*report.AdviceReport, error)
	Charge(ctx context.Context, tenant, line string, projects []string) (*report.ChargeAnswer, error)
}

// PlansQuestion is what plans and advice are asked with.
type PlansQuestion struct {
	From   string `query:"from" doc:"RFC 3339 instant, or a date, which is the start of that day in the zone. Default: the start of the month that holds the end of the span."`
	To     string `query:"to" doc:"As from; exclusive. Default: now. What lies after now is left out."`
	AsOf   string `query:"as_of" doc:"Count only what was stored and has happened by then; as from. Default: now."`
	Zone   string `query:"zone" doc:"IANA time zone. Default: UTC."`
	Format string `query:"format" enum:"json,csv,table" default:"json" doc:"Form of the answer"`

	Project  string   `query:"project" doc:"Only this project; for plans: owned by it"`
	Model    string   `query:"model" doc:"Only this model"`
	Platform string   `query:"platform" doc:"Only this platform"`
	Region   string   `query:"region" doc:"Only this region"`
	Filter   []string `query:"filter,explode" doc:"Any of the filters above as KEY=VALUE; repeatable"`

	filter   map[string]string
	projects []string
}

// Resolve collects the filters and refuses a parameter that is there twice.
func (q *PlansQuestion) Resolve(ctx huma.Context) (errs []error) {
	q.projects = scopeOf(ctx.Context())
	q.filter, errs = readFilter(ctx)
	return errs
}

func (q *PlansQuestion) params(tenant string) report.PlansParams {
	return report.PlansParams{Tenant: tenant, From: q.From, To: q.To, AsOf: q.AsOf, Zone: q.Zone, Filter: q.filter, Projects: q.projects}
}

type chargeInput struct {
	Line   string `path:"line" doc:"First digits of the id of a charge, eight at least"`
	Format string `query:"format" enum:"json,csv,table" default:"json" doc:"Form of the answer"`
}

type adviseInput struct {
	SpotRework string `query:"spot_rework" doc:"Part of useful work that spot does again, such as 0.05. Default: as it was measured."`
	Step       int64  `query:"step" minimum:"0" maximum:"10000" doc:"GPUs that can be reserved at once, such as those of a node. Default: 1."`
	PlansQuestion
}

func (s *server) registerPlans() {
	if s.Deps.Plans == nil {
		return
	}
	registry := s.api.OpenAPI().Components.Schemas
	huma.Register(s.api, huma.Operation{
		OperationID: "plans", Method: http.MethodGet, Path: "/api/v1/reports/plans", Tags: []string{"reports"},
		Summary:     "What commitments, plans and quotes were worth",
		Description: "Of each plan that lasted in the span: how much of it was used, what it cost and what the same use costs on demand, and when it breaks even. Amounts are decimal strings of the plan's currency; what is not known is null.",
		Responses:   answers(huma.SchemaFromType(registry, reflect.TypeFor[report.PlansReport]())), Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *PlansQuestion) (*rawOutput, error) {
		r, err := s.Deps.Plans.Plans(ctx, in.params(s.Tenant))
		if err != nil {
			return nil, s.problem(ctx, "the check of plans", err)
		}
		return written(r, in.Format)
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "advise", Method: http.MethodGet, Path: "/api/v1/reports/advise", Tags: []string{"reports"},
		Summary:     "How what was used could be paid for",
		Description: "The cheapest mix of reserved GPUs, on demand and spot for the demand of the span, the whole cost curve, the mode that fits each workload, and the same usage paid for otherwise. Costs are for the span.",
		Responses:   answers(huma.SchemaFromType(registry, reflect.TypeFor[report.AdviceReport]())), Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *adviseInput) (*rawOutput, error) {
		r, err := s.Deps.Plans.Advise(ctx, report.AdviseParams{PlansParams: in.params(s.Tenant), SpotRework: in.SpotRework, Step: in.Step})
		if err != nil {
			return nil, s.problem(ctx, "the advice", err)
		}
		return written(r, in.Format)
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "charge", Method: http.MethodGet, Path: "/api/v1/charges/{line}", Tags: []string{"reports"},
		Summary:     "A line of a bill, step by step, and what the ledger says of it",
		Description: "The line is named by its id in an explanation, or by the first eight digits of it or more.",
		Responses:   answers(huma.SchemaFromType(registry, reflect.TypeFor[report.ChargeAnswer]())), Errors: []int{404, 422, 500, 504},
	}, func(ctx context.Context, in *chargeInput) (*rawOutput, error) {
		r, err := s.Deps.Plans.Charge(ctx, s.Tenant, in.Line, scopeOf(ctx))
		if err != nil {
			return nil, s.problem(ctx, "the charge", err)
		}
		return written(r, in.Format)
	})
}
