package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// newConflicts opens the conflicts that a range of messages took part in.
func (p *pass) newConflicts(ctx context.Context, from, to uint64) error {
	list, err := p.o.Store.NewConflicts(ctx, p.state.Stream, p.state.Epoch, from, to)
	if err != nil {
		return err
	}
	settled := map[string]map[[2]string]bool{}
	for _, c := range list {
		if settled[c.Tenant] == nil {
			if settled[c.Tenant], err = p.o.Store.Corrected(ctx, c.Tenant); err != nil {
				return err
			}
		}
		if settled[c.Tenant][[2]string{c.Source, c.ID}] {
			continue
		}
		p.ledger.found(schema.Incident{
			Tenant: c.Tenant, Kind: schema.IncidentConflict, Key: conflictKey(c.Source, c.ID), Count: c.Contents, FromMs: c.FromMs, ToMs: c.ToMs,
			Detail: fmt.Sprintf("%s sent %s with %d contents; the one stored first counts; a correction of it settles this", c.Source, c.ID, c.Contents),
		}, 0)
	}
	return nil
}

// conflictKey joins source and id so that no two identities share a key.
func conflictKey(source, id string) string {
	return strings.ReplaceAll(source, " ", "  ") + " / " + id
}

// conflicts ends the conflicts whose identity a correction has settled since.
func (p *pass) conflicts(ctx context.Context) error {
	keys := map[string]map[string]bool{}
	for _, n := range p.ledger.ofKind(schema.IncidentConflict) {
		if keys[n.Tenant] == nil {
			settled, err := p.o.Store.Corrected(ctx, n.Tenant)
			if err != nil {
				return err
			}
			keys[n.Tenant] = make(map[string]bool, len(settled))
			for k := range settled {
				keys[n.Tenant][conflictKey(k[0], k[1])] = true
			}
		}
		if keys[n.Tenant][n.Key] {
			p.ledger.ended(n, "it was corrected")
		}
	}
	return nil
}
