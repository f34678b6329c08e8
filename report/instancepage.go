package report

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// InstanceOrder is what instances are sorted by.
type InstanceOrder struct {
	By         string // one of InstanceOrders
	Descending bool
}

// InstanceOrders lists what instances can be sorted by. What is not known comes last in
// either direction.
var InstanceOrders = []string{
	"cost", "effective_cost", "idle_waste", "utilization", "allocated", "price", "since", "idle", "gpus",
	"instance", "project", "platform", "region", "model", "plan", "state", "owner",
}

// InstancePage asks for some rows of a table.
type InstancePage struct {
	InstanceOrder
	State string // only instances in this state; "none" = without a lease
	Text  string // only those with this text in their name, project or owner; case does not matter
	Limit int    // 1 to MaxInstancePage; 0 = DefaultInstancePage
	After string // the Next of the page before
}

// Bounds of a page of instances.
const (
	DefaultInstancePage = 50
	MaxInstancePage     = 500
)

// InstanceList is a page of instances.
type InstanceList struct {
	At         string         `json:"at" format:"date-time" doc:"Instant that live states and figures are of"`
	From       string         `json:"from" format:"date-time"`
	To         string         `json:"to" format:"date-time" doc:"Exclusive"`
	Zone       string         `json:"zone"`
	Currency   *string        `json:"currency" nullable:"true"`
	Total      int            `json:"total" doc:"Instances that there are, on all pages"`
	Next       *string        `json:"next" nullable:"true" doc:"The after of the next page; null on the last"`
	Items      []InstanceItem `json:"items"`
	Totals     Shown          `json:"totals" doc:"Of the span and filter, whatever state and q say"`
	Unassigned *Shown         `json:"unassigned" doc:"The part of totals that is of no instance: units that nobody held, commitments that nobody used; null = there is none"`
}

// InstanceItem is an instance.
type InstanceItem struct {
	Instance       string    `json:"instance"`
	Project        string    `json:"project"`
	Platform       string    `json:"platform"`
	Region         string    `json:"region"`
	Model          string    `json:"model"`
	Plan           string    `json:"plan" doc:"Empty = on demand"`
	Gpus           *int64    `json:"gpus" nullable:"true" doc:"That its lease says; null when none does"`
	State          string    `json:"state" doc:"Of its lease at the end of the span; empty = it has none"`
	Since          *string   `json:"since" nullable:"true" format:"date-time" doc:"When that state began"`
	Owner          string    `json:"owner" doc:"The label owner of its lease"`
	PricePerHour   *string   `json:"price_per_hour" nullable:"true" doc:"Of one GPU at the end of the span, by effective cost; null when it is not known or nothing is held"`
	IdleSince      *string   `json:"idle_since" nullable:"true" format:"date-time" doc:"It has done nothing since then, at least; null when it was active to the last reading, nothing is known, or nothing is held"`
	LastActive     *string   `json:"last_active" nullable:"true" format:"date-time" doc:"End of the last window of the span with any activity"`
	LastReading    *string   `json:"last_reading" nullable:"true" format:"date-time" doc:"End of the last window of the span of which anything is known"`
	Utilization24h []*string `json:"utilization_24h" nullable:"false" doc:"Of the 24 hours before the end of the span, the oldest first; null where it is not known. Empty where it was not asked for."`
	Figures        Shown     `json:"figures"`
}

// instanceCursor is where a page ended. It says what the last row sorted by, so it stays
// right when rows come, go or change.
type instanceCursor struct {
	By         string `json:"by"`
	Descending bool   `json:"desc"`
	Known      bool   `json:"known"`
	Number     int64  `json:"n"`
	Text       string `json:"text"`
	Instance   string `json:"instance"`
}

// sortKey is what a row sorts by.
type sortKey struct {
	known bool
	n     int64
	text  string
}

