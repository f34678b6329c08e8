package web

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// Question is what reports and explanations are asked with. Filters are read
// from the query itself, because "project=" (without a project) and no project
// parameter at all are different questions.
type Question struct {
	From   string `query:"from" doc:"RFC 3339 instant, or a date, which is the start of that day in the zone. Default: the start of the month that holds the end of the span."`
	To     string `query:"to" doc:"As from; exclusive. Default: now."`
	AsOf   string `query:"as_of" doc:"Count only what was stored by then; as from. Default: everything."`
	Zone   string `query:"zone" doc:"IANA time zone. Default: UTC."`
	Format string `query:"format" enum:"json,csv,table" default:"json" doc:"Form of the answer"`

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

	filter   map[string]string
	projects []string // that the asker may see
}

// Resolve collects the filters and refuses a parameter that is there twice.
func (q *Question) Resolve(ctx huma.Context) (errs []error) {
	q.projects = scopeOf(ctx.Context())
	q.filter, errs = readFilter(ctx)
	return errs
}

// readOnce reads a query in which only labels and filters may be there twice.
func readOnce(ctx huma.Context) (url.Values, []error) {
	u := ctx.URL()
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, []error{huma.Error422UnprocessableEntity("the query cannot be read: " + err.Error())}
	}
	for name, list := range values {
		if len(list) > 1 && name != "label" && name != "filter" {
			return nil, []error{&huma.ErrorDetail{Message: "is there twice", Location: "query." + name}}
		}
	}
	return values, nil
}

func readFilter(ctx huma.Context) (map[string]string, []error) {
	values, faults := readOnce(ctx)
	if faults != nil {
		return nil, faults
	}
	pairs := append([]string{}, values["filter"]...)
	for _, dimension := range report.Dimensions() {
		if values.Has(dimension) {
			pairs = append(pairs, dimension+"="+values.Get(dimension))
		}
	}
	for _, label := range values["label"] {
		pairs = append(pairs, "label:"+label)
	}
	filter, err := report.ParseFilter(pairs)
	if err != nil {
		return nil, []error{&huma.ErrorDetail{Message: err.Error(), Location: "query.filter"}}
	}
	return filter, nil
}

func (q *Question) params(tenant string) report.Params {
	return report.Params{Tenant: tenant, From: q.From, To: q.To, AsOf: q.AsOf, Zone: q.Zone, Filter: q.filter, Projects: q.projects}
}

type reportInput struct {
	Kind  string `path:"kind" enum:"spend,waste,utilization,usage,quality" doc:"Which report. The first four carry the same data; waste is in the order of waste."`
	By    string `query:"by" doc:"Keys to group by, separated by commas: project, instance, unit, node, model, platform, region, plan, hour, day, month, label:KEY"`
	Top   int    `query:"top" minimum:"0" maximum:"10000" doc:"Only this many rows: those of most cost, or of most idle waste in the waste report. row_count says how many there are; the totals are of all."`
	Limit int    `query:"limit" minimum:"0" maximum:"10000" doc:"Only a page of this many rows, in the order of their keys; the totals are of all"`
	After string `query:"after" doc:"The next of the page before"`
	Question
}

type explainInput struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Events per page"`
	After string `query:"after" doc:"The next of the page before"`
	Question
}

// rawOutput is an answer that is already in its final bytes.
type rawOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func written(answer report.Writer, format string) (*rawOutput, error) {
	var b bytes.Buffer
	if err := report.Write(&b, answer, format); err != nil {
		return nil, err
	}
	return &rawOutput{ContentType: report.ContentType(format), Body: b.Bytes()}, nil
}

