package pricing

import (
	"flag"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/pricing-acceptance.md anew")

const acceptancePage = "../docs/pricing-acceptance.md"

// row is one vector, factor, clause, mode or worked example. What the package can
// compute it computes, by calling the functions that bills are made with; a row that
// it cannot says what it waits for.
type row struct {
	id, what string
	inputs   string
	by       string // the functions that compute it
	guide    string // what the guides say, for examples
	verdict  string // and how that compares with their own tables
	check    func(c *checker)
	waits    string
}

// checker compares what is computed with what the row says, and keeps the latter for
// the page.
type checker struct {
	t      *testing.T
	id     string
	values []string
}

// is asserts an exact value, written as a decimal or a fraction.
func (c *checker) is(what string, got *big.Rat, want string) {
	c.t.Helper()
	exact := rat(want)
	if got == nil || got.Cmp(exact) != 0 {
		text := "nothing"
		if got != nil {
			text = Exact(got)
		}
		c.t.Errorf("%s: %s is %s, want %s", c.id, what, text, want)
	}
	text := Exact(exact)
	if strings.Contains(text, "/") {
		text += " (" + exact.FloatString(6) + ")"
	}
	c.values = append(c.values, what+" "+text)
}

// part asserts an exact part of something, which the page shows in percent.
func (c *checker) part(what string, got *big.Rat, want string) {
	c.t.Helper()
	exact := rat(want)
	if got.Cmp(exact) != 0 {
		c.t.Errorf("%s: %s is %s, want %s", c.id, what, Exact(got), want)
	}
	percent := new(big.Rat).Mul(exact, big.NewRat(100, 1))
	text := percent.FloatString(4)
	if _, finite := percent.FloatPrec(); finite {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	c.values = append(c.values, what+" "+text+" %")
}

// says asserts a text.
func (c *checker) says(what, got, want string) {
	c.t.Helper()
	if got != want {
		c.t.Errorf("%s: %s is %q, want %q", c.id, what, got, want)
	}
	c.values = append(c.values, what+" "+want)
}

// inside asserts that the guide's number lies in a range, and beyond that it does not:
// that is what the verdicts RANGE and OFF stand for.
func (c *checker) inside(guide string, low, high *big.Rat) {
	c.t.Helper()
	if g := rat(guide); g.Cmp(low) < 0 || g.Cmp(high) > 0 {
		c.t.Errorf("%s: the guide's %s is not within %s to %s", c.id, guide, Exact(low), Exact(high))
	}
}

func (c *checker) beyond(guide string, low, high *big.Rat) {
	c.t.Helper()
	if g := rat(guide); g.Cmp(low) >= 0 && g.Cmp(high) <= 0 {
		c.t.Errorf("%s: the guide's %s is within %s to %s", c.id, guide, Exact(low), Exact(high))
	}
}

// What follows calls one function of the package each, with what all rows share: a
// month of 720 h from 1 April 2026 on, in UTC.

var monthStart = ms("2026-04-01T00:00:00Z")

func hours(n int64) Span { return Span{monthStart, monthStart + n*hourMs} }

// bookOf has one price for everything, exact.
func bookOf(perHour *big.Rat) *Book {
	b, _ := newBook("CNY", []Entry{{Model: AnyModel, PerGPUHour: perHour, FromMs: Always, ToMs: Forever}})
	return b
}

// charges are what so many GPUs cost for so many hours, by the second.
func (c *checker) charges(perHour string, gpus, n int64, rules ...Adjustment) []Charge {
	tariff := &Tariff{Profile: profileOf(c.t, ""), Book: bookOf(rat(perHour)), Adjust: func(*Segment, int64) []Adjustment { return rules }}
	return tariff.Rate(&Rental{Instance: "i", Segments: []Segment{{Span: hours(n), State: "running", Model: "m", Gpus: gpus}}})
}

func (c *checker) cost(perHour string, gpus, n int64, rules ...Adjustment) *big.Rat {
	return costOf(c.charges(perHour, gpus, n, rules...))
}

func costOf(list []Charge) *big.Rat {
	sum := new(big.Rat)
	for i := range list {
		sum.Add(sum, list[i].Cost)
	}
	return sum
}

func billedOf(list []Charge) *big.Rat {
	sum := new(big.Rat)
	for i := range list {
		sum.Add(sum, list[i].Billed)
	}
	return sum
}

// bought is what a commitment for so many cycles of a term costs.
func bought(perGPU string, gpus int64, term Term, until string) *big.Rat {
	c := &Commitment{Gpus: gpus, Span: Span{monthStart, ms(until + "T00:00:00Z")}, Term: term, Price: rat(perGPU)}
	sum := new(big.Rat)
	for _, p := range c.Cover(nil, running, time.UTC).Purchases {
		sum.Add(sum, p.Cost)
	}
	return sum
}

// monthly is one month of a plan for so many GPUs.
func monthly(perGPU string, gpus int64) *big.Rat {
	return bought(perGPU, gpus, TermMonth, "2026-05-01")
}

// perHour is what a GPU-hour costs of something that has a price as a whole.
func perHour(fee string, gpuHours int64) *big.Rat {
	q := Quote{Fee: rat(fee)}
	return q.PerHour(gpuHours * hourMs)
}

// adjusted is a price after rules.
func adjusted(price *big.Rat, rules ...Adjustment) *big.Rat {
	after, _ := Adjust(price, rules)
	return after
}

func rule(stage Stage, kind Kind, value string) Adjustment {
	return Adjustment{ID: stage.String(), Stage: stage, Kind: kind, Value: rat(value)}
}

// cheaper is how much cheaper the cheaper one is, of the dearer one.
func cheaper(a, b *big.Rat) *big.Rat { return Spread([]*big.Rat{a, b}) }

// dearer is how much dearer a is than b, of b.
func dearer(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(new(big.Rat).Quo(a, b), one) }

func pays(plan *big.Rat, hourly string, termHours int64) (hours *big.Rat, text string) {
	hours, never := BreakEven(plan, rat(hourly), termHours)
	if never {
		return hours, "never"
	}
	return hours, "yes"
}

// named are all ids of the requirements; a letter behind one of them is a part of it.
func named() (list []string) {
	list = strings.Fields("V01 V02 V04 V06 V07 V08 V11 V12 V14 V15 V17")
	for _, group := range []struct {
		letter string
		last   int
	}{{"F", 14}, {"C", 13}, {"M", 13}} {
		for i := range group.last {
			list = append(list, fmt.Sprint(group.letter, i+1))
		}
	}
	return append(list, strings.Fields(`E01 E02 E04 E04b E06 E07 E08a E08b E09 E10 E11 E12 E13 E14 E15 E16 E17 E18 E19 E20
		E21 E21b E22a E22b E23 E24 E25 E26 E27 E28 E29 E30 E32 E33 E34 E35 E42`)...)
}

func acceptanceRows() []row {
	rows := slices.Concat(vectorRows(), factorRows(), clauseRows(), modeRows(), exampleRows(), laterExampleRows())
	bills := wholeBills()
	own := billRows()
	for i := range rows { // those of billRows at their places
		if n := slices.IndexFunc(own, func(r row) bool { return r.id == rows[i].id && rows[i].what == "" }); n >= 0 {
			rows[i] = own[n]
		}
		if whole := bills[rows[i].id]; whole != nil {
			steps := rows[i].check
			rows[i].check = func(c *checker) { steps(c); whole(c) }
			rows[i].by += " Terms.Rate"
		}
	}
	return rows
}

// Nothing that the requirements name is left out, and nothing is there twice.
func TestAcceptanceIsComplete(t *testing.T) {
	want, rows := named(), map[string]bool{}
	for _, r := range acceptanceRows() {
		if rows[r.id] {
			t.Errorf("%s is there twice", r.id)
		}
		rows[r.id] = true
		if whole := strings.TrimRight(r.id, "abcdefgh"); !slices.Contains(want, r.id) && !slices.Contains(want, whole) {
			t.Errorf("%s is named nowhere", r.id)
		}
		example := r.id[0] == 'E'
		switch {
		case (r.check == nil) == (r.waits == ""):
			t.Errorf("%s has to be computed or to wait for something, and not both", r.id)
		case r.check != nil && (r.by == "" || r.inputs == ""):
			t.Errorf("%s does not say what it is computed from and with", r.id)
		case example != (r.verdict != "") || example != (r.guide != ""):
			t.Errorf("%s: the guide says %q, the verdict is %q", r.id, r.guide, r.verdict)
		case example && !slices.Contains([]string{"OK", "RANGE", "OFF", "UNDER", "–"}, strings.Trim(strings.Fields(r.verdict)[0], ":,;")):
			t.Errorf("%s has the verdict %q", r.id, r.verdict)
		}
	}
	for _, id := range want {
		if !rows[id] && !rows[id+"a"] {
			t.Errorf("%s has no row", id)
		}
	}
	if len(want) != 88 {
		t.Errorf("%d ids are named", len(want))
	}
}

// TestAcceptance computes every row and compares docs/pricing-acceptance.md with it.
func TestAcceptance(t *testing.T) {
	var tables strings.Builder
	var pending []row
	computed := 0
	letter := byte(0)
	for _, r := range acceptanceRows() {
		if r.waits != "" {
			pending = append(pending, r)
			continue
		}
		if r.id[0] != letter {
			letter = r.id[0]
			tables.WriteString(heading[letter])
		}
		computed++
		c := &checker{t: t, id: r.id}
		r.check(c)
		if len(c.values) == 0 {
			t.Errorf("%s asserts nothing", r.id)
		}
		cells := []string{r.id, r.what, r.inputs, strings.Join(c.values, "; ")}
		if letter == 'E' {
			cells = append(cells, r.guide, r.verdict)
		}
		cells = append(cells, "`"+strings.ReplaceAll(r.by, " ", "`, `")+"`")
		tables.WriteString(line(cells...))
	}
	tables.WriteString("\n## Pending\n\n| id | what it is | waits for |\n|---|---|---|\n")
	var reasons []string
	for _, r := range pending {
		tables.WriteString(line(r.id, r.what, r.waits))
		reasons = append(reasons, r.id+" ("+r.waits+")")
	}
	fmt.Fprintf(&tables, "\n%d rows are computed, %d are pending.\n\n", computed, len(pending))
	t.Logf("%d rows are computed, %d are pending: %s", computed, len(pending), strings.Join(reasons, ", "))
	if t.Failed() {
		return
	}
	comparePage(t, tables.String())
}

const (
	columns = "| id | what it is | inputs | recomputed | by |\n|---|---|---|---|---|\n"
	begin   = "<!-- tables: written by go test ./pricing -run TestAcceptance -update -->\n"
	end     = "<!-- end of tables -->\n"
)

var heading = map[byte]string{
	'V': "\n## Vectors\n\n" + columns,
	'F': "\n## Factors\n\n" + columns,
	'C': "\n## Clauses\n\n" + columns,
	'M': "\n## Modes\n\n" + columns,
	'E': "\n## Worked examples\n\n| id | what it is | inputs | recomputed | guide says | verdict | by |\n|---|---|---|---|---|---|---|\n",
}

var bar = regexp.MustCompile(`\|`)

func line(cells ...string) string {
	for i := range cells {
		cells[i] = bar.ReplaceAllString(cells[i], `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// comparePage puts the tables between their marks and leaves the rest of the page.
func comparePage(t *testing.T, tables string) {
	t.Helper()
	old, err := os.ReadFile(acceptancePage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("docs/pricing-acceptance.md has lost the marks of its tables")
	}
	page := before + begin + tables + end + after
	switch {
	case page == string(old):
	case *update:
		if err := os.WriteFile(acceptancePage, []byte(page), 0o644); err != nil {
			t.Error(err)
		}
	default:
		was, is := strings.Split(string(old), "\n"), strings.Split(page, "\n")
		n := 0
		for n < min(len(was), len(is)) && was[n] == is[n] {
			n++
		}
		t.Errorf("docs/pricing-acceptance.md does not say what is computed; go test ./pricing -run TestAcceptance -update writes it anew\nline %d\n%s", n+1, is[min(n, len(is)-1)])
	}
}