func (r *instanceRow) sortKey(by string) sortKey {
	amount := func(column int) sortKey {
		return sortKey{known: r.figures.amounts[column] != noAmount, n: r.figures.amounts[column]}
	}
	number := func(n int64, known bool) sortKey { return sortKey{known: known, n: n} }
	text := func(s string) sortKey { return sortKey{known: s != "", text: s} }
	switch by {
	case "cost":
		return amount(0)
	case "idle_waste":
		return amount(1)
	case "effective_cost":
		return amount(6)
	case "utilization":
		return number(r.figures.utilization.Value, r.figures.utilization.Known)
	case "allocated":
		return number(r.figures.allocatedMs, true)
	case "price":
		if r.price == nil {
			return sortKey{}
		}
		f := Figures{Cost: r.price}
		s, err := small(&f)
		return number(s.amounts[0], err == nil)
	case "since":
		return number(r.sinceMs, r.sinceMs != 0)
	case "idle":
		return number(-r.idleSinceMs, r.idleSinceMs != 0) // the longest is the largest
	case "gpus":
		return number(r.gpus, r.gpus != 0)
	case "project":
		return text(r.project)
	case "platform":
		return text(r.platform)
	case "region":
		return text(r.region)
	case "model":
		return text(r.model)
	case "plan":
		return text(r.plan)
	case "state":
		return text(r.state)
	case "owner":
		return text(r.owner)
	}
	return text(r.instance)
}

// compare orders rows by their keys, and among equals by their names.
func (o InstanceOrder) compare(a, b sortKey, x, y string) int {
	switch {
	case a.known != b.known:
		return cmp.Compare(boolInt(!a.known), boolInt(!b.known))
	case !a.known:
		return cmp.Compare(x, y)
	}
	c := cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.text, b.text))
	if o.Descending {
		c = -c
	}
	return cmp.Or(c, cmp.Compare(x, y))
}

// ordered returns the positions of the rows in an order. It is made once.
func (t *InstanceTable) ordered(o InstanceOrder) []int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if list := t.orders[o]; list != nil {
		return list
	}
	keys := make([]sortKey, len(t.rows))
	list := make([]int32, len(t.rows))
	for i := range t.rows {
		keys[i], list[i] = t.rows[i].sortKey(o.By), int32(i)
	}
	slices.SortFunc(list, func(a, b int32) int { return o.compare(keys[a], keys[b], t.rows[a].instance, t.rows[b].instance) })
	t.orders[o] = list
	return list
}

// Page returns some rows. A *RequestError says what is wrong with the question.
func (t *InstanceTable) Page(p InstancePage) (*InstanceList, error) {
	if p.By == "" {
		p.By, p.Descending = "cost", true
	}
	if !slices.Contains(InstanceOrders, p.By) {
		return nil, wrong("sort", "%q is none of %s", clip(p.By), strings.Join(InstanceOrders, ", "))
	}
	if p.Limit == 0 {
		p.Limit = DefaultInstancePage
	}
	if p.Limit < 1 || p.Limit > MaxInstancePage {
		return nil, wrong("limit", "%d is not between 1 and %d", p.Limit, MaxInstancePage)
	}
	list := t.ordered(p.InstanceOrder)
	start, err := t.start(list, &p)
	if err != nil {
		return nil, err
	}
	answer := t.head()
	lower := strings.ToLower(p.Text)
	var last *instanceRow
	for i, at := range list {
		r := &t.rows[at]
		if !r.matches(&p, lower) {
			continue
		}
		answer.Total++
		switch {
		case i < start:
		case len(answer.Items) < p.Limit:
			answer.Items = append(answer.Items, t.item(r))
			last = r
		case answer.Next == nil:
			answer.Next = orNil(writeInstanceCursor(&p, last))
		}
	}
	return answer, nil
}

// start is the position of the first row after the cursor.
func (t *InstanceTable) start(list []int32, p *InstancePage) (int, error) {
	if p.After == "" {
		return 0, nil
	}
	var c instanceCursor
	b, err := base64.RawURLEncoding.DecodeString(p.After)
	if err != nil || json.Unmarshal(b, &c) != nil || c.Instance == "" {
		return 0, wrong("after", "%q is not the next of a page: it was changed on the way", clip(p.After))
	}
	if (InstanceOrder{c.By, c.Descending}) != p.InstanceOrder {
		return 0, wrong("after", "it is the next of a page in another order; ask for the first page of this one")
	}
	key := sortKey{c.Known, c.Number, c.Text}
	return sort.Search(len(list), func(i int) bool {
		r := &t.rows[list[i]]
		return p.compare(r.sortKey(p.By), key, r.instance, c.Instance) > 0
	}), nil
}

