package pricing

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// anyOf draws a bill under one of the shipped profiles.
func anyOf(t *rapid.T, profiles []*Profile) drawn {
	return anyBill(t, profiles[rapid.IntRange(0, len(profiles)-1).Draw(t, "profile")])
}

func everyProfile(t *testing.T) []*Profile {
	t.Helper()
	profiles, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	return profiles
}

// totals are what lines say together, apart for everything that a report may ask for.
func totalsOf(lines []Line) map[string]string {
	sums := map[string]*[4]big.Rat{}
	times := map[string]int64{}
	for i := range lines {
		l := &lines[i]
		key := fmt.Sprintf("%s %s %s %s %s %s unpriced=%t", l.Category, l.Status, l.Meter, l.Instance, l.Commitment, l.Segment.Project, l.Billed == nil)
		times[key] += l.BillableMs * max(1, l.Segment.Gpus)
		if sums[key] == nil {
			sums[key] = &[4]big.Rat{}
		}
		for k, x := range []*big.Rat{l.ListCost, l.Cost, l.Billed, l.Effective} {
			if x != nil {
				sums[key][k].Add(&sums[key][k], x)
			}
		}
	}
	out := map[string]string{}
	for key, s := range sums {
		if times[key] == 0 && s[0].Sign() == 0 && s[1].Sign() == 0 && s[2].Sign() == 0 && s[3].Sign() == 0 {
			continue // lines that say that nothing is charged may be as many as they are
		}
		out[key] = fmt.Sprint(times[key], &s[0], &s[1], &s[2], &s[3])
	}
	return out
}

func sameTotals(got, want map[string]string) string {
	for key, w := range want {
		if got[key] != w {
			return fmt.Sprintf("%s: %s, want %s", key, got[key], w)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			return fmt.Sprintf("%s: %s, want nothing", key, got[key])
		}
	}
	return ""
}

// Cutting anywhere changes no total, and neither does telling a state in two events.
func TestCutsChangeNoBill(t *testing.T) {
	profiles := everyProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		d := anyOf(t, profiles)
		want := totalsOf(d.terms.Rate(d.usage))
		cut := *d.usage
		cut.Rentals = nil
		for _, r := range d.usage.Rentals {
			halves := &Rental{Instance: r.Instance}
			for _, s := range r.Segments {
				at := s.FromMs + s.Ms()/2
				if s.Ms() < 2 || !rapid.Bool().Draw(t, "halve") {
					halves.Segments = append(halves.Segments, s)
					continue
				}
				first, second := s, s
				first.ToMs, second.FromMs = at, at
				halves.Segments = append(halves.Segments, first, second)
			}
			cut.Rentals = append(cut.Rentals, halves)
			for range rapid.IntRange(0, 3).Draw(t, "cuts") {
				s := r.Segments[rapid.IntRange(0, len(r.Segments)-1).Draw(t, "segment")]
				cut.Cuts = append(cut.Cuts, s.FromMs+rapid.Int64Range(0, max(0, s.Ms())).Draw(t, "at"))
			}
		}
		if diff := sameTotals(totalsOf(d.terms.Rate(&cut)), want); diff != "" {
			t.Fatalf("%s\n%s", diff, d.text())
		}
	})
}

func digests(lines []Line) []string {
	list := make([]string, len(lines))
	for i := range lines {
		list[i] = lines[i].Digest()
	}
	slices.Sort(list)
	return list
}

// The order in which things are told changes no line, rating again gives the same, and
// what goes on on another platform is of no concern.
func TestOrderChangesNoLine(t *testing.T) {
	profiles := everyProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		d := anyOf(t, profiles)
		want := digests(d.terms.Rate(d.usage))
		if again := digests(d.terms.Rate(d.usage)); !slices.Equal(again, want) {
			t.Fatalf("rated again: %v, want %v", again, want)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
		other := *d.usage
		other.Rentals, other.Readings, other.Outages, other.Cuts = slices.Clone(other.Rentals), slices.Clone(other.Readings), slices.Clone(other.Outages), slices.Clone(other.Cuts)
		r.Shuffle(len(other.Rentals), func(i, j int) { other.Rentals[i], other.Rentals[j] = other.Rentals[j], other.Rentals[i] })
		r.Shuffle(len(other.Readings), func(i, j int) { other.Readings[i], other.Readings[j] = other.Readings[j], other.Readings[i] })
		r.Shuffle(len(other.Cuts), func(i, j int) { other.Cuts[i], other.Cuts[j] = other.Cuts[j], other.Cuts[i] })
		if len(other.Rentals) > 0 {
			s := other.Rentals[0].Segments[0]
			s.Platform, s.Model = "elsewhere", "m"
			other.Rentals = append(other.Rentals, &Rental{Instance: "stranger", Segments: []Segment{s}})
		}
		got := slices.DeleteFunc(d.terms.Rate(&other), func(l Line) bool { return l.Instance == "stranger" })
		if list := digests(got); !slices.Equal(list, want) {
			t.Fatalf("%s\nin another order:\n%s", d.text(), linesText(got))
		}
	})
}

