package pricing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// object is a JSON object.
type object = map[string]any

// schemas are the documents that editors can check while somebody types, by the name of
// their file.
var schemas = map[string]struct {
	title string
	of    any
}{
	"price-book":       {"Price book of gpumeter", bookDoc{}},
	"platform-profile": {"Platform profile of gpumeter", Profile{}},
	"contract":         {"Contract of gpumeter", Contract{}},
}

// written are types that are no mapping, as documents write them. A text may be anything
// that a line can hold: a model called 4090 is one.
var written = map[reflect.Type]object{
	reflect.TypeFor[*decimal]():       {"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]+)?$`, "minimum": 0},
	reflect.TypeFor[*big.Rat]():       {"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]+)?%?$`, "minimum": 0},
	reflect.TypeFor[Length]():         {"type": "string", "pattern": `^[0-9]+(ms|s|m|h|d)$`},
	reflect.TypeFor[Instant]():        {"type": "string", "pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.+)?$`},
	reflect.TypeFor[*time.Location](): {"type": "string", "minLength": 1, "examples": []string{"UTC", "Asia/Shanghai"}},
	reflect.TypeFor[currencyCode]():   {"type": "string", "pattern": "^[A-Z]{3}$"},
	reflect.TypeFor[string]():         {"type": []string{"string", "number", "boolean"}, "minLength": 1, "maxLength": maxNameBytes},
	reflect.TypeFor[bool]():           {"type": "boolean"},
	reflect.TypeFor[int]():            {"type": "integer", "minimum": 0},
	reflect.TypeFor[int64]():          {"type": "integer", "minimum": 0},
}

// beside is what the keys of a mapping mean together.
var beside = map[reflect.Type]object{
	reflect.TypeFor[bookDoc](): {"anyOf": requiring("prices", "meters")},
	reflect.TypeFor[entryDoc](): {
		"anyOf": requiring("model", "sku"), "oneOf": requiring(priceKeys[:]...),
		"dependentRequired": object{"per_gpu": []string{"plan"}, "per_node": []string{"plan", "gpus_per_node"}, "per_node_hour": []string{"gpus_per_node"}},
	},
	reflect.TypeFor[CreditDoc]():    {"not": object{"anyOf": []any{object{"required": []string{"at", "from"}}, object{"required": []string{"at", "to"}}}}},
	reflect.TypeFor[CommittedDoc](): {"dependentRequired": object{"down_payment": []string{"payment"}}},
	reflect.TypeFor[Rule]():         {"oneOf": requiring("uplift", "discount", "factor", "fixed", "cap")},
}

func requiring(keys ...string) (list []any) {
	for _, key := range keys {
		list = append(list, object{"required": []string{key}})
	}
	return list
}

// comments are what the code says about the fields and types of this package.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	say := func(name string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
				said[name] = text
			}
		}
	}
	for _, file := range files {
		tree, err := goparser.ParseFile(token.NewFileSet(), file, nil, goparser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && len(d.Specs) == 1 {
				if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
					say(spec.Name.Name, d.Doc)
				}
			}
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						say(spec.Name.Name+"."+name.Name, f.Doc, f.Comment)
					}
				}
			}
			return true
		})
	}
	return said
}

func schemaOf(t reflect.Type, said map[string]string) object {
	if s, ok := written[t]; ok {
		return clone(s)
	}
	if c, ok := reflect.Zero(t).Interface().(choice); ok {
		return object{"type": "string", "enum": c.values()}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), said)
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), said), "maxItems": MaxEntries}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem(), said)}
	case reflect.Struct:
		return schemaOfStruct(t, said)
	}
	panic("no schema of " + t.String())
}

func schemaOfStruct(t reflect.Type, said map[string]string) object {
	properties, required := object{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		s := schemaOf(f.Type, said)
		if text := cmp.Or(said[t.Name()+"."+f.Name], said[f.Type.Name()]); text != "" {
			s["description"] = text
		}
		if option == "required" {
			required = append(required, name)
		}
		properties[name] = s
	}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	for key, value := range beside[t] {
		s[key] = value
	}
	return s
}

func clone(o object) object {
	c := object{}
	for k, v := range o {
		c[k] = v
	}
	return c
}