func writeInstanceCursor(p *InstancePage, r *instanceRow) string {
	key := r.sortKey(p.By)
	b, err := json.Marshal(instanceCursor{p.By, p.Descending, key.known, key.n, key.text, r.instance})
	if err != nil {
		return "" // text and numbers always can be written
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func (r *instanceRow) matches(p *InstancePage, lower string) bool {
	if p.State != "" && r.state != p.State && (p.State != "none" || r.state != "") {
		return false
	}
	return lower == "" || strings.Contains(strings.ToLower(r.instance), lower) || strings.Contains(strings.ToLower(r.project), lower) ||
		strings.Contains(strings.ToLower(r.owner), lower)
}

func (t *InstanceTable) head() *InstanceList {
	l := &InstanceList{
		At: instantIn(utc, min(t.req.ToMs, t.req.until())), From: instantIn(utc, t.req.FromMs), To: instantIn(utc, t.req.ToMs), Zone: t.req.ZoneName,
		Currency: orNil(t.currency), Items: []InstanceItem{}, Totals: Shown{t.totals, t.currency},
	}
	if t.unassigned != nil {
		l.Unassigned = &Shown{*t.unassigned, t.currency}
	}
	return l
}

func (t *InstanceTable) item(r *instanceRow) InstanceItem {
	instant := func(ms int64) *string {
		if ms == 0 {
			return nil
		}
		return orNil(instantIn(utc, ms))
	}
	i := InstanceItem{
		Instance: r.instance, Project: r.project, Platform: r.platform, Region: r.region, Model: r.model, Plan: r.plan, State: r.state, Since: instant(r.sinceMs), Owner: r.owner,
		PricePerHour: amountOrNil(r.price, t.currency), IdleSince: instant(r.idleSinceMs), LastActive: instant(r.lastActiveMs), LastReading: instant(r.lastKnownMs),
		Utilization24h: []*string{}, Figures: Shown{r.figures.figures(), t.currency},
	}
	if r.gpus > 0 {
		i.Gpus = &r.gpus
	}
	return i
}

// sparkHours is how many hours of utilization a page shows.
const sparkHours = 24

// Sparks adds the utilization of the last hours to the items of a page.
func (s *Service) Sparks(ctx context.Context, t *InstanceTable, l *InstanceList) error {
	if len(l.Items) == 0 {
		return nil
	}
	end := min(t.req.ToMs, t.req.until())
	first := schema.Floor(end-1, schema.HourMs) - (sparkHours-1)*schema.HourMs
	q := schema.UsageQuery{Tenant: t.req.Tenant, By: []string{"instance"}, Projects: t.req.Projects, AsOfMs: t.req.AsOfMs, NowMs: t.req.NowMs}
	for h := range int64(sparkHours) {
		q.Cuts = append(q.Cuts, first+h*schema.HourMs)
	}
	q.Cuts = append(q.Cuts, end)
	sums := map[string]*[sparkHours]schema.Sums{}
	for i := range l.Items {
		q.Instances = append(q.Instances, l.Items[i].Instance)
		sums[l.Items[i].Instance] = &[sparkHours]schema.Sums{}
	}
	rows, err := s.Store.Usage(ctx, q)
	if err != nil {
		return fmt.Errorf("instances: utilization: %w", err)
	}
	for i := range rows {
		if of := sums[rows[i].Keys[0]]; of != nil {
			of[rows[i].Piece].Add(&rows[i].Sums)
		}
	}
	for i := range l.Items {
		for _, sum := range sums[l.Items[i].Instance] {
			l.Items[i].Utilization24h = append(l.Items[i].Utilization24h, orNil(ratioText(mean(sum.UtilizationSum, sum.UtilizationMs))))
		}
	}
	return nil
}
