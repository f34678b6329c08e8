package pricing

import (
	"math/big"
	"time"
)

// Terms are what a tenant pays by: price book, platform profiles and contracts as
// they were known at some instant. The zero Terms and nil price nothing.
type Terms struct {
	Book      *Book
	Profiles  []*Profile  // one for each platform; a platform without one bills exact time
	Contracts []*Contract // in the order in which they are drawn down
}

// Profile returns the rules of a platform.
func (t *Terms) Profile(platform string) *Profile {
	if t != nil {
		for _, p := range t.Profiles {
			if p.Platform == platform {
				return p
			}
		}
	}
	return exactProfile
}

// exactProfile bills what is held, to the millisecond, and rounds nothing.
var exactProfile = &Profile{Platform: "", Zone: time.UTC, Billed: BilledStates{Compute: []State{"provisioning", "running", "stopping"}, Storage: []State{}}}

// Usage is what was used: all that is rated besides the terms.
type Usage struct {
	Rentals  []*Rental
	Readings []Reading
	Outages  []Outage
	// NowMs is the instant of the question: rentals end by then, what is bought for a
	// time beyond it is not used yet. 0 = there is no later.
	NowMs int64
	// Cuts are instants at which lines are to be cut, such as midnights and the ends
	// of a question. They change no total.
	Cuts []int64
}

// Reading is a metered quantity over an interval, such as bytes of transfer.
type Reading struct {
	Span
	Meter    string   // such as egress_bytes
	Quantity *big.Rat // in the meter's own unit: bytes, bytes times seconds
	Instance string
	Project  string
	Platform string
	Region   string
	Labels   string // as canonical JSON
	Evidence string // digest of the event
}

// Outage is a time in which a platform did not deliver.
type Outage struct {
	Span
	Platform string // what it concerns; empty = any
	Region   string
	Instance string
	Reason   string
	Evidence string // digest of the event
}

// Category is what kind of charge a line is, in the words of FOCUS.
type Category string

// Categories.
const (
	CategoryUsage    Category = "usage"
	CategoryPurchase Category = "purchase" // of a commitment or a quote, before it is used
	CategoryCredit   Category = "credit"   // given back; its costs are negative
)

// Status says of a line of a commitment whether its time was used.
type Status string

// Statuses.
const (
	StatusUsed   Status = "used"
	StatusUnused Status = "unused"
)

// MeterGPU is the meter of lines of GPU time; others are named by their readings.
const MeterGPU = "gpu"

// Line is a line of a bill. Its costs are spread evenly over its span, except for what
// a minimum or rounding adds, which falls on its end, and a purchase, which falls on
// its start.
//
// Times are of the instance, BillableMs = MeteredMs - ExcludedMs + MinimumMs +
// RoundingMs; amounts are for all of its GPUs. A line that the terms have no price for
// has nil costs; it is never 0.
type Line struct {
	Category Category
	Status   Status // empty but for a commitment
	Meter    string
	Span
	Instance   string
	Segment    Segment // what is rented; Gpus are those that the line is about
	Commitment string  // id of the commitment, plan or quote; empty = none
	Contract   string  // that it is in

	Settlements int64 // equal settlements in a row that the line puts together; at least 1
	MeteredMs   int64
	ExcludedMs  int64
	Reason      string // why time is excluded, or what a credit is for
	MinimumMs   int64
	RoundingMs  int64
	BillableMs  int64
	Quantity    *big.Rat // of a meter other than gpu

	Currency string
	List     *big.Rat // price of a unit: a GPU-hour, a GPU for a term, a meter's unit
	Price    *big.Rat // that is paid
	Per      string   // the unit
	Steps    []Step   // from List to Price
	Version  string   // digest of the book, contract or profile that List is from
	Line     int      // in its file

	ListCost  *big.Rat // at list price
	Cost      *big.Rat // at the price paid, exact (FOCUS: contracted)
	Billed    *big.Rat // as the platform bills it
	Effective *big.Rat // with purchases spread over what they pay for

	Evidence string // digest of the event that the line rests on
	Rework   bool   // the work of this time was lost when the platform took the instance
}
