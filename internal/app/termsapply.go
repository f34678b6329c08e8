package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
)

// maxChanges is how many changes of a document are listed at most.
const maxChanges = 100

// proposal is a document that is to be applied, or withdrawn, and what that changes.
type proposal struct {
	web.AppliedDocument
	version schema.TermsVersion
	doc     *pricing.Document // nil when it is withdrawn
	was     *pricing.Document // nil when there was none
	closed  []string          // what changes in which closed period, for people
	blocked string            // why no reason can force it
}

// Apply implements web.Prices. All documents get the same instant.
func (s *termsStore) Apply(ctx context.Context, tenant string, r web.ApplyRequest) (*web.AppliedPrices, error) {
	if err := checkApply(&r); err != nil {
		return nil, err
	}
	proposals, err := readDocuments(r.Documents)
	if err != nil {
		return nil, err
	}
	return s.apply(ctx, tenant, &r, func([]schema.TermsVersion) ([]*proposal, error) { return proposals, nil })
}

// Withdraw implements web.Prices.
func (s *termsStore) Withdraw(ctx context.Context, tenant, kind, name string, r web.ApplyRequest) (*web.AppliedPrices, error) {
	if err := checkApply(&r); err != nil {
		return nil, err
	}
	if kind == schema.TermsBook {
		return nil, &report.RequestError{Param: "kind", Msg: "a price book cannot be withdrawn; apply one with \"prices: []\" to have no prices"}
	}
	return s.apply(ctx, tenant, &r, func(versions []schema.TermsVersion) ([]*proposal, error) {
		if v := current(versions, documentName{kind, name}); v == nil || v.Withdrawn {
			return nil, notApplied(kind, name)
		}
		p := &proposal{version: schema.TermsVersion{Kind: kind, Name: name, Withdrawn: true}}
		p.Kind, p.Name = kind, name
		return []*proposal{p}, nil
	})
}

func notApplied(kind, name string) error {
	return fmt.Errorf("no %s %s is in force: %w", kind, name, web.ErrNotFound)
}

func checkApply(r *web.ApplyRequest) error {
	for _, text := range [...]struct {
		param, value string
		most         int
		required     bool
	}{{"by", r.By, report.MaxActor, true}, {"reason", r.Reason, report.MaxReason, true}, {"force", r.Force, report.MaxReason, false}} {
		if text.required && strings.TrimSpace(text.value) == "" {
			return &report.RequestError{Param: text.param, Msg: "is missing: every version says who applied it and why"}
		}
		if len(text.value) > text.most || !utf8.ValidString(text.value) {
			return &report.RequestError{Param: text.param, Msg: fmt.Sprintf("%d bytes, at most %d bytes of UTF-8 are allowed", len(text.value), text.most)}
		}
	}
	return nil
}

// readDocuments checks all documents by themselves and reports all faults at once.
func readDocuments(files []web.PriceFile) ([]*proposal, error) {
	if len(files) == 0 {
		return nil, &report.RequestError{Param: "documents", Msg: "there is none"}
	}
	var list []*proposal
	invalid := &web.InvalidDocument{}
	seen := map[documentName]string{}
	for i := range files {
		f := &files[i]
		d, err := pricing.ReadDocument(f.File, []byte(f.Content))
		if err != nil {
			invalid.Faults = append(invalid.Faults, faultsOf(f.File, err)...)
			continue
		}
		id := documentName{d.Kind, d.Name}
		if first, twice := seen[id]; twice {
			invalid.Faults = append(invalid.Faults, web.DocumentFault{Place: f.File, Msg: fmt.Sprintf("is the %s %s, as %s is", d.Kind, d.Name, first)})
			continue
		}
		seen[id] = f.File
		p := &proposal{doc: d, version: schema.TermsVersion{Kind: d.Kind, Name: d.Name, Hash: d.Hash, Version: d.Version, Content: []byte(f.Content)}}
		p.File, p.Kind, p.Name = f.File, d.Kind, d.Name
		list = append(list, p)
	}
	if len(invalid.Faults) > 0 {
		return nil, invalid
	}
	return list, nil
}

func faultsOf(file string, err error) (list []web.DocumentFault) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			list = append(list, faultsOf(file, e)...)
		}
		return list
	}
	var f *pricing.Fault
	if !errors.As(err, &f) {
		return []web.DocumentFault{{Place: file, Msg: err.Error()}}
	}
	where := *f
	where.Msg = ""
	return []web.DocumentFault{{Place: strings.TrimSuffix(where.Error(), ": "), Msg: f.Msg}}
}

