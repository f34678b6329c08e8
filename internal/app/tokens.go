package app

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"

	"github.com/gpumeter/gpumeter/web"
)

// tokenPrefix tells people and secret scanners what a token is for.
const tokenPrefix = "gpm_"

// holder is an entry of the tokens file. A token is kept as its plain SHA-256: it is
// random, with 256 bits, so there is nothing to guess that salt or a slow hash would
// make dearer.
type holder struct {
	web.Identity
	sum     [sha256.Size]byte // of a token
	expires time.Time         // zero = never
}

// tokenBook is a tokens file:
//
//	tokens:
//	  - name: ann                # shown where it is said who did something
//	    sha256: 5e88...          # of the token, as gpumeter token new prints it
//	    role: operator           # viewer, operator or admin
//	    projects: [llm, vision]  # left out: all
//	    expires: 2027-01-01      # date (UTC) or RFC 3339; left out: never
//	groups:                      # of people who sign in with OpenID Connect
//	  - name: gpu-admins
//	    role: admin
//
// An empty file lets nobody in.
type tokenBook struct{ tokens, groups []holder }

// NewToken makes a token and its entry in the tokens file, in YAML. Projects nil = all; a
// zero expires = never.
func NewToken(name string, role web.Role, projects []string, expires time.Time) (token, entry string, err error) {
	random := make([]byte, sha256.Size)
	if _, err := rand.Read(random); err != nil {
		return "", "", fmt.Errorf("make a token: %w", err)
	}
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	sum := sha256.Sum256([]byte(token))
	e := struct {
		Name     string   `yaml:"name"`
		SHA256   string   `yaml:"sha256"`
		Role     string   `yaml:"role"`
		Projects []string `yaml:"projects,omitempty"`
		Expires  string   `yaml:"expires,omitempty"`
	}{Name: name, SHA256: hex.EncodeToString(sum[:]), Role: role.String(), Projects: projects}
	if !expires.IsZero() {
		e.Expires = expires.UTC().Format(time.RFC3339)
	}
	text, err := yaml.Marshal([]any{e})
	if err != nil {
		return "", "", fmt.Errorf("write the entry of a token: %w", err)
	}
	if _, err := parseTokens("the entry", []byte("tokens:\n"+string(text))); err != nil {
		return "", "", err
	}
	return token, string(text), nil
}

// tokensParser collects what is wrong in a tokens file, with its place.
type tokensParser struct {
	file   string
	faults []error
}

func (p *tokensParser) fail(n ast.Node, format string, args ...any) {
	at := n.GetToken().Position
	switch m := n.(type) { // the token of a mapping is the colon behind its first key
	case *ast.MappingNode:
		if len(m.Values) > 0 {
			at = m.Values[0].Key.GetToken().Position
		}
	case *ast.MappingValueNode:
		at = m.Key.GetToken().Position
	}
	p.faults = append(p.faults, fmt.Errorf("%s:%d:%d: %s", p.file, at.Line, at.Column, fmt.Sprintf(format, args...)))
}

// parseTokens reads a tokens file. The error joins all faults, each as FILE:LINE:COLUMN.
func parseTokens(file string, data []byte) (*tokenBook, error) {
	tree, err := yamlparser.ParseBytes(data, 0)
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			at := syntax.GetToken().Position
			return nil, fmt.Errorf("%s:%d:%d: not YAML: %s", file, at.Line, at.Column, syntax.GetMessage())
		}
		return nil, fmt.Errorf("%s: not YAML: %w", file, err)
	}
	p := &tokensParser{file: file}
	book := &tokenBook{}
	seen := false
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if seen {
			p.fail(doc.Body, "a second YAML document; a file holds one")
			continue
		}
		seen = true
		fields := p.fields(doc.Body, "a tokens file", "tokens", "groups")
		book.tokens = p.section(fields["tokens"], "tokens", "sha256", "expires")
		book.groups = p.section(fields["groups"], "groups")
	}
	if err := errors.Join(p.faults...); err != nil {
		return nil, err
	}
	return book, nil
}

// fields returns the values of a mapping by key.
func (p *tokensParser) fields(n ast.Node, what string, known ...string) map[string]ast.Node {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	default:
		p.fail(n, "%s must be made of \"key: value\" lines with the keys %s", what, strings.Join(known, ", "))
	}
	fields := map[string]ast.Node{}
	for _, pair := range pairs {
		key := pair.Key.GetToken().Value
		if !slices.Contains(known, key) {
			p.fail(pair.Key, "unknown key %q in %s; the keys are %s", key, what, strings.Join(known, ", "))
			continue
		}
		fields[key] = pair.Value
	}
	return fields
}

// section reads the entries of tokens or groups; further are keys that one has beside
// name, role and projects. A section may be empty.
func (p *tokensParser) section(n ast.Node, what string, further ...string) (list []holder) {
	if n == nil || n.Type() == ast.NullType {
		return nil
	}
	entries, ok := n.(*ast.SequenceNode)
	if !ok {
		p.fail(n, "%s must be a list", what)
		return nil
	}
	names, sums := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for _, entry := range entries.Values {
		fields := p.fields(entry, "an entry of "+what, append([]string{"name", "role", "projects"}, further...)...)
		for _, key := range append([]string{"name", "role"}, further...) {
			if key != "expires" && fields[key] == nil {
				p.fail(entry, "an entry of %s has no %s", what, key)
			}
		}
		h := p.holder(fields)
		if names[h.Name] && h.Name != "" {
			p.fail(fields["name"], "%s has the name %q twice", what, h.Name)
		}
		if fields["sha256"] != nil && sums[h.sum] {
			p.fail(fields["sha256"], "this token is there twice")
		}
		names[h.Name], sums[h.sum] = true, true
		list = append(list, h)
	}
	return list
}

func (p *tokensParser) holder(fields map[string]ast.Node) (h holder) {
	if n := fields["name"]; n != nil {
		h.Name = p.text(n, "name")
	}
	if n := fields["role"]; n != nil {
		var ok bool
		if h.Role, ok = web.ParseRole(p.text(n, "role")); !ok {
			p.fail(n, "the role is none of %s", strings.Join(web.Roles(), ", "))
		}
	}
	if n := fields["sha256"]; n != nil {
		sum, err := hex.DecodeString(p.text(n, "sha256"))
		if err != nil || len(sum) != len(h.sum) {
			p.fail(n, "sha256 is not the SHA-256 of a token in 64 hexadecimal digits; gpumeter token new prints it")
		}
		copy(h.sum[:], sum)
	}
	if n := fields["projects"]; n != nil {
		// An empty list is easily made by taking out the last one, and must not mean all.
		list, ok := n.(*ast.SequenceNode)
		if !ok || len(list.Values) == 0 {
			p.fail(n, "projects must be a list of one at least; leave the key out to allow all projects, or the entry to allow none")
			return h
		}
		for _, project := range list.Values {
			h.Projects = append(h.Projects, p.text(project, "a project"))
		}
	}
	if n := fields["expires"]; n != nil {
		h.expires = p.instant(n)
	}
	return h
}

func (p *tokensParser) text(n ast.Node, what string) string {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if s := n.GetToken().Value; s != "" {
			return s
		}
	}
	p.fail(n, "%s must be a text", what)
	return ""
}

func (p *tokensParser) instant(n ast.Node) time.Time {
	s := p.text(n, "expires")
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	p.fail(n, "expires %q is neither a date such as 2027-01-01 (meaning 00:00 UTC) nor an RFC 3339 time", s)
	return time.Time{}
}
