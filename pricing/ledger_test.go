package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// books is a ledger as storage keeps it: an entry that is there already is not there
// twice.
type books map[string]Posting

func (b books) put(list []Posting) {
	for _, p := range list {
		b[p.ID] = p
	}
}

// posted is what the ledger says of its lines.
func (b books) posted() (list []Posted) {
	at := map[string]int{}
	for _, p := range b {
		i, known := at[p.Line]
		if !known {
			i = len(list)
			at[p.Line] = i
			list = append(list, Posted{Line: p.Line})
		}
		list[i].Entries++
		list[i].HorizonMs = max(list[i].HorizonMs, p.HorizonMs)
		if p.Of != nil {
			list[i].Instance = p.Of.Instance
		}
	}
	return list
}

func (b books) net() *big.Rat {
	sum := new(big.Rat)
	billed := map[string]*big.Rat{}
	for _, p := range b {
		if p.Of != nil {
			billed[p.Line] = p.Of.Billed
		}
	}
	for _, p := range b {
		if p.Reversal {
			sum.Sub(sum, billed[p.Line])
		} else {
			sum.Add(sum, billed[p.Line])
		}
	}
	return sum
}

// Whatever is rated when, by however many at once and however often they die: in the
// end the ledger says what the lines do, booking again books nothing, and no entry that
// was ever made has changed.
func TestLedgerSaysWhatLinesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger := books{}
		var lines []Line
		for round := range rapid.IntRange(1, 6).Draw(t, "rounds") {
			lines = nil
			for k := range rapid.IntRange(0, 4).Draw(t, "lines") {
				lines = append(lines, Line{
					Category: CategoryUsage, Meter: MeterGPU, Instance: fmt.Sprint("i", k%2), Span: Span{int64(k) * hourMs, int64(k+1) * hourMs},
					Billed: big.NewRat(rapid.Int64Range(0, 3).Draw(t, "amount"), 3),
				})
			}
			postings := Post(lines, ledger.posted(), int64(round+1)*dayMs)
			others := Post(lines, ledger.posted(), int64(round+1)*dayMs) // somebody else at the same time
			if n := rapid.IntRange(0, len(postings)).Draw(t, "stored before it died"); rapid.Bool().Draw(t, "dies") {
				ledger.put(postings[:n])
				postings = Post(lines, ledger.posted(), int64(round+1)*dayMs)
			}
			before := len(ledger)
			ledger.put(postings)
			ledger.put(others)
			if len(ledger) > before+len(postings) {
				t.Fatalf("two who booked the same made %d entries of %d", len(ledger)-before, len(postings))
			}
			if again := Post(lines, ledger.posted(), int64(round+1)*dayMs); len(again) > 0 {
				t.Fatalf("booked again: %+v", again)
			}
			want := new(big.Rat)
			for i := range lines {
				want.Add(want, lines[i].Billed)
			}
			if got := ledger.net(); got.Cmp(want) != 0 {
				t.Fatalf("round %d: the ledger bills %s, the lines %s", round, got, want)
			}
		}
	})
}

// Only what was booked before is a correction.
func TestCorrectionsAreOfBookedTime(t *testing.T) {
	day := func(n int64, amount int64) Line {
		return Line{Category: CategoryUsage, Meter: MeterGPU, Instance: "i", Span: Span{n * dayMs, (n + 1) * dayMs}, Billed: big.NewRat(amount, 1)}
	}
	ledger := books{}
	flags := func(lines []Line, horizon int64) string {
		list := Post(lines, ledger.posted(), horizon)
		ledger.put(list)
		n := 0
		for _, p := range list {
			if p.Correction {
				n++
			}
		}
		return fmt.Sprint(len(list), " entries, ", n, " corrections")
	}
	for i, c := range []struct {
		lines   []Line
		horizon int64
		want    string
	}{
		{[]Line{day(0, 1)}, dayMs, "1 entries, 0 corrections"},
		{[]Line{day(0, 1), day(1, 1)}, 2 * dayMs, "1 entries, 0 corrections"},
		{[]Line{day(0, 2), day(1, 1)}, 2 * dayMs, "2 entries, 2 corrections"},
		{[]Line{day(0, 1), day(1, 1)}, 2 * dayMs, "2 entries, 2 corrections"}, // back to what it was
		{slices.Clone([]Line{day(1, 1)}), 2 * dayMs, "1 entries, 1 corrections"},
	} {
		if got := flags(c.lines, c.horizon); got != c.want {
			t.Errorf("step %d: %s, want %s", i, got, c.want)
		}
	}
}
