package consumer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// A correction marks the identity that it is about, and the minutes of the event
// that it puts in place of it; both before it is settled.
func TestMarksOfCorrections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storage{}
		s := start(t, store, Options{At: store.note})
		instead := usage(7)
		instead.Source, instead.EndMs = "finance/li", instead.EndMs+1
		a := schema.Address{Tenant: "default", Source: "finance/li", Kind: "correction"}
		for i, c := range []*schema.Correction{
			{CorrectsSource: "agent/1", CorrectsID: "1", Action: "retract"},
			{CorrectsSource: "agent/1", CorrectsID: "2", Action: "replace", Replacement: &schema.Event{Usage: &instead}},
			{CorrectsSource: "agent/1", CorrectsID: "1", Action: "retract"},
		} {
			c.Source, c.ID, c.Actor = "finance/li", string(rune('a'+i)), "li"
			s.in <- s.delivery(a.Subject(), schema.ContentTypeEvent, schema.EncodeEvent(&schema.Event{Correction: c}))
		}
		time.Sleep(time.Second)
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		want := []string{AtBeforeInsert, "raw 3", AtRawBeforeDirty, "marks 3", AtDirtyBeforeAck}
		if len(s.steps) < len(want) || !slices.Equal(s.steps[:len(want)], want) {
			t.Errorf("steps %q, want %q first", s.steps, want)
		}
		var identities, minutes []uint64
		for _, m := range s.marks {
			if m.Grain == schema.GrainIdentity && m.Tenant == "default" && m.WindowMs == 0 {
				identities = append(identities, m.Units...)
			} else if m.Grain == schema.GrainMinute {
				minutes = append(minutes, m.Units...)
			}
		}
		if !slices.Equal(identities, []uint64{schema.IdentityHash(schema.Identity{Source: "agent/1", ID: "1"}), schema.IdentityHash(schema.Identity{Source: "agent/1", ID: "2"})}) {
			t.Errorf("identities %v are marked", identities)
		}
		if hash := schema.UnitHash(instead.Unit); !slices.Equal(minutes, []uint64{hash, hash}) {
			t.Errorf("units %v are marked, want that of the replacement in both of its minutes", minutes)
		}
	})
}
