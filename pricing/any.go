package pricing

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// marks are the keys that tell documents apart, and what has them. A contract may have
// meters as well, so it is looked for first. The keys behind prices are for documents
// in which the one that matters was forgotten, which their readers then say.
var marks = []struct{ key, document string }{
	{"contract", "contract"}, {"billed", "platform profile"}, {"prices", "price book"}, {"commitments", "contract"}, {"adjustments", "contract"},
	{"sla", "contract"}, {"quotes", "contract"}, {"clauses", "contract"}, {"zone", "platform profile"}, {"meters", "price book"}, {"currency", "price book"},
}

// LoadAny reads a file as [ParseAny] does. It fails, besides, when the file cannot be
// read or is larger than [MaxFileBytes].
func LoadAny(path string) (any, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return ParseAny(path, data)
}

// ParseAny reads a document of any kind and returns a *[Contract], which has the key
// contract, a *[Profile], which has billed, or a *[Book], which has prices or meters.
// Errors are as for [Parse]; a document that is none of these is one.
func ParseAny(name string, data []byte) (any, error) {
	document, err := parseAs(name, data, func(p *parser, root ast.Node) *any {
		var document any
		switch p.kind(root) {
		case "contract":
			document = p.contract(root)
		case "platform profile":
			document = p.profile(root)
		case "price book":
			document = p.book(root)
		}
		return &document
	})
	if err != nil {
		return nil, err
	}
	return *document, nil
}

// kind says what a document is; it is empty, and a fault, when it is nothing known.
func (p *parser) kind(root ast.Node) string {
	pairs, _ := pairsOf(root)
	has := map[string]bool{}
	for _, pair := range pairs {
		if name, ok := scalar(pair.Key); ok {
			has[name] = true
		}
	}
	for _, m := range marks {
		if has[m.key] {
			return m.document
		}
	}
	hint := ""
	for _, pair := range pairs {
		name, _ := scalar(pair.Key)
		for _, m := range marks {
			if hint == "" && len(name) > 3 && distance(clip(name), m.key) <= 2 {
				hint = fmt.Sprintf("; did you mean %q where %q is?", m.key, clip(name))
			}
		}
	}
	p.fail(root, "no document of prices: a price book has the key prices or meters, a platform profile billed, a contract contract%s", hint)
	return ""
}