// What was bought is used or not, exactly, when all of it has gone by.
func TestUsedAndUnusedArePurchases(t *testing.T) {
	profiles := everyProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		d := anyOf(t, profiles)
		purchases, uses := map[string]*big.Rat{}, map[string]*big.Rat{}
		add := func(to map[string]*big.Rat, key string, x *big.Rat) {
			if to[key] == nil {
				to[key] = new(big.Rat)
			}
			to[key].Add(to[key], x)
		}
		lines := d.terms.Rate(d.usage)
		for i := range lines {
			l := &lines[i]
			switch key := l.Contract + "/" + l.Commitment; {
			case l.Commitment == "":
			case l.Status != "":
				add(uses, key, l.Effective)
			default: // a purchase, or what was given back of one
				add(purchases, key, l.Billed)
			}
		}
		for key, bought := range purchases {
			used := uses[key]
			if used == nil {
				used = new(big.Rat)
			}
			switch c := used.Cmp(bought); {
			case c > 0, c < 0 && d.usage.NowMs == 0:
				t.Fatalf("%s: bought for %s, and its uses are worth %s\n%s\n%s", key, Exact(bought), Exact(used), d.text(), linesText(lines))
			}
		}
	})
}

// What has no price is not 0, and what has one is not unknown.
func TestNoPriceIsNotZero(t *testing.T) {
	profiles := everyProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		d := anyOf(t, profiles)
		lines := d.terms.Rate(d.usage)
		for i := range lines {
			l := &lines[i]
			known := l.Billed != nil
			if (l.Cost != nil) != known || (l.Effective != nil) != known {
				t.Fatalf("half of its amounts are known: %s", linesText(lines[i:i+1]))
			}
			charged := l.Category == CategoryUsage && l.Status == "" && l.BillableMs > 0
			if charged && known != (l.List != nil) {
				t.Fatalf("billed %v at the list price %v: %s", l.Billed, l.List, linesText(lines[i:i+1]))
			}
		}
	})
}

// As time goes by a bill does not become less, unless something is given back. Where a
// started minute or a minimum is billed, it may: it is billed at the price of the last
// moment, and when GPUs are given back meanwhile that is less than it was before.
func TestBillsGrow(t *testing.T) {
	profiles := slices.DeleteFunc(everyProfile(t), func(p *Profile) bool {
		return p.Spot.Refund != "" && p.Spot.Refund != RefundNone || p.Time.Granularity > 1000 || p.Time.Minimum > 0
	})
	if len(profiles) < 8 {
		t.Fatalf("only %d profiles bill by the second", len(profiles))
	}
	rapid.Check(t, func(t *rapid.T) {
		d := anyOf(t, profiles)
		for _, c := range d.terms.Contracts {
			c.Quotes = nil // what one pays for was billed by the hour until it was known
		}
		first, last := int64(Forever), int64(0)
		for _, r := range d.usage.Rentals {
			first, last = min(first, r.Segments[0].FromMs), max(last, r.Segments[len(r.Segments)-1].ToMs)
		}
		if first >= last {
			return
		}
		bill := func(now int64) *big.Rat {
			u := *d.usage
			u.NowMs, u.Rentals = now, nil
			for _, r := range d.usage.Rentals {
				part := &Rental{Instance: r.Instance}
				for _, s := range r.Segments {
					if s.ToMs = min(s.ToMs, now); s.FromMs < now {
						part.Segments = append(part.Segments, s)
					}
				}
				if len(part.Segments) > 0 {
					u.Rentals = append(u.Rentals, part)
				}
			}
			sum := new(big.Rat)
			for _, l := range d.terms.Rate(&u) {
				if l.Billed != nil && l.Category != CategoryCredit && l.Meter == MeterGPU {
					sum.Add(sum, l.Billed)
				}
			}
			return sum
		}
		before := new(big.Rat)
		for k := int64(1); k <= 4; k++ {
			now := first + (last-first)*k/4
			if is := bill(now); is.Cmp(before) < 0 {
				t.Fatalf("%d quarters cost %s, one less cost %s\n%s", k, Exact(is), Exact(before), d.text())
			} else {
				before = is
			}
		}
	})
}