func (s *server) registerReports() {
	if s.Reports == nil {
		return
	}
	registry := s.api.OpenAPI().Components.Schemas
	huma.Register(s.api, huma.Operation{
		OperationID: "report", Method: http.MethodGet, Path: "/api/v1/reports/{kind}", Tags: []string{"reports"},
		Summary:     "A report over a span of time",
		Description: "Milliseconds are integers, amounts and utilization decimal strings. What is not known is null. The rows of every amount add up to its total.",
		Responses:   answers(reportSchema(registry)), Errors: []int{422, 500, 504},
	}, func(ctx context.Context, in *reportInput) (*rawOutput, error) {
		p := in.params(s.Tenant)
		p.Kind, p.Top, p.Limit, p.After = in.Kind, in.Top, in.Limit, in.After
		if in.By != "" {
			p.By = strings.Split(in.By, ",")
		}
		r, err := s.Reports.Report(ctx, p)
		if err != nil {
			return nil, s.problem(ctx, "the report", err)
		}
		return written(r, in.Format)
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "explain", Method: http.MethodGet, Path: "/api/v1/explain", Tags: []string{"reports"},
		Summary:     "The events, intervals and prices behind a figure",
		Description: "The total equals the totals of a report over the same span, filter and as-of. Events come in pages.",
		Responses:   answers(huma.SchemaFromType(registry, reflect.TypeFor[report.Explanation]())), Errors: []int{422, 500, 504},
	}, func(ctx context.Context, in *explainInput) (*rawOutput, error) {
		e, err := s.Reports.Explain(ctx, report.ExplainParams{Params: in.params(s.Tenant), Limit: in.Limit, After: in.After})
		if err != nil {
			return nil, s.problem(ctx, "the explanation", err)
		}
		return written(e, in.Format)
	})
}

func answers(body *huma.Schema) map[string]*huma.Response {
	text := &huma.Schema{Type: huma.TypeString}
	return map[string]*huma.Response{"200": {
		Description: "OK",
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: body}, "text/csv": {Schema: text}, "text/plain": {Schema: text},
		},
	}}
}

// figuresDoc and reportDoc describe what report.Report writes by itself.
type figuresDoc struct {
	AllocatedMs int64   `json:"allocated_ms" doc:"Known plus unknown time, in milliseconds"`
	KnownMs     int64   `json:"known_ms" doc:"Active plus idle time"`
	ActiveMs    int64   `json:"active_ms"`
	IdleMs      int64   `json:"idle_ms" doc:"Known and not active, held or free"`
	UnknownMs   int64   `json:"unknown_ms" doc:"Time without a valid activity reading; never counted as idle"`
	Utilization *string `json:"utilization" doc:"Mean over the time in which it is known, 0 to 1, at most six decimals, rounded half up"`
	Cost        *string `json:"cost" doc:"What is billed: of leased instances by the lines of their bill, else allocated time times price; null without a price"`
	IdleWaste   *string `json:"idle_waste" doc:"Idle time that an owner held, times price"`
	UnpricedMs  int64   `json:"unpriced_ms" doc:"Allocated time without a price, in no amount"`
	FreeMs      int64   `json:"free_ms" doc:"Part of idle_ms during which nobody held the unit"`
	FreeCost    *string `json:"free_cost" doc:"free_ms times price"`
	EnergyMj    *int64  `json:"energy_mj" doc:"Millijoules; null when none were reported"`

	OverlapMs        int64   `json:"overlap_ms" doc:"Part of allocated_ms that several events of one instance reported; it is allocated once"`
	OversubscribedMs int64   `json:"oversubscribed_ms" doc:"Part of allocated_ms in which the instances that held a unit claimed more than all of it"`
	UsedCost         *string `json:"used_cost" doc:"Time of known utilization times utilization times price; null without priced time"`
	UnusedCost       *string `json:"unused_cost" doc:"The rest of the cost of that time; time of unknown utilization is in neither"`

	ListCost             *string `json:"list_cost" doc:"What the time would have cost at list price; null when that of any part is not known"`
	EffectiveCost        *string `json:"effective_cost" doc:"Cost with purchases spread over what they pay for: the sum of idle_waste, free_cost and the columns from useful_cost on"`
	UsefulCost           *string `json:"useful_cost" doc:"Of active time"`
	UnknownCost          *string `json:"unknown_cost" doc:"Of held time of which nobody knows what it was used for"`
	StoppedCost          *string `json:"stopped_cost" doc:"Billed while the instance did not hold its GPUs"`
	MinimumCost          *string `json:"minimum_cost" doc:"Billed beyond the time of the instance, by a minimum or rounding"`
	CommitmentUnusedCost *string `json:"commitment_unused_cost" doc:"Bought and not used"`
	ReworkCost           *string `json:"rework_cost" doc:"Of active time whose work was lost when the platform took the instance"`
	MeterCost            *string `json:"meter_cost" doc:"Transfer, storage and other meters"`
	CreditCost           *string `json:"credit_cost" doc:"Given back; negative"`
}