// apply compares with what is in force, asks whether closed periods change, and stores
// what is new.
func (s *termsStore) apply(ctx context.Context, tenant string, r *web.ApplyRequest, propose func([]schema.TermsVersion) ([]*proposal, error)) (*web.AppliedPrices, error) {
	select {
	case s.applying <- struct{}{}:
		defer func() { <-s.applying }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	versions, err := s.db.TermsVersions(ctx, tenant, 0)
	if err != nil {
		return nil, err
	}
	closed, err := s.closed(ctx, tenant)
	if err != nil {
		return nil, err
	}
	proposals, err := propose(versions)
	if err != nil {
		return nil, err
	}
	for _, p := range proposals {
		if err := s.compare(ctx, versions, closed, p); err != nil {
			return nil, err
		}
	}
	answer := &web.AppliedPrices{DryRun: r.DryRun}
	if err := refusal(proposals, r.Force); err != nil && !r.DryRun {
		return nil, err
	} else if err != nil {
		answer.Refused = err.Error()
	}
	stored := s.stamp(tenant, r, versions, closed, proposals)
	if !r.DryRun && len(stored) > 0 {
		if err := s.db.PutTerms(ctx, stored); err != nil {
			return nil, err
		}
	}
	for _, p := range proposals {
		if !p.Unchanged {
			p.Version = versionOf(&p.version)
		}
		if r.DryRun {
			p.Version.AppliedAt = ""
		}
		answer.Documents = append(answer.Documents, p.AppliedDocument)
	}
	return answer, nil
}

// stamp completes the versions that are new. They are later than any version there is,
// or one of two that are applied at once would be in the past already; and than any
// closing, which would have billed them otherwise.
func (s *termsStore) stamp(tenant string, r *web.ApplyRequest, versions []schema.TermsVersion, closed []schema.Statement, proposals []*proposal) (list []schema.TermsVersion) {
	at := s.clock.Now().UnixMilli()
	if n := len(versions); n > 0 {
		at = max(at, versions[n-1].AppliedAtMs+1)
	}
	if n := len(closed); n > 0 {
		at = max(at, closed[n-1].AsOfMs+1)
	}
	for _, p := range proposals {
		if p.Unchanged {
			continue
		}
		v := &p.version
		v.Tenant, v.AppliedAtMs, v.AppliedBy, v.Reason = tenant, at, r.By, r.Reason
		if len(p.ClosedPeriods) > 0 {
			v.Forced = r.Force
		}
		list = append(list, *v)
	}
	return list
}

// refusal says why the proposals cannot be applied, or nil.
func refusal(proposals []*proposal, force string) error {
	var texts []string
	for _, p := range proposals {
		if p.blocked != "" {
			return &report.ConflictError{Msg: p.blocked}
		}
		texts = append(texts, p.closed...)
	}
	if len(texts) == 0 || strings.TrimSpace(force) != "" {
		return nil
	}
	return &report.ConflictError{Msg: strings.Join(texts, "; ") +
		"; nothing was applied; --force REASON applies it all the same and makes the change an adjustment of the next statement"}
}

// current returns the version of a document that counts, or nil.
func current(versions []schema.TermsVersion, id documentName) *schema.TermsVersion {
	for i := len(versions) - 1; i >= 0; i-- {
		if nameOf(&versions[i]) == id {
			return &versions[i]
		}
	}
	return nil
}

// compare says what a proposal changes, and in which closed periods.
func (s *termsStore) compare(ctx context.Context, versions []schema.TermsVersion, closed []schema.Statement, p *proposal) error {
	p.Changes, p.ClosedPeriods = []string{}, []string{}
	if v := current(versions, nameOf(&p.version)); v != nil && !v.Withdrawn {
		var err error
		if p.was, err = s.document(ctx, v); err != nil {
			return err
		}
		p.Previous = v.Version
		if p.doc != nil && v.Hash == p.doc.Hash {
			p.Unchanged, p.Version = true, versionOf(v)
			return nil
		}
	}
	changes := p.changes()
	for i := range changes {
		p.Changes = append(p.Changes, changes[i].text)
	}
	p.ChangesTotal = len(changes)
	p.Changes = p.Changes[:min(len(p.Changes), maxChanges)]
	for i := range closed {
		c := &closed[i]
		touching := slices.DeleteFunc(slices.Clone(changes), func(t change) bool { return t.fromMs >= c.ToMs || t.toMs <= c.FromMs })
		if len(touching) == 0 {
			continue
		}
		p.ClosedPeriods = append(p.ClosedPeriods, c.Period)
		text := fmt.Sprintf("period %s is closed, and the %s %s changes it: %s", c.Period, p.Kind, p.Name, touching[0].text)
		if more := len(touching) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d changes more)", more)
		}
		p.closed = append(p.closed, text)
	}
	if was, is := p.currencies(); len(closed) > 0 && was != "" && is != "" && was != is {
		p.blocked = fmt.Sprintf("closed periods are in %s and the price book is in %s; amounts of two currencies have no difference, so no reason can force it", was, is)
	}
	return nil
}

