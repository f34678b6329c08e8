package pricing

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// billOf sums up lines as the oracle does.
func billOf(lines []Line, cuts []int64) tallies {
	bill := tallies{}
	for i := range lines {
		l := &lines[i]
		k := tallyKey{category: l.Category, status: l.Status, meter: l.Meter, instance: l.Instance, commitment: l.Commitment, contract: l.Contract,
			project: l.Segment.Project, state: l.Segment.State, region: l.Segment.Region, model: l.Segment.Model}
		if l.Meter == MeterGPU {
			for _, cut := range cuts {
				if cut <= l.FromMs {
					k.bucket++
				}
			}
		}
		x := bill.of(k)
		if l.Category != CategoryPurchase {
			x.metered += l.MeteredMs
			x.excluded += l.ExcludedMs
			x.billable += l.BillableMs
			if l.Meter == MeterGPU {
				x.gpus += l.MeteredMs * l.Segment.Gpus
			}
			if l.Rework {
				x.lost += l.MeteredMs
			}
			if l.ListCost == nil && l.Cost != nil {
				x.unlisted += l.MeteredMs
			}
		}
		if l.Quantity != nil {
			x.quantity.Add(&x.quantity, l.Quantity)
		}
		if l.Cost == nil {
			x.unpriced += l.BillableMs
			continue
		}
		if l.ListCost != nil {
			x.list.Add(&x.list, l.ListCost)
		}
		x.cost.Add(&x.cost, l.Cost)
		rounded := k
		switch {
		case l.Category == CategoryUsage && l.Meter == MeterGPU && l.Commitment == "":
			rounded = tallyKey{category: CategoryUsage, meter: MeterGPU, instance: l.Instance}
		case l.Category == CategoryCredit:
			rounded = tallyKey{category: CategoryCredit, meter: MeterGPU, instance: l.Instance, contract: l.Contract}
			fallthrough
		default:
			x.effective.Add(&x.effective, l.Effective)
		}
		rounded.billed, rounded.bucket = true, 0
		x = bill.of(rounded)
		x.billed.Add(&x.billed, l.Billed)
	}
	return bill
}

// difference names what differs, or nothing.
func difference(got, want tallies) string {
	var keys []tallyKey
	for k := range got {
		keys = append(keys, k)
	}
	for k := range want {
		if got[k] == nil {
			keys = append(keys, k)
		}
	}
	var list []string
	for _, k := range keys {
		if is, should := got.of(k).text(), want.of(k).text(); is != should {
			list = append(list, fmt.Sprintf("%+v\n  is     %s\n  oracle %s\n", k, is, should))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "")
}

// tooMany says where lines are about more GPUs than their instance has, or fewer.
func tooMany(u *Usage, lines []Line) string {
	type change struct{ at, gpus int64 }
	changes := map[string][]change{}
	for i := range lines {
		l := &lines[i]
		if l.Category == CategoryUsage && l.Meter == MeterGPU && l.Instance != "" && l.Per != perInstanceHour {
			changes[l.Instance] = append(changes[l.Instance], change{l.FromMs, l.Segment.Gpus}, change{l.ToMs, -l.Segment.Gpus})
		}
	}
	for _, r := range u.Rentals {
		list := changes[r.Instance]
		slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.at, b.at) })
		gpus := int64(0)
		for i, c := range list {
			gpus += c.gpus
			if i+1 < len(list) && list[i+1].at == c.at {
				continue
			}
			has := int64(0)
			bare := false
			for k := range r.Segments {
				if s := &r.Segments[k]; s.FromMs <= c.at && c.at < s.ToMs && provided(s.State) {
					has = s.Gpus
					bare = s.State == "running_no_gpu"
				}
			}
			if gpus != has && !bare {
				return fmt.Sprintf("at %d the lines of %s are about %d GPUs, and it has %d", c.at, r.Instance, gpus, has)
			}
		}
	}
	return ""
}

// drawn is a bill to be rated, all instants of which are multiples of ms.
type drawn struct {
	terms *Terms
	usage *Usage
	ms    int64
}