type reportDoc struct {
	From     string           `json:"from" format:"date-time"`
	To       string           `json:"to" format:"date-time" doc:"Exclusive"`
	AsOf     string           `json:"as_of" format:"date-time"`
	Zone     string           `json:"zone"`
	Currency *string          `json:"currency,omitempty" nullable:"true" doc:"Null without a price list; absent from quality"`
	By       []string         `json:"by,omitempty" nullable:"false"`
	Rows     []map[string]any `json:"rows,omitempty" nullable:"false" doc:"Each has the keys of by, as text, followed by the keys of totals"`
	Totals   *figuresDoc      `json:"totals,omitempty" doc:"Absent from quality"`
	RowCount *int64           `json:"row_count,omitempty" doc:"Rows that there are; with top only"`
	Next     *string          `json:"next,omitempty" nullable:"true" doc:"What the next page is asked for with, null on the last; with limit only"`
	Quality  schema.Quality   `json:"quality"`

	Sources      []report.SourceFigures `json:"sources,omitempty" nullable:"false" doc:"Only in quality: at most 100, those with most late events first"`
	SourcesTotal int64                  `json:"sources_total,omitempty" doc:"Only in quality: how many sources there are"`
	Conflicts    []conflictDoc          `json:"conflict_list,omitempty" nullable:"false" doc:"Only in quality: identities with several contents, the first of them"`
	Incidents    []incidentDoc          `json:"incidents,omitempty" nullable:"false" doc:"In quality only: what makes the span's data incomplete or doubtful, the oldest first"`
}

// conflictDoc leaves the keys of its lists open: a content is one of usage or of a lease.
type conflictDoc struct {
	Source      string           `json:"source"`
	ID          string           `json:"id"`
	Contents    []map[string]any `json:"contents" nullable:"false" doc:"As they were stored; counted says which one is in the figures"`
	Corrections []map[string]any `json:"corrections" nullable:"false" doc:"effective says which one settles it"`
}

type incidentDoc struct {
	Kind     string  `json:"kind" enum:"stream_hole,tail_lost,source_gap,silent,conflict,storage,derived"`
	Key      string  `json:"key" doc:"With tenant and kind the name of the incident"`
	Tenant   string  `json:"tenant" doc:"Empty when it touches all tenants"`
	Detail   string  `json:"detail"`
	Count    int64   `json:"count" doc:"How many numbers, messages or contents it is about"`
	From     *string `json:"from" format:"date-time" nullable:"true" doc:"Event time that it touches; null with to: any time"`
	To       *string `json:"to" format:"date-time" nullable:"true" doc:"Exclusive; null with a from: it goes on"`
	OpenedAt string  `json:"opened_at" format:"date-time"`
	ClosedAt *string `json:"closed_at" format:"date-time" nullable:"true" doc:"Null as long as it is open"`
}

func reportSchema(registry huma.Registry) *huma.Schema {
	return registry.Schema(reflect.TypeFor[reportDoc](), true, "Report")
}
