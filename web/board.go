package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/report"
)

// Board answers what a dashboard shows; *report.Service is one.
type Board interface {
	Overview(ctx context.Context, p report.OverviewParams) (*report.Overview, error)
	InstanceTable(ctx context.Context, p report.Params) (*report.InstanceTable, error)
	Sparks(ctx context.Context, t *report.InstanceTable, l *report.InstanceList) error
	Instance(ctx context.Context, p report.InstanceParams) (*report.InstanceDetail, error)
	Timeline(ctx context.Context, p report.InstanceParams) (*report.Timeline, error)
	Charges(ctx context.Context, p report.InstanceParams) (*report.ChargeList, error)
	Chargeback(ctx context.Context, p report.ChargebackParams) (*report.Chargeback, error)
	Units(ctx context.Context, p report.Params) (*report.UnitList, error)
	LeaseStates(ctx context.Context, p report.Params) (*report.LeaseList, error)
}

const (
	overviewPath  = "/api/v1/overview"
	livePath      = "/api/v1/live"
	instancesPath = "/api/v1/instances"
	projectsPath  = "/api/v1/projects"
	unitsPath     = "/api/v1/units"
	leasesPath    = "/api/v1/leases"
)

// Numbers of answers that are kept. A table of a million instances takes 400 MB.
const (
	mostOverviews = 64
	mostTables    = 8
)

// LiveQuestion is what a live overview is asked with: it is always of now.
type LiveQuestion struct {
	Zone string `query:"zone" doc:"IANA time zone. Default: UTC."`

	Project  string   `query:"project" doc:"Only this project; empty = usage without one"`
	Instance string   `query:"instance" doc:"Only this instance; empty = time in which nobody held the unit"`
	Unit     string   `query:"unit" doc:"Only this unit"`
	Node     string   `query:"node" doc:"Only this node"`
	Model    string   `query:"model" doc:"Only this model"`
	Platform string   `query:"platform" doc:"Only this platform"`
	Region   string   `query:"region" doc:"Only this region"`
	Plan     string   `query:"plan" doc:"Only what is leased by this plan; empty = on demand, and usage without a lease"`
	Label    []string `query:"label,explode" doc:"Only usage with this label, as KEY=VALUE; repeatable"`
	Filter   []string `query:"filter,explode" doc:"Any of the filters above as KEY=VALUE, labels as label:KEY=VALUE; repeatable"`

	filter map[string]string
}

// Resolve collects the filters and refuses a parameter that is there twice.
func (q *LiveQuestion) Resolve(ctx huma.Context) (errs []error) {
	q.filter, errs = readFilter(ctx)
	return errs
}

// BoardQuestion is LiveQuestion of a span, and of a time in the past.
type BoardQuestion struct {
	From string `query:"from" doc:"RFC 3339 instant, or a date, which is the start of that day in the zone. Default: the start of the month that holds the end of the span."`
	To   string `query:"to" doc:"As from; exclusive. Default: now."`
	AsOf string `query:"as_of" doc:"Count only what was stored by then; as from. Default: everything."`
	LiveQuestion
}

func (q *BoardQuestion) params(tenant string, projects []string) report.Params {
	return report.Params{Tenant: tenant, From: q.From, To: q.To, AsOf: q.AsOf, Zone: q.Zone, Filter: q.filter, Projects: projects}
}

func (q *BoardQuestion) overview(tenant string, projects []string) report.OverviewParams {
	return report.OverviewParams{Tenant: tenant, From: q.From, To: q.To, AsOf: q.AsOf, Zone: q.Zone, Filter: q.filter, Projects: projects}
}

type instancesInput struct {
	State string `query:"state" doc:"Only instances in this state; none = without a lease"`
	Text  string `query:"q" maxLength:"200" doc:"Only those with this text in their name, project or owner; case does not matter"`
	Sort  string `query:"sort" doc:"cost, effective_cost, idle_waste, utilization, allocated, price, since, idle, gpus, instance, project, platform, region, model, plan, state, owner. Default: cost, the largest first."`
	Order string `query:"order" enum:"asc,desc" doc:"Default: desc for numbers, asc for text. What is not known comes last in either."`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	After string `query:"after" doc:"The next of the page before"`
	BoardQuestion
}

func (in *instancesInput) page() report.InstancePage {
	p := report.InstancePage{State: in.State, Text: in.Text, Limit: in.Limit, After: in.After}
	p.By, p.Descending = in.Sort, in.Order == "desc"
	if in.Order == "" {
		switch in.Sort {
		case "cost", "effective_cost", "idle_waste", "utilization", "allocated", "price", "since", "idle", "gpus":
			p.Descending = true
		}
	}
	return p
}