// draw is what makes one.
type draw struct {
	*rapid.T
	profile  *Profile
	from, ms int64
	length   int64 // of all, in multiples of ms
	platform string
}

func (d *draw) one(name string, list ...string) string {
	return rapid.SampledFrom(list).Draw(d.T, name)
}

func (d *draw) often(name string, percent int) bool {
	return rapid.IntRange(0, 99).Draw(d.T, name) < percent
}

func (d *draw) instant(name string) int64 {
	return d.from + rapid.Int64Range(0, d.length).Draw(d.T, name)*d.ms
}

func (d *draw) span(name string) Span {
	a, b := d.instant(name), d.instant(name+" to")
	if a == b {
		b += d.ms
	}
	return Span{min(a, b), max(a, b)}
}

func (d *draw) amount(name string, list ...string) *big.Rat { return rat(d.one(name, list...)) }

func (d *draw) book() *Book {
	at := func(name string) string { return time.UnixMilli(d.instant(name)).UTC().Format(time.RFC3339) }
	text := "currency: CNY\nprices:\n  - {model: m, per_gpu_hour: \"7.77\"}\n  - {model: n, region: r, per_gpu_hour: \"18\"}\n"
	change := at("a new price")
	text += fmt.Sprintf("  - {model: n, platform: %q, per_gpu_hour: \"6.1\", valid_to: %q}\n  - {model: n, platform: %q, per_gpu_hour: \"9\", valid_from: %q}\n", d.platform, change, d.platform, change)
	if d.often("another price", 50) {
		text += fmt.Sprintf("  - {model: \"*\", platform: q, per_gpu_hour: \"0.5\", valid_from: %q}\n", at("from"))
	}
	if d.often("a special price", 50) {
		text += fmt.Sprintf("  - {model: m, platform: %q, region: r, per_gpu_hour: %q, valid_to: %q}\n", d.platform, d.one("special", "0", "2", "12.5"), at("until"))
	}
	book, err := Parse("prices.yaml", []byte(text))
	if err != nil {
		d.Fatal(err)
	}
	return book
}

func (d *draw) rentals() (list []*Rental) {
	for i := range rapid.IntRange(1, 5).Draw(d.T, "rentals") {
		r := &Rental{Instance: fmt.Sprint("i", 9-i)}
		at := d.from + rapid.Int64Range(0, d.length/2).Draw(d.T, "start")*d.ms
		platform := d.one("platform", d.platform, d.platform, d.platform, "q")
		for range rapid.IntRange(1, 4).Draw(d.T, "segments") {
			s := Segment{
				State: d.one("state", "running", "running", "running", "stopping", "running_no_gpu", "interrupted", "stopped_keep", "stopped_free", "provisioning", "released"),
				Gpus:  rapid.Int64Range(0, 8).Draw(d.T, "gpus"), Model: d.one("model", "m", "m", "n", "x"), Platform: platform, Region: d.one("region", "", "", "r"),
				Project: d.one("project", "a", "b", "c"), Plan: d.one("plan", "", PlanSpot), Tenancy: d.one("tenancy", "", "dedicated"),
			}
			length := rapid.Int64Range(1, max(2, d.length/4)).Draw(d.T, "length")
			if s.State == "interrupted" && d.often("at once", 50) {
				length = 0
			}
			s.Span = Span{at, at + length*d.ms}
			r.Segments = append(r.Segments, s)
			at = s.ToMs
			if d.often("gap", 10) {
				at += 3 * d.ms
			}
			if d.often("moves", 5) {
				platform = d.one("to", d.platform, "q")
			}
		}
		list = append(list, r)
	}
	return list
}

