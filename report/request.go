package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a zone must mean the same on a machine without zone files

	"github.com/gpumeter/gpumeter/schema"
)

// Kinds of report. The first four give the same data and differ in what their
// table shows and, for waste, in the order of rows.
var Kinds = []string{"spend", "waste", "utilization", "usage", "quality"}

// Formats that a report can be written in.
var Formats = []string{"table", "json", "csv"}

var (
	dimensions = []string{"project", "instance", "unit", "node", "model", "platform", "region", planKey}
	timeKeys   = []string{"hour", "day", "month"}
)

const labelPrefix = "label:"

// planKey is the plan that an instance is leased by, such as spot or month. Storage
// knows it of leases only, so usage is told apart by what its rate says; leased on
// demand and not leased at all are both "".
const planKey = "plan"

// Dimensions returns the attributes of usage that have a name of their own;
// beside them a label groups and filters as "label:KEY".
func Dimensions() []string { return slices.Clone(dimensions) }

// Params is a question as a person writes it. Every field may be left empty.
type Params struct {
	Kind   string // one of Kinds; spend when empty
	Tenant string // schema.DefaultTenant when empty
	// From and To are RFC 3339 instants, or dates, which stand for the start of
	// that day in Zone: from 2026-03-01 to 2026-04-01 is March, to the
	// millisecond. An empty To is now; an empty From is the start of the month
	// that holds the last millisecond before To. So the default is the month to
	// date, and with only a To of 2026-04-01 it is March.
	From, To string
	AsOf     string            // written as From; empty = everything stored so far
	Zone     string            // IANA name; UTC when empty
	By       []string          // project, ..., hour, day, month, label:KEY
	Filter   map[string]string // dimension or label:KEY to exact value; "" = without one

	// Top asks for the rows of most cost, or of most idle waste in the waste
	// report, most first; Limit for a page of that many rows in key order, After
	// being the Next of the page before. At most MaxRows; 0 = all rows. The totals
	// are of all rows in any case.
	Top, Limit int
	After      string

	// Projects are those that the asker may see, beside the filter that they chose;
	// nil = all, empty = none. See scope.go.
	Projects []string
}

// Request is a question that has been checked.
type Request struct {
	Kind     string
	Tenant   string
	FromMs   int64
	ToMs     int64
	AsOfMs   int64 // 0 = everything stored so far
	NowMs    int64
	Zone     *time.Location
	ZoneName string
	By       []string
	Filter   map[string]string
	Projects []string // that may be seen; nil = all
	Top      int      // 0 = not asked for
	Limit    int      // 0 = not asked for

	after []string // what the last row of the page before sorts by; nil on the first page
}

// RequestError says which parameter of a question is wrong and what would be
// right. It is the asker's mistake; asking again will not help.
type RequestError struct {
	Param string
	Msg   string
}

// Error names the parameter and the fault.
func (e *RequestError) Error() string { return e.Param + ": " + e.Msg }

func wrong(param, format string, args ...any) error {
	return &RequestError{Param: param, Msg: fmt.Sprintf(format, args...)}
}

// Parse checks a question. Every error is a *RequestError, or a *ScopeError.
func Parse(p Params, now time.Time) (Request, error) {
	r := Request{Kind: p.Kind, Tenant: p.Tenant, NowMs: now.UnixMilli(), ZoneName: p.Zone, By: p.By, Filter: p.Filter, Projects: p.Projects}
	if r.Kind == "" {
		r.Kind = Kinds[0]
	}
	if !slices.Contains(Kinds, r.Kind) {
		return r, wrong("kind", "%q is not a report; there are %s", clip(r.Kind), strings.Join(Kinds, ", "))
	}
	if r.Tenant == "" {
		r.Tenant = schema.DefaultTenant
	}
	if err := r.zone(); err != nil {
		return r, err
	}
	if err := r.span(p); err != nil {
		return r, err
	}
	if err := checkBy(p.By); err != nil {
		return r, err
	}
	for key := range p.Filter {
		if err := checkFilter(key); err != nil {
			return r, err
		}
	}
	if r.Kind == "quality" && r.scoped() {
		return r, &ScopeError{What: "the quality of data"}
	}
	return r, r.checkPart(p)
}