// InstanceQuestion is what one instance is asked with. It is exported because fields of an
// embedded type that is not are never read.
type InstanceQuestion struct {
	ID   string `path:"id" doc:"Name of the instance, escaped as a part of a path"`
	From string `query:"from" doc:"RFC 3339 instant, or a date, which is the start of that day in the zone. Default: the start of the month that holds the end of the span."`
	To   string `query:"to" doc:"As from; exclusive. Default: now."`
	AsOf string `query:"as_of" doc:"Count only what was stored by then; as from. Default: everything."`
	Zone string `query:"zone" doc:"IANA time zone. Default: UTC."`
}

// Resolve refuses a parameter that is there twice.
func (in *InstanceQuestion) Resolve(ctx huma.Context) []error {
	_, faults := readOnce(ctx)
	return faults
}

func (in *InstanceQuestion) params(tenant string, projects []string) report.InstanceParams {
	return report.InstanceParams{Instance: in.ID, Params: report.Params{Tenant: tenant, From: in.From, To: in.To, AsOf: in.AsOf, Zone: in.Zone, Projects: projects}}
}

// registerBoard registers what the dashboard asks for.
func (s *server) registerBoard() {
	if s.Board == nil {
		return
	}
	s.api.OpenAPI().Components.Schemas.RegisterTypeAlias(reflect.TypeFor[report.Shown](), reflect.TypeFor[figuresDoc]())
	huma.Register(s.api, huma.Operation{
		OperationID: "overview", Method: http.MethodGet, Path: overviewPath, Tags: []string{"dashboard"},
		Summary: "What is being spent, on what, and how much of it does nothing",
		Description: "All figures are of one instant, at, and add up. The answer may be some seconds old, and says of when it is. " +
			"Amounts of spans are those of a report over the same span.",
		Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *BoardQuestion) (*body[*report.Overview], error) {
		o, err := s.overview(ctx, in.overview(s.Tenant, scopeOf(ctx)))
		if err != nil {
			return nil, s.problem(ctx, "the overview", err)
		}
		return &body[*report.Overview]{o.Overview}, nil
	})
	s.registerLive()
	s.registerInstances()
	huma.Register(s.api, huma.Operation{
		OperationID: "chargeback", Method: http.MethodGet, Path: projectsPath, Tags: []string{"dashboard"},
		Summary: "What each project pays, with its part of what is of no project", Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *struct {
		Share string `query:"share" enum:"proportional,even,none" default:"proportional" doc:"How what is of no project is divided: in proportion to what each project used, evenly, or not at all"`
		BoardQuestion
	}) (*body[*report.Chargeback], error) {
		c, err := s.Board.Chargeback(ctx, report.ChargebackParams{Params: in.params(s.Tenant, scopeOf(ctx)), Share: in.Share})
		if err != nil {
			return nil, s.problem(ctx, "the chargeback", err)
		}
		return &body[*report.Chargeback]{c}, nil
	})
	s.registerLists()
	schemas := s.api.OpenAPI().Components.Schemas.Map()
	for name, fields := range map[string][]string{"Overview": {"budget", "forecast", "quality"}, "InstanceList": {"unassigned"}, "Chargeback": {"unallocated"}} {
		for _, field := range fields {
			orNull(schemas[name].Properties, field)
		}
	}
}

// pageInput is a question that is answered in pages.
type pageInput struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string `query:"after" doc:"The next of the page before"`
	BoardQuestion
}

func (in *pageInput) params(tenant string, projects []string) report.Params {
	p := in.BoardQuestion.params(tenant, projects)
	p.Limit, p.After = in.Limit, in.After
	return p
}

func (s *server) registerLists() {
	huma.Register(s.api, huma.Operation{
		OperationID: "units", Method: http.MethodGet, Path: unitsPath, Tags: []string{"dashboard"},
		Summary: "The units that reported usage, with their figures", Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *pageInput) (*body[*report.UnitList], error) {
		l, err := s.Board.Units(ctx, in.params(s.Tenant, scopeOf(ctx)))
		if err != nil {
			return nil, s.problem(ctx, "the list of units", err)
		}
		return &body[*report.UnitList]{l}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "leases", Method: http.MethodGet, Path: leasesPath, Tags: []string{"dashboard"},
		Summary: "The states of leases that overlap a span, and the events that began them", Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *pageInput) (*body[*report.LeaseList], error) {
		l, err := s.Board.LeaseStates(ctx, in.params(s.Tenant, scopeOf(ctx)))
		if err != nil {
			return nil, s.problem(ctx, "the list of leases", err)
		}
		return &body[*report.LeaseList]{l}, nil
	})
}

