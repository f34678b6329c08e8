package report

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// UnitList is a page of the units that reported usage.
type UnitList struct {
	From     string     `json:"from" format:"date-time"`
	To       string     `json:"to" format:"date-time" doc:"Exclusive"`
	AsOf     string     `json:"as_of" format:"date-time"`
	Zone     string     `json:"zone"`
	Currency *string    `json:"currency" nullable:"true"`
	Items    []UnitItem `json:"items" doc:"By name and node"`
	Totals   Shown      `json:"totals" doc:"Of all pages, with what is of no unit: leased time that nobody reported, and amounts such as unused commitments"`
	Next     *string    `json:"next" nullable:"true" doc:"The after of the next page; null on the last"`
}

// UnitItem is a unit.
type UnitItem struct {
	Unit     string `json:"unit"`
	Node     string `json:"node"`
	Platform string `json:"platform"`
	Region   string `json:"region"`
	Model    string `json:"model"`
	Figures  Shown  `json:"figures"`
}

// Units lists the units of a span. By, Top and the like are not used.
func (s *Service) Units(ctx context.Context, p Params) (*UnitList, error) {
	p.Kind, p.Top, p.By = "", 0, []string{"unit", "node", "platform", "region", "model"}
	p.Limit = cmp.Or(p.Limit, DefaultPage)
	r, err := s.Report(ctx, p)
	if err != nil {
		return nil, err
	}
	l := &UnitList{
		From: instantIn(utc, r.FromMs), To: instantIn(utc, r.ToMs), AsOf: instantIn(utc, r.asOf()), Zone: r.ZoneName, Currency: orNil(r.Currency),
		Items: []UnitItem{}, Totals: Shown{r.Totals, r.Currency}, Next: orNil(r.Next),
	}
	for i := range r.Rows {
		if k := r.Rows[i].Keys; k[0] != "" {
			l.Items = append(l.Items, UnitItem{k[0], k[1], k[2], k[3], k[4], Shown{r.Rows[i].Figures, r.Currency}})
		}
	}
	return l, nil
}

// LeaseList is a page of the states of leases.
type LeaseList struct {
	From  string         `json:"from" format:"date-time"`
	To    string         `json:"to" format:"date-time" doc:"Exclusive"`
	AsOf  string         `json:"as_of" format:"date-time"`
	Items []ExplainLease `json:"items" doc:"By instance and time"`
	Next  *string        `json:"next" nullable:"true" doc:"The after of the next page; null on the last"`
}

// leaseCursor is where a page of leases ended.
type leaseCursor struct {
	Instance string `json:"instance"`
	FromMs   int64  `json:"from_ms"`
}

// LeaseStates lists the states of leases that overlap a span. By, Top and the like are
// not used.
func (s *Service) LeaseStates(ctx context.Context, p Params) (*LeaseList, error) {
	limit, after := cmp.Or(p.Limit, DefaultPage), p.After
	p.Kind, p.By, p.Top, p.Limit, p.After = "", nil, 0, 0, ""
	req, err := Parse(p, s.Now())
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > MaxPage {
		return nil, wrong("limit", "%d is not between 1 and %d", limit, MaxPage)
	}
	var c leaseCursor
	if after != "" {
		b, err := base64.RawURLEncoding.DecodeString(after)
		if err != nil || json.Unmarshal(b, &c) != nil || c.Instance == "" {
			return nil, wrong("after", "%q is not the next of a page: it was changed on the way", clip(after))
		}
	}
	if err := s.known(ctx, req.AsOfMs, req.NowMs); err != nil {
		return nil, err
	}
	list, err := s.Store.Leases(ctx, req.events())
	if err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	compare := func(l *schema.LeaseSegment, c leaseCursor) int {
		return cmp.Or(cmp.Compare(l.Instance, c.Instance), cmp.Compare(l.FromMs, c.FromMs))
	}
	list = slices.DeleteFunc(list, func(l schema.LeaseSegment) bool { return !req.keepsPlan(l.Plan) || compare(&l, c) <= 0 && after != "" })
	slices.SortFunc(list, func(a, b schema.LeaseSegment) int { return compare(&a, leaseCursor{b.Instance, b.FromMs}) })
	l := &LeaseList{From: instantIn(utc, req.FromMs), To: instantIn(utc, req.ToMs), AsOf: instantIn(utc, req.asOf()), Items: []ExplainLease{}}
	for i := range list[:min(limit, len(list))] {
		item, err := req.leaseItem(&list[i])
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, *item)
	}
	if len(list) > limit {
		b, err := json.Marshal(leaseCursor{list[limit-1].Instance, list[limit-1].FromMs})
		if err != nil {
			return nil, err
		}
		l.Next = orNil(base64.RawURLEncoding.EncodeToString(b))
	}
	return l, nil
}
