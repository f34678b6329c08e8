package pricing

import (
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones of platforms are the same everywhere

	"github.com/goccy/go-yaml/ast"
)

// choice is a text that has one of a few values.
type choice interface{ values() []string }

// checked is a mapping that looks for what its keys mean together. fields has what is
// there, of which a sound mapping could be read without a fault.
type checked interface {
	check(p *parser, n ast.Node, fields map[string]ast.Node, sound bool)
}

// Length is a length of time in milliseconds, written as in "60s", "1h" or "30d".
type Length int64

// Instant is a time in Unix milliseconds, written as a date (00:00 UTC) or in the form
// of RFC 3339.
type Instant int64

// read fills the variable that into points to from a node. Structs are mappings with
// the keys of their yaml tags, of which those with ",required" must be there. What it
// cannot read it reports, naming the key, and leaves alone.
func (p *parser) read(n ast.Node, what string, into any) {
	p.value(n, what, reflect.ValueOf(into).Elem())
}

func (p *parser) value(n ast.Node, what string, v reflect.Value) {
	switch into := v.Addr().Interface().(type) {
	case **big.Rat:
		*into = p.decimal(n, what)
		return
	case **decimal:
		*into = (*decimal)(p.price(n, what))
		return
	case *currencyCode:
		*into = currencyCode(p.currency(n, what))
		return
	case *Length:
		*into = p.length(n, what)
		return
	case **time.Location:
		*into = p.zone(n, what)
		return
	case *Instant:
		*into = Instant(p.instant(n, what))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		p.structure(n, what, v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		p.value(n, what, v.Elem())
	case reflect.Slice:
		p.slice(n, what, v)
	case reflect.Map:
		p.mapping(n, what, v)
	case reflect.String:
		p.string(n, what, v)
	case reflect.Bool:
		s, _ := scalar(n)
		if s != "true" && s != "false" {
			p.fail(n, "%s is %q; it must be true or false", what, clip(s))
		}
		v.SetBool(s == "true")
	case reflect.Int, reflect.Int64:
		s, _ := scalar(n)
		whole, err := strconv.ParseInt(s, 10, 64)
		if err != nil || whole < 0 {
			p.fail(n, "%s is %q; it must be a whole number from 0 on", what, clip(s))
		}
		v.SetInt(whole)
	default:
		panic("pricing: " + what + " cannot be read into a " + v.Type().String())
	}
}

func (p *parser) structure(n ast.Node, what string, v reflect.Value) {
	before := len(p.faults)
	var known []string
	at := map[string]int{}
	for i := range v.NumField() {
		if name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); name != "" {
			known = append(known, name)
			at[name] = i
		}
	}
	fields := p.fields(n, what, known...)
	if fields == nil {
		return
	}
	for _, name := range known {
		i := at[name]
		field, ok := fields[name]
		switch {
		case ok:
			p.value(field, name, v.Field(i))
		case strings.HasSuffix(v.Type().Field(i).Tag.Get("yaml"), ",required"):
			p.fail(n, "%s is missing in %s", name, what)
		}
	}
	line, col := place(n)
	for name, at := range map[string]int{"Line": line, "Col": col} {
		if f := v.FieldByName(name); f.IsValid() {
			f.SetInt(int64(at))
		}
	}
	if c, ok := v.Addr().Interface().(checked); ok {
		c.check(p, n, fields, len(p.faults) == before)
	}
}

func (p *parser) slice(n ast.Node, what string, v reflect.Value) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		p.fail(n, "%s must be a list; begin every entry with \"-\"", what)
		return
	}
	if len(list.Values) > MaxEntries {
		p.fail(n, "%d entries in %s, at most %d are allowed", len(list.Values), what, MaxEntries)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, item := range list.Values {
		p.value(item, "an entry of "+what, v.Index(i))
	}
}

// mapping reads keys that are names or choices themselves.
func (p *parser) mapping(n ast.Node, what string, v reflect.Value) {
	pairs, ok := pairsOf(n)
	if !ok {
		p.fail(n, "%s must be made of \"key: value\" lines", what)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, pair := range pairs {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		p.string(pair.Key, "a key of "+what, key)
		if v.MapIndex(key).IsValid() {
			p.fail(pair.Key, "key %q is there twice in %s", key.String(), what)
			continue
		}
		p.value(pair.Value, what+"."+key.String(), value)
		v.SetMapIndex(key, value)
	}
}

func (p *parser) string(n ast.Node, what string, v reflect.Value) {
	s := p.text(n, what)
	if c, ok := v.Interface().(choice); ok && s != "" {
		if values := c.values(); !slices.Contains(values, s) {
			p.fail(n, "%s is %q; did you mean %q? It may be %s", what, clip(s), nearest(s, values), strings.Join(values, ", "))
			return
		}
	}
	v.SetString(s)
}

// decimal reads a decimal, or a percentage such as "15%", from its characters.
func (p *parser) decimal(n ast.Node, what string) *big.Rat {
	s, ok := scalar(n)
	number, percent := strings.CutSuffix(s, "%")
	if !ok || !plainDecimal(number) {
		p.fail(n, "%s is %q; it must be a plain decimal such as \"35.00\" or \"15%%\": digits, one point, no sign, no exponent, at most 30 digits", what, clip(s))
		return nil
	}
	r, _ := new(big.Rat).SetString(number)
	if percent {
		r.Quo(r, big.NewRat(100, 1))
	}
	return r
}

var lengthUnits = map[string]int64{"ms": 1, "s": 1000, "m": 60_000, "h": hourMs, "d": dayMs}

func (p *parser) length(n ast.Node, what string) Length {
	s, _ := scalar(n)
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz")
	unit, known := lengthUnits[strings.TrimPrefix(s, number)]
	whole, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !known || whole < 0 || whole > (1<<53)/max(unit, 1) {
		p.fail(n, "%s is %q; it must be a length of time such as 60s, 30m, 1h or 30d", what, clip(s))
		return 0
	}
	return Length(whole * unit)
}

func (p *parser) zone(n ast.Node, what string) *time.Location {
	s, _ := scalar(n)
	if s != "" && s != "Local" {
		if zone, err := time.LoadLocation(s); err == nil {
			return zone
		}
	}
	p.fail(n, "%s is %q; it must be a time zone such as Asia/Shanghai or UTC", what, clip(s))
	return nil
}

// rulesOf lists the keys of a document and of what it holds, dotted.
func rulesOf(document any, prefix string) (list []string) {
	t := reflect.TypeOf(document)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		list = append(list, prefix+name)
		if f := t.Field(i).Type; f.Kind() == reflect.Struct {
			list = append(list, rulesOf(reflect.Zero(f).Interface(), prefix+name+".")...)
		}
	}
	return list
}