// orNull says that a field may be null, which huma has no way to say of an object.
func orNull(properties map[string]*huma.Schema, field string) {
	of := *properties[field]
	doc := of.Description
	of.Description = ""
	properties[field] = &huma.Schema{Description: doc, AnyOf: []*huma.Schema{&of, {Type: "null"}}}
}

func (s *server) registerInstances() {
	huma.Register(s.api, huma.Operation{
		OperationID: "instances", Method: http.MethodGet, Path: instancesPath, Tags: []string{"dashboard"},
		Summary:     "Instances with their state, price, utilization, cost and waste",
		Description: "In pages of any order. A page follows the one before by what its last row sorted by, so it is right when rows come or go; figures may be some seconds old, and at says of when they are.",
		Errors:      []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *instancesInput) (*body[*report.InstanceList], error) {
		l, err := s.instances(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, "the list of instances", err)
		}
		return &body[*report.InstanceList]{l}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "instance", Method: http.MethodGet, Path: instancesPath + "/{id}", Tags: []string{"dashboard"},
		Summary: "One instance: state, units, states of its lease, figures", Errors: []int{404, 409, 422, 500, 504},
	}, func(ctx context.Context, in *InstanceQuestion) (*body[*report.InstanceDetail], error) {
		d, err := s.Board.Instance(ctx, in.params(s.Tenant, scopeOf(ctx)))
		if err != nil {
			return nil, s.problem(ctx, "the instance", err)
		}
		return &body[*report.InstanceDetail]{d}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "timeline", Method: http.MethodGet, Path: instancesPath + "/{id}/timeline", Tags: []string{"dashboard"},
		Summary: "What an instance did, step by step", Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *struct {
		Step string `query:"step" enum:"auto,minute,hour,day" default:"auto" doc:"Length of a step; auto = what suits the span"`
		InstanceQuestion
	}) (*body[*report.Timeline], error) {
		p := in.params(s.Tenant, scopeOf(ctx))
		p.Step = in.Step
		t, err := s.Board.Timeline(ctx, p)
		if err != nil {
			return nil, s.problem(ctx, "the timeline", err)
		}
		return &body[*report.Timeline]{t}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "instanceCharges", Method: http.MethodGet, Path: instancesPath + "/{id}/charges", Tags: []string{"dashboard"},
		Summary: "The lines of its bill, the latest first", Errors: []int{409, 422, 500, 504},
	}, func(ctx context.Context, in *struct {
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		After string `query:"after" doc:"The next of the page before"`
		InstanceQuestion
	}) (*body[*report.ChargeList], error) {
		p := in.params(s.Tenant, scopeOf(ctx))
		p.Limit, p.After = in.Limit, in.After
		l, err := s.Board.Charges(ctx, p)
		if err != nil {
			return nil, s.problem(ctx, "the charges", err)
		}
		return &body[*report.ChargeList]{l}, nil
	})
}

// shownOverview is an overview with the text that live streams send, written once for all
// of them.
type shownOverview struct {
	*report.Overview
	text []byte
}

// overview answers from what is kept. Names of answers hold all that the answer depends
// on; what the asker may see is part of it.
func (s *server) overview(ctx context.Context, p report.OverviewParams) (*shownOverview, error) {
	value, err := s.overviews.get(ctx, nameOf(p), p.To == "" && p.AsOf == "", s.computeOverview(p))
	if err != nil {
		return nil, err
	}
	return value.(*shownOverview), nil
}

func (s *server) computeOverview(p report.OverviewParams) func(ctx context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		o, err := s.Board.Overview(ctx, p)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(o); err != nil {
			return nil, err
		}
		return &shownOverview{o, bytes.TrimSpace(b.Bytes())}, nil
	}
}

func (s *server) instances(ctx context.Context, in *instancesInput) (*report.InstanceList, error) {
	p := in.params(s.Tenant, scopeOf(ctx))
	value, err := s.tables.get(ctx, nameOf(p), p.To == "", func(ctx context.Context) (any, error) { return s.Board.InstanceTable(ctx, p) })
	if err != nil {
		return nil, err
	}
	table := value.(*report.InstanceTable)
	l, err := table.Page(in.page())
	if err != nil {
		return nil, err
	}
	return l, s.Board.Sparks(ctx, table, l)
}

// nameOf writes a question so that two have the same name only if they are the same.
func nameOf(p any) string {
	b, err := json.Marshal(p) // maps come in the order of their keys
	if err != nil {
		panic("web: a question cannot be written: " + err.Error()) // it is text and lists of text
	}
	return fmt.Sprintf("%T %s", p, b)
}
