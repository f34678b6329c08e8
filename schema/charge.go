package schema

// Charge is an entry of the ledger of charges as it is stored. Amounts are exact: a
// decimal, or numerator/denominator; empty = not known.
type Charge struct {
	Tenant     string
	Entry      string // digest that names the entry
	Line       string // digest of all that the line says
	Reversal   bool   // it takes the line back
	Number     int    // how many entries the line had before
	BookedAtMs int64
	HorizonMs  int64
	Correction bool
	Why        string // what led to the booking
	Category   string
	Status     string
	Meter      string
	FromMs     int64
	ToMs       int64
	Instance   string
	Project    string
	Platform   string
	Region     string
	Model      string
	Plan       string
	Gpus       int64
	Commitment string
	Contract   string
	MeteredMs  int64
	ExcludedMs int64
	BillableMs int64
	Quantity   string
	Currency   string
	ListPrice  string
	Price      string
	Version    string
	ListCost   string
	Cost       string
	Billed     string
	Effective  string
	Evidence   string
	Content    []byte // the whole line as JSON
}

// ChargedLine is what the ledger says of a line.
type ChargedLine struct {
	Line       string
	Instance   string
	Commitment string
	Category   string
	FromMs     int64
	ToMs       int64
	Entries    int
	HorizonMs  int64
}