// The schemas in docs say what the readers take, because both go by the same types.
func TestSchemas(t *testing.T) {
	said := comments(t)
	for name, document := range schemas {
		s := schemaOf(reflect.TypeOf(document.of), said)
		s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", document.title
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(s); err != nil {
			t.Fatal(err)
		}
		file := schemaFile(name)
		if *update {
			if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if is, err := os.ReadFile(file); err != nil || !bytes.Equal(is, text.Bytes()) {
			t.Errorf("%s is not what the types say; write it with: go test ./pricing -run TestSchemas -update (%v)", file, err)
		}
	}
}

func schemaFile(name string) string {
	return filepath.Join("..", "docs", "schemas", name+".schema.json")
}

// violation returns what a schema has against a YAML document; nil = nothing.
func violation(t *testing.T, schema string, document []byte) error {
	t.Helper()
	compiled, err := jsonschema.NewCompiler().Compile(schemaFile(schema))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(value)
}

// shippedDocuments are all documents that come with the program, by the name of their
// schema.
func shippedDocuments(t *testing.T) map[string][]string {
	t.Helper()
	profiles, err := filepath.Glob("profiles/*.yaml")
	if err != nil || len(profiles) == 0 {
		t.Fatal("no profiles", err)
	}
	return map[string][]string{
		"platform-profile": profiles,
		"price-book":       {"../deploy/prices.example.yaml", "../deploy/prices.catalogue.yaml"},
		"contract":         {"../deploy/contract.example.yaml"},
	}
}

// A schema takes what comes with the program, and so does the reader.
func TestSchemasTakeWhatIsShipped(t *testing.T) {
	want := map[string]any{"platform-profile": &Profile{}, "price-book": &Book{}, "contract": &Contract{}}
	for schema, files := range shippedDocuments(t) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := violation(t, schema, text); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			got, err := LoadAny(file)
			if err != nil || reflect.TypeOf(got) != reflect.TypeOf(want[schema]) {
				t.Errorf("%s: %T, %v", file, got, err)
			}
		}
	}
	for schema, text := range map[string]string{"price-book": secondBook, "contract": framework, "platform-profile": huawei} {
		if err := violation(t, schema, []byte(text)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// What a schema refuses, the reader refuses as well.
func TestSchemasRefuse(t *testing.T) {
	for _, c := range []struct{ schema, text, old, changed string }{
		{"price-book", secondBook, `per_gpu_hour: "30"`, `per_gpu_hor: "30"`},
		{"price-book", secondBook, `per_gpu_hour: "30"`, `per_gpu_hour: -30`},
		{"price-book", secondBook, `per_gpu_hour: "30"`, `per_gpu_hour: "3e1"`},
		{"price-book", secondBook, `per_gpu_hour: "30"`, `per_gpu_hour: "30", per_gpu: "1", plan: month`},
		{"price-book", secondBook, `plan: month, per_gpu: "25000"`, `per_gpu: "25000"`},
		{"price-book", secondBook, `, gpus_per_node: 7`, ``},
		{"price-book", secondBook, `model: H100, per_gpu_hour: "30"`, `per_gpu_hour: "30"`},
		{"price-book", secondBook, "currency: CNY", "currency: yuan"},
		{"price-book", secondBook, "per: GiB", "per: GBit"},
		{"price-book", secondBook, "2026-01-01", "January"},
		{"platform-profile", huawei, "settle: hour", "settled: hour"},
		{"platform-profile", huawei, "settle: hour", "settle: minute"},
		{"platform-profile", huawei, "refund_within: 1h", "refund_within: 1 hour"},
		{"platform-profile", huawei, "zone: Asia/Shanghai\n", ""},
		{"platform-profile", huawei, "compute: [running, stopping]", "compute: [running, stoping]"},
		{"contract", framework, "term: month", "term: mnth"},
		{"contract", framework, "discount: 20%, model", "model"},
		{"contract", framework, "discount: 20%, model", "discount: 20%, uplift: 5%, model"},
		{"contract", framework, "target: 99.9%, ", ""},
		{"contract", framework, "2027-03-01}", "soon}"},
		{"contract", framework, "term: month", "term: year, down_payment: 20%"},
		{"contract", framework, "term: month", "term: year, payment: later"},
		{"contract", framework, "clauses:", "credits: [{id: x, amount: 1, reason: r, at: 2026-02-01, to: 2026-03-01}]\nclauses:"},
		{"contract", framework, "clauses:", "credits: [{id: x, amount: 1}]\nclauses:"},
	} {
		if !strings.Contains(c.text, c.old) {
			t.Fatalf("no %q in the example", c.old)
		}
		text := []byte(strings.Replace(c.text, c.old, c.changed, 1))
		if violation(t, c.schema, text) == nil {
			t.Errorf("the schema %s takes %s", c.schema, c.changed)
		}
		if _, err := ParseAny("p.yaml", text); err == nil {
			t.Errorf("the reader takes %s", c.changed)
		}
	}
}

// Somebody who hovers over a key of a book is told what it is.
func TestSchemasDescribe(t *testing.T) {
	said := comments(t)
	for _, field := range []string{"entryDoc.SKU", "entryDoc.PerGPU", "Profile.Zone", "CommittedDoc.PerGPU", "SLA.Ratio", "Clauses.ScaleOut"} {
		if said[field] == "" {
			t.Errorf("%s has no comment", field)
		}
	}
	if !slices.Contains(schemaOf(reflect.TypeFor[Term](), said)["enum"].([]string), "quarter") {
		t.Error("the terms are not listed")
	}
}

// The page about prices has an example that is read, and names every key.
func TestDocsOfPriceBooks(t *testing.T) {
	page, err := os.ReadFile("../docs/prices.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "## Price book\n\n")
	example, after, _ := strings.Cut(after, "\n\n")
	if b, err := Parse("prices.md", []byte(example)); err != nil || len(b.Entries) != 4 || len(b.Meters) != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	for _, key := range slices.Concat(rulesOf(entryDoc{}, ""), rulesOf(meterDoc{}, "")) {
		if !strings.Contains(after, "`"+key+"`") {
			t.Errorf("docs/prices.md does not say what %s is", key)
		}
	}
}