// change is a time in which something else is to be paid.
type change struct {
	fromMs, toMs int64
	text         string
}

// changes of a book are those of its prices. A contract counts as changed as long as it
// or the one before it is valid, a profile always.
func (p *proposal) changes() (list []change) {
	verb := "is applied"
	switch {
	case p.doc == nil:
		verb = "is withdrawn"
	case p.was != nil:
		verb = "is replaced"
	}
	switch p.Kind {
	case schema.TermsBook:
		for _, c := range pricing.DiffBooks(p.books()) {
			list = append(list, change{c.FromMs, c.ToMs, c.Text()})
		}
	case schema.TermsContract:
		c := change{fromMs: pricing.Forever, toMs: pricing.Always}
		for _, d := range []*pricing.Document{p.was, p.doc} {
			if d != nil {
				c.fromMs, c.toMs = min(c.fromMs, int64(d.Contract.From)), max(c.toMs, int64(d.Contract.To))
			}
		}
		c.text = fmt.Sprintf("contract %s %s, from %s to %s", p.Name, verb, pricing.ChangeInstant(c.fromMs), pricing.ChangeInstant(c.toMs))
		list = append(list, c)
	case schema.TermsProfile:
		list = append(list, change{pricing.Always, pricing.Forever, fmt.Sprintf("the profile of platform %s %s", p.Name, verb)})
	}
	return list
}

func (p *proposal) books() (was, is *pricing.Book) {
	if p.was != nil {
		was = p.was.Book
	}
	if p.doc != nil {
		is = p.doc.Book
	}
	return was, is
}

func (p *proposal) currencies() (was, is string) {
	a, b := p.books()
	if a != nil {
		was = a.Currency
	}
	if b != nil {
		is = b.Currency
	}
	return was, is
}

func versionOf(v *schema.TermsVersion) web.PriceVersion {
	return web.PriceVersion{
		Version: v.Version, Hash: v.Hash, AppliedAt: schema.FormatTime(v.AppliedAtMs), AppliedBy: v.AppliedBy, Reason: v.Reason, Forced: v.Forced, Withdrawn: v.Withdrawn,
	}
}

// List implements web.Prices.
func (s *termsStore) List(ctx context.Context, tenant string) (*web.PriceList, error) {
	versions, err := s.db.TermsVersions(ctx, tenant, 0)
	if err != nil {
		return nil, err
	}
	list := &web.PriceList{Documents: []web.PriceDocument{}}
	for _, v := range latest(versions) {
		d := web.PriceDocument{Kind: v.Kind, Name: v.Name}
		for i := range versions {
			if nameOf(&versions[i]) == nameOf(v) {
				d.Versions = append(d.Versions, versionOf(&versions[i]))
			}
		}
		if !v.Withdrawn {
			d.Current = &d.Versions[len(d.Versions)-1]
		}
		list.Documents = append(list.Documents, d)
	}
	return list, nil
}

// Content implements web.Prices.
func (s *termsStore) Content(ctx context.Context, tenant, kind, name, version string) ([]byte, *web.PriceVersion, error) {
	versions, err := s.db.TermsVersions(ctx, tenant, 0)
	if err != nil {
		return nil, nil, err
	}
	v := current(versions, documentName{kind, name})
	if version != "" {
		v = nil
		for i := range versions {
			if is := &versions[i]; is.Kind == kind && is.Name == name && !is.Withdrawn && (is.Version == version || is.Hash == version) {
				v = is
			}
		}
		if v == nil {
			return nil, nil, fmt.Errorf("no version %q of the %s %s: %w", version, kind, name, web.ErrNotFound)
		}
	}
	if v == nil || v.Withdrawn {
		return nil, nil, notApplied(kind, name)
	}
	content, err := s.content(ctx, v)
	if err != nil {
		return nil, nil, err
	}
	description := versionOf(v)
	return content, &description, nil
}
