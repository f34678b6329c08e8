package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// termsDB keeps versions of documents; *clickhouse.DB is one.
type termsDB interface {
	// PutTerms stores versions. When it returns nil they are on disk.
	PutTerms(ctx context.Context, versions []schema.TermsVersion) error
	// TermsVersions returns the versions applied by an instant (0 = so far) in the order
	// of applying, those of one instant by hash, without their content.
	TermsVersions(ctx context.Context, tenant string, asOfMs int64) ([]schema.TermsVersion, error)
	TermsContent(ctx context.Context, v *schema.TermsVersion) ([]byte, error)
}

// termsStore says what a tenant pays by, as known at an instant. It may be used by many
// goroutines.
type termsStore struct {
	db      termsDB
	clock   Clock
	closed  func(ctx context.Context, tenant string) ([]schema.Statement, error)
	shipped []*pricing.Profile
	// applying is held by the one who applies, so that no two of this process get the
	// same instant; between processes the order of instants decides.
	applying chan struct{}

	mu     sync.Mutex
	parsed map[string]*pricing.Document // by content hash; a content never changes
}

// maxParsed bounds the documents that are kept parsed.
const maxParsed = 256

func newTermsStore(db termsDB, clock Clock) (*termsStore, error) {
	shipped, err := pricing.Profiles()
	if err != nil {
		return nil, err
	}
	return &termsStore{db: db, clock: clock, shipped: shipped, applying: make(chan struct{}, 1), parsed: map[string]*pricing.Document{}}, nil
}

type documentName struct{ kind, name string }

func nameOf(v *schema.TermsVersion) documentName { return documentName{v.Kind, v.Name} }

// latest returns the version of each document that counts, those that were applied
// first in front.
func latest(versions []schema.TermsVersion) []*schema.TermsVersion {
	at := map[documentName]int{}
	var list []*schema.TermsVersion
	for i := range versions {
		v := &versions[i]
		if place, seen := at[nameOf(v)]; seen {
			list[place] = v
			continue
		}
		at[nameOf(v)] = len(list)
		list = append(list, v)
	}
	return list
}

// Terms returns what a tenant pays by, as known at an instant (0 = now). Before the
// first price book was applied nothing has a price: what was not known is not made up
// from what came later.
func (s *termsStore) Terms(ctx context.Context, tenant string, asOfMs int64) (*pricing.Terms, error) {
	versions, err := s.db.TermsVersions(ctx, tenant, asOfMs)
	if err != nil {
		return nil, err
	}
	terms := &pricing.Terms{}
	own := map[string]bool{}
	contracts := firstApplied(versions)
	for _, v := range latest(versions) {
		if v.Withdrawn {
			continue
		}
		d, err := s.document(ctx, v)
		if err != nil {
			return nil, err
		}
		switch v.Kind {
		case schema.TermsBook:
			terms.Book = d.Book
		case schema.TermsContract:
			terms.Contracts = append(terms.Contracts, d.Contract)
		case schema.TermsProfile:
			terms.Profiles = append(terms.Profiles, d.Profile)
			own[v.Name] = true
		}
	}
	slices.SortFunc(terms.Contracts, func(a, b *pricing.Contract) int {
		return cmp.Or(cmp.Compare(contracts[a.ID], contracts[b.ID]), cmp.Compare(a.ID, b.ID))
	})
	for _, p := range s.shipped {
		if !own[p.Platform] {
			terms.Profiles = append(terms.Profiles, p)
		}
	}
	slices.SortFunc(terms.Profiles, func(a, b *pricing.Profile) int { return cmp.Compare(a.Platform, b.Platform) })
	return terms, nil
}

// firstApplied says when each contract was applied for the first time.
func firstApplied(versions []schema.TermsVersion) map[string]int64 {
	first := map[string]int64{}
	for i := range versions {
		if v := &versions[i]; v.Kind == schema.TermsContract {
			if _, seen := first[v.Name]; !seen {
				first[v.Name] = v.AppliedAtMs
			}
		}
	}
	return first
}

// document reads a version, once.
func (s *termsStore) document(ctx context.Context, v *schema.TermsVersion) (*pricing.Document, error) {
	s.mu.Lock()
	d := s.parsed[v.Hash]
	s.mu.Unlock()
	if d != nil {
		return d, nil
	}
	content, err := s.content(ctx, v)
	if err != nil {
		return nil, err
	}
	d, err = pricing.ReadDocument(v.Kind+" "+v.Name, content)
	if err != nil {
		return nil, fmt.Errorf("the version %s of the %s %s cannot be read any more: %w", v.Version, v.Kind, v.Name, err)
	}
	if d.Kind != v.Kind || d.Name != v.Name {
		return nil, fmt.Errorf("what is stored as the %s %s is the %s %s", v.Kind, v.Name, d.Kind, d.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parsed) >= maxParsed {
		clear(s.parsed)
	}
	s.parsed[v.Hash] = d
	return d, nil
}

// content returns a version as it was given, and makes sure that it still is.
func (s *termsStore) content(ctx context.Context, v *schema.TermsVersion) ([]byte, error) {
	content, err := s.db.TermsContent(ctx, v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	if got := hex.EncodeToString(sum[:]); got != v.Hash {
		return nil, fmt.Errorf("the stored content of the %s %s has the hash %s, not %s: it was changed after it was applied", v.Kind, v.Name, got, v.Hash)
	}
	return content, nil
}
