package pricing

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
)

// What contracts promise beside prices is checked here, by pure functions: who asks, and
// who is told, is decided elsewhere.

// Expiry is a certificate of a platform and when it expires.
type Expiry struct {
	Contract, Platform string
	Certificate        string
	AtMs               int64
	Expired            bool // it has
}

// Expiring lists the certificates of contracts that last at an instant which expire
// within a time from then on, or have expired; the first first.
func Expiring(contracts []*Contract, atMs, withinMs int64) (list []Expiry) {
	for _, c := range contracts {
		if !c.lasts(atMs) {
			continue
		}
		for name, at := range c.Clauses.Valid {
			if int64(at) <= atMs+withinMs {
				list = append(list, Expiry{c.ID, c.Platform, name, int64(at), int64(at) <= atMs})
			}
		}
	}
	slices.SortFunc(list, func(a, b Expiry) int {
		return cmp.Or(cmp.Compare(a.AtMs, b.AtMs), cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.Contract, b.Contract), cmp.Compare(a.Certificate, b.Certificate))
	})
	return list
}

func (c *Contract) lasts(atMs int64) bool { return atMs >= int64(c.From) && atMs < int64(c.To) }

// ChecklistItem is what a contract says of something that a platform should promise.
type ChecklistItem struct {
	Contract, Platform string
	Item               string // as [ChecklistItems] names it
	Held               bool
	Says               string // in the words of the contract; empty = it says nothing
}

// ChecklistItems are what a checklist asks for, in its order, beside the certificates.
var ChecklistItems = [...]string{"no_training", "encryption in transit", "encryption at rest", "sla", "scale_out"}

// Checklist says of each contract that lasts at an instant what it promises: the items
// of [ChecklistItems], then each certificate that is asked for, which has to be valid. A
// contract that says nothing of an item does not hold it.
func Checklist(contracts []*Contract, atMs int64, certificates ...string) (list []ChecklistItem) {
	for _, c := range contracts {
		if !c.lasts(atMs) {
			continue
		}
		add := func(item string, held bool, says string) {
			list = append(list, ChecklistItem{c.ID, c.Platform, item, held, says})
		}
		flag, sla, scaleOut := "", "", ""
		if c.Clauses.NoTraining {
			flag = "no_training: true"
		}
		transit, rest := c.Clauses.encryption(inTransit), c.Clauses.encryption(atRest)
		if c.SLA != nil {
			sla = Exact(c.SLA.Target)
		}
		if c.Clauses.ScaleOut > 0 {
			scaleOut = c.Clauses.ScaleOut.String()
		}
		for i, says := range []string{flag, transit, rest, sla, scaleOut} {
			add(ChecklistItems[i], says != "", says)
		}
		for _, name := range certificates {
			at, there := c.Clauses.Valid[name]
			says := ""
			if there {
				says = "until " + instantText(int64(at))
			}
			add(name, there && atMs < int64(at), says)
		}
	}
	return list
}

// Words by which contracts name the two kinds of encryption. End to end is both.
var (
	inTransit = []string{"tls", "in transit", "end to end"}
	atRest    = []string{"at rest", "storage", "end to end"}
)

func (c *Clauses) encryption(words []string) string {
	var found []string
	for _, e := range c.Encryption {
		plain := strings.NewReplacer("-", " ", "_", " ").Replace(strings.ToLower(e))
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(plain, w) }) {
			found = append(found, e)
		}
	}
	return strings.Join(found, ", ")
}

// CapacityRequest is a wish for more instances and when they were there.
type CapacityRequest struct {
	Platform    string
	RequestedMs int64
	ReadyMs     []int64 // when each one that was asked for became ready; 0 = it is not yet
}

// ScaleOut says how fast a platform met requests. Times are from the request to when all
// of it was ready.
type ScaleOut struct {
	Platform string
	Requests int
	Late     int   // took longer than the contract allows, ready or not
	Waiting  int   // not ready yet, and in time so far: in no percentile
	P50Ms    int64 // nearest rank, of those that are ready or late; late ones that are not ready count with the time so far
	P95Ms    int64
}

