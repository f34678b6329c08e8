package pricing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// Bounds of a price file, far above any real one.
const (
	MaxFileBytes = 8 << 20
	MaxEntries   = 100_000
	maxNameBytes = 512 // as for the names in events
	maxFaults    = 20  // reported at once; a file of another format would list every line
)

// Fault is one thing that is wrong in a price file.
type Fault struct {
	File string
	Line int // from 1; 0 when the whole file is meant
	Col  int // from 1; 0 when the whole line is meant
	Msg  string
}

// Error names the place as FILE:LINE:COLUMN and says what is wrong there.
func (f *Fault) Error() string {
	s := f.File
	if f.Line > 0 {
		s += fmt.Sprintf(":%d", f.Line)
		if f.Col > 0 {
			s += fmt.Sprintf(":%d", f.Col)
		}
	}
	return s + ": " + f.Msg
}

// Load reads a price file. Besides what [Parse] returns it fails when the file
// cannot be read or is larger than [MaxFileBytes].
func Load(path string) (*Book, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("price file: %w", err)
	}
	return Parse(path, data)
}

// readFile reads at most a byte more than a document may have.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// Parse reads a price book in YAML:
//
//	currency: USD
//	prices:
//	  - model: NVIDIA H100 80GB HBM3
//	    platform: aws              # left out: any platform
//	    region: us-east-1          # left out: any region
//	    per_gpu_hour: "35.00"      # decimal text or number, taken digit by digit
//	    valid_from: 2026-03-01     # date (UTC) or RFC 3339; left out: always
//	    valid_to: 2026-04-01       # exclusive; left out: until further notice
//	  - sku: p5.48xlarge           # an offer by name, before any model
//	    per_node_hour: "98.32"     # of a machine; the price of a GPU is the exact part
//	    gpus_per_node: 8
//	    currency: EUR              # left out: that of the file
//	  - model: NVIDIA H100 80GB HBM3
//	    plan: month                # left out: on demand
//	    per_gpu: "25000"           # for a term; or per_node
//	meters:
//	  - {meter: egress_bytes, per: GB, price: "0.5"}
//
// name stands for the file in errors. Anything not understood is an error: an
// unknown key, a key that is there twice, a price with an exponent, two prices in one
// entry, validities that overlap. The error joins up to 20 *[Fault]s in the order of
// their lines. There is never a Book together with an error.
func Parse(name string, data []byte) (*Book, error) {
	return parseAs(name, data, (*parser).book)
}

// parseAs reads a document. What read returns counts only when it found no fault.
func parseAs[T any](name string, data []byte, read func(*parser, ast.Node) *T) (*T, error) {
	p := &parser{}
	var document *T
	if root := p.document(data); root != nil {
		document = read(p, root)
	}
	if len(p.faults) > 0 {
		return nil, joinFaults(name, p.faults)
	}
	return document, nil
}

// document reads the one YAML document of a file; nil says that it is none.
func (p *parser) document(data []byte) ast.Node {
	p.hash = digest(data)
	switch {
	case len(data) > MaxFileBytes:
		p.faults = append(p.faults, &Fault{Msg: fmt.Sprintf("larger than %d bytes", MaxFileBytes)})
		return nil
	case !utf8.Valid(data):
		p.faults = append(p.faults, &Fault{Msg: "not valid UTF-8"})
		return nil
	}
	root, fault := readYAML(data)
	if fault != nil {
		p.faults = append(p.faults, fault)
	}
	return root
}

func joinFaults(name string, faults []*Fault) error {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Msg, b.Msg))
	})
	errs := make([]error, 0, len(faults))
	for i, f := range faults {
		if i == maxFaults {
			errs = append(errs, &Fault{File: name, Msg: fmt.Sprintf("and %d more", len(faults)-maxFaults)})
			break
		}
		f.File = name
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// digest names a document by its bytes.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

type parser struct {
	hash   string // of the document
	faults []*Fault
}

func (p *parser) fail(n ast.Node, format string, args ...any) {
	line, col := place(n)
	p.faults = append(p.faults, &Fault{Line: line, Col: col, Msg: fmt.Sprintf(format, args...)})
}

// text reads a name. It takes the characters as they are written, so that a
// model called 4090 is the text "4090".
func (p *parser) text(n ast.Node, key string) string {
	s, ok := scalar(n)
	switch {
	case !ok:
		p.fail(n, "%s must be a text", key)
		return ""
	case s == "":
		p.fail(n, "%s is empty; leave the key out instead", key)
		return ""
	case len(s) > maxNameBytes:
		p.fail(n, "%s is longer than %d bytes", key, maxNameBytes)
	}
	return s
}

// price reads a decimal from its characters. A YAML number is not converted
// first: 3.6 would become a binary fraction that is not 3.6.
func (p *parser) price(n ast.Node, key string) *big.Rat {
	s, ok := scalar(n)
	if !ok || !plainDecimal(s) {
		p.fail(n, "%s %q is not a plain decimal such as \"35.00\": digits, one point, no sign, no exponent, at most 30 digits", key, clip(s))
		return nil
	}
	r, _ := new(big.Rat).SetString(s)
	return r
}

func plainDecimal(s string) bool {
	whole, fraction, dotted := strings.Cut(s, ".")
	return whole != "" && (fraction != "" || !dotted) && len(whole)+len(fraction) <= 30 && digits(whole) && digits(fraction)
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

func (p *parser) currency(n ast.Node, key string) string {
	code := p.text(n, key)
	if code != "" && !KnownCurrency(code) {
		p.fail(n, "%s %q is not an ISO 4217 code such as USD, EUR or CNY", key, clip(code))
	}
	return code
}

func (p *parser) instant(n ast.Node, key string) int64 {
	s, ok := scalar(n)
	if ok {
		for _, layout := range [...]string{time.DateOnly, time.RFC3339Nano} {
			t, err := time.Parse(layout, s)
			if err == nil && t.Nanosecond()%int(time.Millisecond) == 0 {
				return t.UnixMilli()
			}
		}
	}
	p.fail(n, "%s %q is neither a date such as 2026-03-01 (meaning 00:00 UTC) nor an RFC 3339 time in whole milliseconds such as 2026-03-01T00:00:00+08:00", key, clip(s))
	return 0
}

func instantText(ms int64) string {
	if ms == Always {
		return "always"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}

// clip shortens hostile text before it goes into a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
