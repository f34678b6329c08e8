package pricing

import (
	"math/big"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// bookDoc is a price book as a file writes it.
type bookDoc struct {
	Currency currencyCode `yaml:"currency,required"` // of all prices without one of their own
	Prices   []entryDoc   `yaml:"prices"`
	Meters   []meterDoc   `yaml:"meters"`
}

// entryDoc is an [Entry] as a book writes it. Exactly one of its prices is given.
type entryDoc struct {
	SKU         string       `yaml:"sku"`           // exact name of an offer; goes before any match by model
	Model       string       `yaml:"model"`         // exact name, or "*" for all that are not listed; may be left out beside a sku
	Platform    string       `yaml:"platform"`      // left out: any platform
	Region      string       `yaml:"region"`        // left out: any region
	Plan        string       `yaml:"plan"`          // such as spot, day, week, month, quarter, year; left out: on demand
	PerGPUHour  *decimal     `yaml:"per_gpu_hour"`  // price of one GPU for an hour
	PerGPU      *decimal     `yaml:"per_gpu"`       // price of one GPU for a term, which plan names
	PerNodeHour *decimal     `yaml:"per_node_hour"` // price of a node of gpus_per_node for an hour
	PerNode     *decimal     `yaml:"per_node"`      // price of a node of gpus_per_node for a term, which plan names
	GpusPerNode int64        `yaml:"gpus_per_node"` // 1 to 1024
	Currency    currencyCode `yaml:"currency"`      // left out: the book's
	From        *Instant     `yaml:"valid_from"`    // left out: always
	To          *Instant     `yaml:"valid_to"`      // exclusive; left out: until further notice

	GPUMemoryGiB *decimal `yaml:"gpu_memory_gib"` // of one GPU; prices nothing, as what follows
	VCPU         *decimal `yaml:"vcpu"`
	RAMGiB       *decimal `yaml:"ram_gib"`
	DiskGiB      *decimal `yaml:"disk_gib"`
	Interconnect string   `yaml:"interconnect"`
	DCTier       string   `yaml:"dc_tier"`
	Tenancy      string   `yaml:"tenancy"`
	Source       string   `yaml:"source"` // where the price is written

	Line, Col int
}

// meterDoc is a [MeterEntry] as a book writes it.
type meterDoc struct {
	Meter    string       `yaml:"meter,required"` // such as egress_bytes or storage_byte_seconds
	Platform string       `yaml:"platform"`       // left out: any platform
	Region   string       `yaml:"region"`         // left out: any region
	Per      Unit         `yaml:"per,required"`
	Price    *decimal     `yaml:"price,required"`
	Currency currencyCode `yaml:"currency"`   // left out: the book's
	From     *Instant     `yaml:"valid_from"` // left out: always
	To       *Instant     `yaml:"valid_to"`   // exclusive; left out: until further notice

	Line, Col int
}

// currencyCode is an ISO 4217 code.
type currencyCode string

// decimal is a price or a size: a plain decimal and never a percentage.
type decimal big.Rat

func (d *decimal) rat() *big.Rat { return (*big.Rat)(d) }

// maxGpusPerNode is far above any machine that is sold.
const maxGpusPerNode = 1024

// book reads a price book; nil when there are faults.
func (p *parser) book(root ast.Node) *Book {
	var doc bookDoc
	p.read(root, "the file", &doc)
	if len(p.faults) > 0 {
		return nil
	}
	entries := make([]Entry, len(doc.Prices))
	for i := range doc.Prices {
		entries[i] = doc.Prices[i].entry()
	}
	var meters []MeterEntry
	for i := range doc.Meters {
		d := &doc.Meters[i]
		from, to := span(d.From, d.To)
		meters = append(meters, MeterEntry{MeterPrice: MeterPrice{Meter: d.Meter, Per: d.Per, Price: d.Price.rat()}, Platform: d.Platform,
			Region: d.Region, Currency: string(d.Currency), FromMs: from, ToMs: to, Line: d.Line, col: d.Col})
	}
	book, faults := newBook(string(doc.Currency), entries, meters...)
	p.faults = append(p.faults, faults...)
	return book
}

func (d *bookDoc) check(p *parser, n ast.Node, fields map[string]ast.Node, _ bool) {
	if fields["prices"] == nil && fields["meters"] == nil {
		p.fail(n, "prices is missing; write \"prices: []\" for a list without prices")
	}
}

// priceKeys are the ways to write a price of GPU time.
var priceKeys = [...]string{"per_gpu_hour", "per_gpu", "per_node_hour", "per_node"}

func (d *entryDoc) check(p *parser, n ast.Node, fields map[string]ast.Node, sound bool) {
	if fields["model"] == nil && fields["sku"] == nil {
		p.fail(n, "model is missing; write model: \"*\" to price every model that is not listed")
	}
	given := ""
	for _, name := range priceKeys {
		switch {
		case fields[name] == nil:
		case given != "":
			p.fail(fields[name], "%s is a second price beside %s; an entry has one", name, given)
		default:
			given = name
		}
	}
	if given == "" {
		p.fail(n, "per_gpu_hour is missing; an entry has one price: %s", strings.Join(priceKeys[:], ", "))
	}
	if term := given == "per_gpu" || given == "per_node"; term && (fields["plan"] == nil || d.Plan != "" && !slices.Contains(planTerms(), d.Plan)) {
		p.fail(fields[given], "%s is the price of a term, and plan %q is none; it must be one of %s", given, clip(d.Plan), strings.Join(planTerms(), ", "))
	}
	switch gpus := fields["gpus_per_node"]; {
	case gpus == nil && strings.HasPrefix(given, "per_node"):
		p.fail(fields[given], "gpus_per_node is missing; without it %s is no price of a GPU", given)
	case gpus != nil && sound && (d.GpusPerNode < 1 || d.GpusPerNode > maxGpusPerNode):
		p.fail(gpus, "gpus_per_node is %d; it must be from 1 to %d", d.GpusPerNode, maxGpusPerNode)
	}
	p.checkSpan(fields, d.From, d.To, sound)
}

func (d *meterDoc) check(p *parser, _ ast.Node, fields map[string]ast.Node, sound bool) {
	p.checkSpan(fields, d.From, d.To, sound)
	if want := unitsOf(d.Meter); sound && !slices.Contains(want, string(d.Per)) {
		p.fail(fields["per"], "per is %q, and %s is counted in other units: %s", d.Per, clip(d.Meter), strings.Join(want, ", "))
	}
}

func (p *parser) checkSpan(fields map[string]ast.Node, from, to *Instant, sound bool) {
	if sound && from != nil && to != nil && *to <= *from {
		p.fail(fields["valid_to"], "valid_to %s is not after valid_from %s; valid_to is exclusive", instantText(int64(*to)), instantText(int64(*from)))
	}
}

// planTerms are the plans that can be paid by the term.
func planTerms() []string {
	return slices.DeleteFunc(Term("").values(), func(s string) bool { return s == string(TermHour) })
}

func span(from, to *Instant) (fromMs, toMs int64) {
	fromMs, toMs = Always, Forever
	if from != nil {
		fromMs = int64(*from)
	}
	if to != nil {
		toMs = int64(*to)
	}
	return fromMs, toMs
}

func (d *entryDoc) entry() Entry {
	e := Entry{
		SKU: d.SKU, Model: d.Model, Platform: d.Platform, Region: d.Region, Plan: d.Plan,
		PerGPUHour: d.PerGPUHour.rat(), PerGPU: d.PerGPU.rat(), GpusPerNode: d.GpusPerNode, Currency: string(d.Currency),
		Attributes: Attributes{GPUMemoryGiB: d.GPUMemoryGiB.rat(), VCPU: d.VCPU.rat(), RAMGiB: d.RAMGiB.rat(), DiskGiB: d.DiskGiB.rat(),
			Interconnect: d.Interconnect, DCTier: d.DCTier, Tenancy: d.Tenancy, Source: d.Source},
		Line: d.Line, col: d.Col,
	}
	e.FromMs, e.ToMs = span(d.From, d.To)
	share := func(node *decimal) *big.Rat {
		e.PerNode = node.rat()
		return new(big.Rat).Quo(e.PerNode, big.NewRat(d.GpusPerNode, 1))
	}
	switch {
	case d.PerNodeHour != nil:
		e.PerGPUHour = share(d.PerNodeHour)
	case d.PerNode != nil:
		e.PerGPU = share(d.PerNode)
	}
	if e.PerGPU != nil {
		e.Term = Term(d.Plan)
	}
	return e
}