// ScaleOuts checks requests by platform, as known at an instant. A platform whose
// contracts that last at the request promise nothing has no late ones.
func ScaleOuts(contracts []*Contract, requests []CapacityRequest, nowMs int64) []ScaleOut {
	took := map[string][]int64{}
	byPlatform := map[string]*ScaleOut{}
	for i := range requests {
		q := &requests[i]
		s := byPlatform[q.Platform]
		if s == nil {
			s = &ScaleOut{Platform: q.Platform}
			byPlatform[q.Platform] = s
		}
		s.Requests++
		ms, ready := q.took(nowMs)
		allowed := int64(0)
		for _, c := range contracts {
			if c.Platform == q.Platform && c.lasts(q.RequestedMs) && c.Clauses.ScaleOut > 0 && (allowed == 0 || int64(c.Clauses.ScaleOut) < allowed) {
				allowed = int64(c.Clauses.ScaleOut)
			}
		}
		late := allowed > 0 && ms > allowed
		switch {
		case late:
			s.Late++
		case !ready:
			s.Waiting++
			continue
		}
		took[q.Platform] = append(took[q.Platform], ms)
	}
	list := make([]ScaleOut, 0, len(byPlatform))
	for platform, s := range byPlatform {
		slices.Sort(took[platform])
		s.P50Ms, s.P95Ms = nearestRank(took[platform], 50), nearestRank(took[platform], 95)
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b ScaleOut) int { return cmp.Compare(a.Platform, b.Platform) })
	return list
}

// took is how long a request took, or has taken until now.
func (q *CapacityRequest) took(nowMs int64) (ms int64, ready bool) {
	if len(q.ReadyMs) == 0 || slices.Contains(q.ReadyMs, 0) {
		return nowMs - q.RequestedMs, false
	}
	last := slices.Max(q.ReadyMs)
	return min(last, nowMs) - q.RequestedMs, last <= nowMs
}

// nearestRank is the least value that a part of the sorted list is not above.
func nearestRank(sorted []int64, percent int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Transparency says how much of a platform's bill a reader can check.
type Transparency struct {
	Lines      int // of GPU time and meters that are billed
	Priced     int // have a price
	Unit       int // say per what
	Sourced    int // name the version of what the price is written in
	Traced     int // name the event that they rest on
	Rules      int // of the platform's profile that follow from somebody's pages
	Confirmed  int // of them, by these pages
	Score      *big.Rat
	ScoreTexts []string // what it is made of
}

// Transparent scores a platform's lines: the mean of the parts that hold of price, unit,
// source, evidence and rules. The score is nil when there is nothing to score.
func Transparent(lines []Line, platform string, profile *Profile) Transparency {
	var t Transparency
	for i := range lines {
		l := &lines[i]
		if l.Segment.Platform != platform || l.Category != CategoryUsage || l.Status == StatusUnused || l.BillableMs == 0 {
			continue
		}
		t.Lines++
		for _, has := range []struct {
			it bool
			n  *int
		}{{l.Billed != nil, &t.Priced}, {l.Billed != nil && l.Per != "", &t.Unit}, {l.Version != "", &t.Sourced}, {l.Evidence != "", &t.Traced}} {
			if has.it {
				*has.n++
			}
		}
	}
	for _, r := range profile.Rules() {
		if r.Status != OwnRule {
			t.Rules++
		}
		if r.Status == Confirmed {
			t.Confirmed++
		}
	}
	sum, n := new(big.Rat), int64(0)
	for _, part := range []struct {
		what   string
		is, of int
	}{{"priced", t.Priced, t.Lines}, {"with a unit", t.Unit, t.Lines}, {"with a source", t.Sourced, t.Lines}, {"with evidence", t.Traced, t.Lines}, {"rules confirmed", t.Confirmed, t.Rules}} {
		if part.of > 0 {
			x := big.NewRat(int64(part.is), int64(part.of))
			sum.Add(sum, x)
			n++
			t.ScoreTexts = append(t.ScoreTexts, part.what+" "+Exact(x))
		}
	}
	if n > 0 {
		t.Score = sum.Quo(sum, big.NewRat(n, 1))
	}
	return t
}