func (d *draw) rules() (list []Rule) {
	ids := []string{"r4", "r2", "r3", "r1"}
	for i := range rapid.IntRange(0, 4).Draw(d.T, "rules") {
		r := Rule{ID: ids[i], Stage: StageDoc(d.one("stage", stageNames[1:]...))}
		value := d.amount("value", "0.15", "0.2", "0.65", "1")
		switch d.one("kind", "uplift", "discount", "factor", "fixed") {
		case "uplift":
			r.Uplift = value
		case "discount":
			r.Discount = value
		case "factor":
			r.Factor = value
		default:
			r.Fixed = new(big.Rat).Mul(value, big.NewRat(10, 1))
		}
		if r.Stage == "cap" {
			r.Uplift, r.Discount, r.Factor, r.Fixed, r.Cap = nil, nil, nil, nil, rat("7")
		} else if r.Fixed == nil && r.Factor == nil && slices.Index(stageNames[:], string(r.Stage)) >= int(StageVolume) {
			r.Additive = d.often("additive", 50)
		}
		if d.often("for a model", 30) {
			r.Models = []string{"m"}
		}
		if d.often("for projects", 20) {
			r.Projects = []string{"a", "b"}
		}
		if d.often("for a tenancy", 10) {
			r.Tenancies = []string{"dedicated"}
		}
		if d.often("enough", 40) {
			r.MinGpus = rapid.Int64Range(1, 20).Draw(d.T, "min_gpus")
		}
		if d.often("with a meter", 20) {
			r.With = append(r.With, "storage_byte_seconds")
		}
		if i > 0 && d.often("with a rule", 20) {
			r.With = append(r.With, ids[i-1])
		}
		if d.often("for a time", 30) {
			s := d.span("valid")
			r.From, r.To = Instant(s.FromMs), Instant(s.ToMs)
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) }) // what is needed may come later
	return list
}

func (d *draw) contract(id string) *Contract {
	c := &Contract{ID: id, Platform: d.platform, Currency: "CNY", From: Instant(d.from - d.ms), To: Instant(d.from + (d.length+1)*d.ms), Rules: d.rules()}
	if d.often("a part", 20) {
		s := d.span("contract")
		c.From, c.To = Instant(s.FromMs), Instant(s.ToMs)
	}
	within := func(name string) (from, to Instant) {
		if d.often(name, 50) {
			return 0, 0
		}
		s := d.span(name)
		from, to = max(Instant(s.FromMs), c.From), min(Instant(s.ToMs), c.To)
		if from >= to {
			return 0, 0
		}
		return from, to
	}
	for i := range rapid.IntRange(0, 3).Draw(d.T, "commitments") {
		x := CommittedDoc{ID: fmt.Sprint(id, "-c", i), Model: d.one("model", "m", "n"), Region: d.one("region", "", "", "r"), Project: d.one("owner", "", "a", "b"),
			Gpus: rapid.Int64Range(1, 12).Draw(d.T, "gpus"), Term: Term(d.one("term", "hour", "day", "week", "month")), Day: DayCycle(d.one("day", "", "calendar")), PerGPU: d.amount("per gpu", "3", "700", "0.1")}
		x.From, x.To = within("committed")
		if d.often("for one tenancy", 20) {
			x.Tenancy = d.one("tenancy", "dedicated", "shared")
		}
		if d.often("in parts", 20) {
			x.Term, x.Payment = Term(d.one("long term", "quarter", "quarter", "year")), Payment(d.one("payment", "upfront", "monthly", "partial"))
			if x.Payment == PayPartial {
				x.Down = d.amount("down", "0.3", "0.01")
			}
		}
		c.Commitments = append(c.Commitments, x)
	}
	for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(d.T, "quotes") {
		x := Quote{ID: fmt.Sprint(id, "-q", i), Project: d.one("project", "a", "b"), Fee: d.amount("fee", "100", "0", "7")}
		if d.often("gpu hours", 60) {
			x.GPUHours = big.NewRat(rapid.Int64Range(1, 8*d.length).Draw(d.T, "hours")*d.ms, 7*hourMs)
		}
		x.From, x.To = within("job")
		c.Quotes = append(c.Quotes, x)
	}
	for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(d.T, "credits") {
		x := CreditDoc{ID: fmt.Sprint(id, "-s", i), Project: d.one("for project", "", "a"), Region: d.one("for region", "", "r"), Amount: d.amount("credit", "100", "7"), Reason: "subsidy"}
		if x.From, x.To = within("subsidised"); d.often("at once", 30) {
			x.At, x.From, x.To = max(c.From, x.From), 0, 0
		}
		c.Credits = append(c.Credits, x)
	}
	if d.often("meters", 50) {
		c.Meters = append(c.Meters, MeterPrice{"egress_bytes", Unit(d.one("unit", "GB", "GiB")), rat("0.5")}, MeterPrice{"storage_byte_seconds", UnitGBHour, rat("0.01")})
	}
	if d.often("sla", 60) {
		c.SLA = &SLA{Target: d.amount("target", "0.999", "0.99", "0.9999"), Ratio: d.amount("ratio", "2", "0.5"), Form: CreditForm(d.one("form", "", "money", "hours")), Trigger: SLATrigger(d.one("trigger", "any", "below_target"))}
		if d.often("at most", 50) {
			c.SLA.Most = d.amount("most", "0.01", "0.3", "1")
		}
	}
	if d.often("checkpoints", 30) {
		c.Clauses.Checkpoint = Length(2 * d.ms * rapid.Int64Range(1, 50).Draw(d.T, "checkpoint"))
	}
	return c
}