// zone never falls back: a figure of another day than the one asked for is
// worse than an error. "Local" is refused because it is the server's zone.
func (r *Request) zone() error {
	if r.ZoneName == "" {
		r.ZoneName = "UTC"
	}
	loc, err := time.LoadLocation(r.ZoneName)
	if err != nil || r.ZoneName == "Local" {
		return wrong("zone", "%q is not a time zone; use an IANA name such as UTC, Asia/Shanghai or America/New_York", clip(r.ZoneName))
	}
	r.Zone = loc
	return nil
}

func (r *Request) span(p Params) (err error) {
	r.ToMs = r.NowMs
	if p.To != "" {
		if r.ToMs, err = r.instant("to", p.To); err != nil {
			return err
		}
	}
	if p.From != "" {
		if r.FromMs, err = r.instant("from", p.From); err != nil {
			return err
		}
	} else {
		last := time.UnixMilli(r.ToMs - 1).In(r.Zone)
		r.FromMs = dayStart(r.Zone, time.Date(last.Year(), last.Month(), 1, 0, 0, 0, 0, time.UTC))
	}
	if p.AsOf != "" {
		if r.AsOfMs, err = r.instant("as_of", p.AsOf); err != nil {
			return err
		}
	}
	if r.FromMs >= r.ToMs {
		return wrong("from", "%s is not before to %s; the span is from (inclusive) to (exclusive)", instantIn(r.Zone, r.FromMs), instantIn(r.Zone, r.ToMs))
	}
	return nil
}

// instant reads RFC 3339 or a date. Digits below the millisecond are refused,
// as in events: cutting them off would move a boundary.
func (r *Request) instant(param, s string) (int64, error) {
	var ms int64
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		ms = dayStart(r.Zone, day)
	} else {
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return 0, wrong(param, "%q is neither a date such as 2026-03-01 nor an RFC 3339 time such as 2026-03-01T00:00:00+08:00", clip(s))
		}
		if t.Nanosecond()%int(time.Millisecond) != 0 {
			return 0, wrong(param, "%q is finer than a millisecond", clip(s))
		}
		ms = t.UnixMilli()
	}
	if ms < schema.MinTimeMs || ms > schema.MaxTimeMs {
		return 0, wrong(param, "%q is outside 2000 to 2100, where every event lies", clip(s))
	}
	return ms, nil
}

func checkBy(by []string) error {
	for i, key := range by {
		known := slices.Contains(dimensions, key) || slices.Contains(timeKeys, key) || isLabel(key)
		if !known {
			return wrong("by", "unknown key %q; the keys are %s, %s, %sKEY", clip(key), strings.Join(dimensions, ", "), strings.Join(timeKeys, ", "), labelPrefix)
		}
		if slices.Contains(by[:i], key) {
			return wrong("by", "key %q is there twice", clip(key))
		}
	}
	return nil
}

func checkFilter(key string) error {
	switch {
	case slices.Contains(dimensions, key) || isLabel(key):
		return nil
	case slices.Contains(timeKeys, key):
		return wrong("filter", "%q is a time; choose times with from and to", key)
	}
	return wrong("filter", "unknown key %q; the keys are %s, %sKEY", clip(key), strings.Join(dimensions, ", "), labelPrefix)
}

func isLabel(key string) bool {
	name, ok := strings.CutPrefix(key, labelPrefix)
	return ok && name != "" && len(name) <= schema.MaxLabelKeyBytes
}

// ParseFilter reads filters written as KEY=VALUE. The value is everything after
// the first "=" and may be empty, which means "without one". A label key that
// itself holds "=" cannot be written.
func ParseFilter(pairs []string) (map[string]string, error) {
	filter := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, wrong("filter", "%q is not KEY=VALUE", clip(pair))
		}
		if err := checkFilter(key); err != nil {
			return nil, err
		}
		if earlier, twice := filter[key]; twice && earlier != value {
			return nil, wrong("filter", "%s cannot be both %q and %q", key, clip(earlier), clip(value))
		}
		filter[key] = value
	}
	return filter, nil
}

// clip shortens hostile text before it goes into a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
