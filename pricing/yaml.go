package pricing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"
)

// readYAML returns the one document of a file as a syntax tree. The tree is
// read, not a Go struct, because it keeps the characters of a number and the
// place of everything.
func readYAML(data []byte) (root ast.Node, fault *Fault) {
	defer func() {
		// A price file is typed by hand and may hold anything; a fault in the
		// YAML library must not take the program down.
		if r := recover(); r != nil {
			root, fault = nil, &Fault{Msg: fmt.Sprintf("not readable as YAML: %v", r)}
		}
	}()
	file, err := yamlparser.ParseBytes(data, 0, yamlparser.AllowDuplicateMapKey())
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			at := syntax.GetToken().Position
			return nil, &Fault{Line: at.Line, Col: at.Column, Msg: "not YAML: " + syntax.GetMessage() + starHint(data, at.Line)}
		}
		return nil, &Fault{Msg: "not YAML: " + clip(err.Error())}
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			line, col := place(doc.Body)
			return nil, &Fault{Line: line, Col: col, Msg: "a second YAML document; a file holds one"}
		}
		root = doc.Body
	}
	if root == nil {
		return nil, &Fault{Msg: "empty: it holds nothing but blanks and comments"}
	}
	return root, nil
}

// starHint explains the one syntax error that the format itself invites: a bare
// star begins an alias in YAML.
func starHint(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) || !strings.Contains(lines[line-1], ": *") {
		return ""
	}
	return `; write the star in quotes: "*"`
}

// fields returns the values of a mapping by key. It reports every key that is
// not in known or is there twice; nil means that n is no mapping.
func (p *parser) fields(n ast.Node, what string, known ...string) map[string]ast.Node {
	pairs, ok := pairsOf(n)
	if !ok {
		p.fail(n, "%s must be made of \"key: value\" lines with the keys %s", what, strings.Join(known, ", "))
		return nil
	}
	fields := make(map[string]ast.Node, len(pairs))
	for _, pair := range pairs {
		name, ok := scalar(pair.Key)
		if !ok {
			p.fail(pair.Key, "a key of %s must be plain text, one of %s", what, strings.Join(known, ", "))
			continue
		}
		if near := nearest(name, known); near != name {
			p.fail(pair.Key, "unknown key %q in %s; did you mean %q? The keys are %s", clip(name), what, near, strings.Join(known, ", "))
			continue
		}
		if first, twice := fields[name]; twice {
			line, _ := place(first)
			p.fail(pair.Key, "key %q is there twice, first in line %d", name, line)
			continue
		}
		fields[name] = pair.Value
	}
	return fields
}

// pairsOf returns the lines of a mapping: one with a single line is no list.
func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

// under returns the value of a dotted key such as time.minimum, or what is nearest to
// where it would be.
func under(root ast.Node, path string) ast.Node {
	for name := range strings.SplitSeq(path, ".") {
		pairs, _ := pairsOf(root)
		i := slices.IndexFunc(pairs, func(pair *ast.MappingValueNode) bool { key, _ := scalar(pair.Key); return key == name })
		if i < 0 {
			break
		}
		root = pairs[i].Value
	}
	return root
}

// scalar returns the characters of a plain or quoted scalar. Aliases, tags and
// null are not scalars here: they make a file say something else than it shows.
func scalar(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(s.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// place returns line and column of a node, from 1. A mapping begins at its
// first key: its own token is the colon behind it.
func place(n ast.Node) (line, col int) {
	switch m := n.(type) {
	case *ast.MappingNode:
		if len(m.Values) > 0 {
			return place(m.Values[0])
		}
	case *ast.MappingValueNode:
		return place(m.Key)
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0, 0
	}
	at := n.GetToken().Position
	return at.Line, at.Column
}

// nearest returns the known text with the fewest edits from name.
func nearest(name string, known []string) string {
	best, fewest := "", -1
	for _, k := range known {
		if d := distance(clip(name), k); fewest < 0 || d < fewest {
			best, fewest = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short texts, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(diagonal+1, row[j]+1, substitute)
		}
	}
	return row[len(b)]
}