func (d *draw) readings() (list []Reading) {
	for range rapid.IntRange(0, 3).Draw(d.T, "readings") {
		m := Reading{Span: d.span("reading"), Meter: d.one("meter", "egress_bytes", "storage_byte_seconds", "storage_other"), Quantity: d.amount("quantity", "3000000000", "1", "0"),
			Instance: d.one("of", "", "i9", "i8"), Project: d.one("project", "a", "b"), Platform: d.one("platform", d.platform, d.platform, "q"), Region: d.one("region", "", "r")}
		if d.often("at once", 5) {
			m.ToMs = m.FromMs
		}
		list = append(list, m)
	}
	return list
}

func (d *draw) outages() (list []Outage) {
	for range rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(d.T, "outages") {
		o := Outage{Span: d.span("outage"), Platform: d.one("platform", "", d.platform, "q"), Region: d.one("region", "", "", "r"), Instance: d.one("instance", "", "", "i9", "i8"), Reason: d.one("reason", "power", "network")}
		if d.often("short", 60) {
			o.ToMs = o.FromMs + rapid.Int64Range(1, 6).Draw(d.T, "length")*d.ms
		}
		list = append(list, o)
	}
	return list
}

// anyBill draws what a platform with these rules is to bill.
func anyBill(t *rapid.T, f *Profile) drawn {
	d := &draw{T: t, profile: f, platform: f.Platform}
	d.ms = rapid.SampledFrom([]int64{10_000, 60_000, 600_000}).Draw(t, "ms")
	d.length = rapid.Int64Range(20, 200).Draw(t, "length")
	d.from = ms(rapid.SampledFrom(remarkable[f.Zone.String()]).Draw(t, "near")) - rapid.Int64Range(0, d.length).Draw(t, "before")*d.ms
	u := &Usage{Rentals: d.rentals(), Readings: d.readings(), Outages: d.outages()}
	terms := &Terms{Book: d.book(), Profiles: []*Profile{f}}
	for _, id := range []string{"one", "two"}[:rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "contracts")] {
		terms.Contracts = append(terms.Contracts, d.contract(id))
	}
	for range rapid.IntRange(0, 3).Draw(t, "cuts") {
		u.Cuts = append(u.Cuts, d.instant("cut"))
	}
	if d.often("now", 40) || d.long(terms) {
		u.NowMs = d.instant("now") + d.ms
		endNow(u)
	}
	return drawn{terms, u, d.ms}
}

// long says whether cycles are too long to walk to their ends.
func (d *draw) long(terms *Terms) bool {
	for _, c := range terms.Contracts {
		for i := range c.Commitments {
			hours := map[Term]int64{TermHour: 1, TermDay: 24, TermWeek: 168, TermMonth: 744, TermQuarter: 2232, TermYear: 8784}[c.Commitments[i].Term]
			if hours*hourMs > 400*d.ms {
				return true
			}
		}
	}
	return false
}

// endNow lets rentals end now.
func endNow(u *Usage) {
	var rentals []*Rental
	for _, r := range u.Rentals {
		cut := &Rental{Instance: r.Instance}
		for _, s := range r.Segments {
			if s.FromMs < u.NowMs || s.FromMs == u.NowMs && s.ToMs == u.NowMs {
				s.ToMs = min(s.ToMs, u.NowMs)
				cut.Segments = append(cut.Segments, s)
			}
		}
		if len(cut.Segments) > 0 {
			rentals = append(rentals, cut)
		}
	}
	u.Rentals = rentals
}

// tickProfile draws rules whose lengths are multiples of ms.
func tickProfile(t *rapid.T) func(ms int64) *Profile {
	f := anyProfile(t)
	granularity, minimum, within := rapid.SampledFrom([]int64{0, 2, 7, 60}).Draw(t, "ticks"), rapid.SampledFrom([]int64{4, 90}).Draw(t, "minimum ticks"), rapid.SampledFrom([]int64{0, 30}).Draw(t, "within ticks")
	return func(ms int64) *Profile {
		if f.Time.Granularity > 0 && granularity > 0 {
			f.Time.Granularity = Length(granularity * ms)
		} else {
			f.Time.Granularity, f.Time.Rounding, f.Time.Per = 0, "", ""
		}
		if f.Time.Minimum > 0 {
			f.Time.Minimum = Length(minimum * ms)
		}
		if f.Spot.Within > 0 {
			f.Spot.Within = Length(within * ms)
		}
		if slices.Contains(f.Billed.Compute, "running") {
			f.Billed.Storage = []State{"running"}
		}
		return f
	}
}

// Every profile that comes with the program, and others: whole bills are what walking
// over all instances, a second after the other, gives.
func TestBillAgreesWithTheOracle(t *testing.T) {
	profiles, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	bills, lines := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for i := range len(profiles) + 8 {
			var d drawn
			if i < len(profiles) {
				d = anyBill(t, profiles[i])
			} else {
				fit := tickProfile(t)
				d = anyBill(t, fit(10_000))
				fit(d.ms)
			}
			got := d.terms.Rate(d.usage)
			want := oracleBill(d.terms, d.usage, d.ms)
			if diff := difference(billOf(got, d.usage.Cuts), want); diff != "" {
				t.Fatalf("%s\n%s\n%s", diff, d.text(), linesText(got))
			}
			if diff := tooMany(d.usage, got); diff != "" {
				t.Fatalf("%s\n%s\n%s", diff, d.text(), linesText(got))
			}
			bills++
			lines += len(got)
		}
	})
	t.Logf("%d bills of %d lines", bills, lines)
}

// text writes what was drawn so that a person can redo it.
func (d *drawn) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seconds of %d ms, now %d, cuts %v\n%+v\n", d.ms, d.usage.NowMs, d.usage.Cuts, d.terms.Profiles[0])
	for _, r := range d.usage.Rentals {
		for i := range r.Segments {
			fmt.Fprintf(&b, "%s %+v\n", r.Instance, r.Segments[i])
		}
	}
	for i := range d.usage.Readings {
		fmt.Fprintf(&b, "%+v\n", d.usage.Readings[i])
	}
	for i := range d.usage.Outages {
		fmt.Fprintf(&b, "%+v\n", d.usage.Outages[i])
	}
	for i := range d.terms.Book.Entries {
		fmt.Fprintf(&b, "%+v\n", d.terms.Book.Entries[i])
	}
	for _, c := range d.terms.Contracts {
		fmt.Fprintf(&b, "contract %s %d-%d checkpoint %d sla %+v\n", c.ID, c.From, c.To, c.Clauses.Checkpoint, c.SLA)
		for i := range c.Commitments {
			fmt.Fprintf(&b, "  %+v\n", c.Commitments[i])
		}
		for i := range c.Quotes {
			fmt.Fprintf(&b, "  %+v\n", c.Quotes[i])
		}
		for i := range c.Rules {
			fmt.Fprintf(&b, "  %+v\n", c.Rules[i])
		}
	}
	return b.String()
}
