package app

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/web"
)

// Every fault of a tokens file names its place.
func TestTokensFileFaults(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	good := "tokens:\n  - {name: a, sha256: " + sum + ", role: viewer}\n"
	for text, want := range map[string]string{
		"tokens: [":                            "f:1:",
		"x: 1":                                 `f:1:1: unknown key "x" in a tokens file; the keys are tokens, groups`,
		"- a":                                  "f:1:1: a tokens file must be made of",
		"tokens: {a: b}":                       "tokens must be a list",
		good + "---\nx: 1":                     "f:4:1: a second YAML document",
		"tokens:\n  - {name: a, role: viewer}": "f:2:", // no sha256
		"tokens:\n  - {name: a, sha256: " + sum + "}":                                  "an entry of tokens has no role",
		"tokens:\n  - {sha256: " + sum + ", role: viewer}":                             "an entry of tokens has no name",
		"tokens:\n  - {name: a, sha256: abc, role: viewer}":                            "f:2:23: sha256 is not the SHA-256 of a token",
		"tokens:\n  - {name: a, sha256: " + sum + ", role: root}":                      "the role is none of viewer, operator, admin",
		"tokens:\n  - {name: a, sha256: " + sum + ", role: viewer, projects: }":        "projects must be a list of one at least",
		"tokens:\n  - {name: a, sha256: " + sum + ", role: viewer, projects: []}":      "projects must be a list of one at least",
		"tokens:\n  - {name: a, sha256: " + sum + ", role: viewer, projects: a}":       "projects must be a list of one at least",
		"tokens:\n  - {name: a, sha256: " + sum + ", role: viewer, projects: [~]}":     "a project must be a text",
		"tokens:\n  - {name: a, sha256: " + sum + ", role: viewer, projects: [\"\"]}":  "a project must be a text",
		"tokens:\n  - {name: a, sha256: " + sum + ", role: viewer, expires: soon}":     `expires "soon" is neither a date`,
		"tokens:\n  - {name: a, sha256: " + sum + ", role: viewer, color: red}":        `unknown key "color"`,
		good + "  - {name: a, sha256: " + strings.Repeat("cd", 32) + ", role: viewer}": `f:3:12: tokens has the name "a" twice`,
		good + "  - {name: b, sha256: " + sum + ", role: viewer}":                      "f:3:23: this token is there twice",
		"groups:\n  - {name: g, role: viewer, sha256: " + sum + "}":                    `unknown key "sha256" in an entry of groups`,
	} {
		if book, err := parseTokens("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || book != nil {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"", "# nobody\n", "tokens:\n", "tokens: []\ngroups:\n"} {
		if book, err := parseTokens("f", []byte(text)); err != nil || len(book.tokens)+len(book.groups) > 0 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// tokensAt is a tokens file that a test writes, looked at whenever it is asked.
type tokensAt struct {
	*tokensFile
	t *testing.T
}

func newTokensAt(t *testing.T, now fixedClock, text string) *tokensAt {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openTokens(path, now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &tokensAt{f, t}
}

func (f *tokensAt) who(token string) string {
	who, ok := f.Token(sha256.Sum256([]byte(token)))
	if !ok {
		return "nobody"
	}
	return fmt.Sprintf("%s %s %q", who.Name, who.Role, who.Projects)
}

// rewrite changes the file and lets the time between two looks pass.
func (f *tokensAt) rewrite(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.pass()
}

func (f *tokensAt) pass() {
	f.mu.Lock()
	f.looked = time.Time{}
	f.mu.Unlock()
}

// What the file says counts from when it says so; a slip does not lock everybody out.
func TestTokensFileIsReadAgain(t *testing.T) {
	ann := tokenEntry("ann", "operator", ", projects: [llm, vision]")
	f := newTokensAt(t, fixedClock(testkit.At("2026-03-10T00:00:00Z")), "tokens:\n"+ann+tokenEntry("past", "admin", ", expires: 2026-03-10")+tokenEntry("soon", "admin", ", expires: 2026-03-10T00:00:01Z"))
	expect := func(what string, ready bool, want ...string) {
		t.Helper()
		for _, w := range want {
			token, _, _ := strings.Cut(w, ":")
			if got := token + ": " + f.who(token); got != w {
				t.Errorf("%s: %s, want %s", what, got, w)
			}
		}
		if c := f.component(); c.Ready != ready {
			t.Errorf("%s: %+v", what, c)
		}
	}
	expect("at first", true, `ann: ann operator ["llm" "vision"]`, "past: nobody", `soon: soon admin []`, "bob: nobody")
	if c, ok := f.Token([32]byte{}); ok {
		t.Errorf("a hash of zeros is %v", c)
	}
	f.rewrite("tokens:\n" + tokenEntry("ann", "viewer", "") + tokenEntry("bob", "viewer", ""))
	expect("changed", true, `ann: ann viewer []`, `bob: bob viewer []`, "soon: nobody")
	f.rewrite("tokens: [")
	expect("broken", false, `ann: ann viewer []`)
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	f.pass()
	expect("gone", false, `ann: ann viewer []`)
	f.rewrite("tokens:\n" + ann)
	expect("mended", true, `ann: ann operator ["llm" "vision"]`, "bob: nobody")
	f.rewrite("")
	expect("empty", true, "ann: nobody")
	if _, err := openTokens(f.path+"x", f.clock, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file that is not there was opened")
	}
}

func TestGroupsAddUp(t *testing.T) {
	f := newTokensAt(t, 0, `
groups:
  - {name: a, role: viewer, projects: [a]}
  - {name: ab, role: operator, projects: [b, a]}
  - {name: readers, role: viewer}
  - {name: boss, role: admin}
`)
	for groups, want := range map[string]web.Identity{
		"":           {},
		"x":          {},
		"a":          {Role: web.Viewer, Projects: []string{"a"}},
		"a x ab":     {Role: web.Operator, Projects: []string{"a", "b"}},
		"ab readers": {Role: web.Viewer}, // operator of some projects is worth no more
		"a boss":     {Role: web.Admin},
	} {
		got, ok := f.Groups(strings.Fields(groups))
		if !reflect.DeepEqual(got, want) || ok != (want.Role > 0) {
			t.Errorf("%q: %+v %v, want %+v", groups, got, ok, want)
		}
	}
}

// A token and its entry belong together, and no two tokens are the same.
func TestNewToken(t *testing.T) {
	first, entry, err := NewToken("x: y #", web.Operator, []string{"a", "true", "*"}, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := NewToken("b", web.Viewer, nil, time.Time{})
	if err != nil || first == second || !strings.HasPrefix(first, "gpm_") || len(first) != 47 {
		t.Fatalf("%q and %q, %v", first, second, err)
	}
	f := newTokensAt(t, 0, "tokens:\n"+entry)
	if got, want := f.who(first), `x: y # operator ["a" "true" "*"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	sum := sha256.Sum256([]byte(first))
	if strings.Contains(entry, first) || !strings.Contains(entry, hex.EncodeToString(sum[:])) {
		t.Error(entry)
	}
	if _, _, err := NewToken("", web.Viewer, nil, time.Time{}); err == nil {
		t.Error("a token without a name was made")
	}
}

func TestSignInOptions(t *testing.T) {
	oidc := SignIn{Tokens: "f", PublicURL: "https://g.example", Issuer: "https://id.example", ClientID: "g"}
	with := func(s SignIn, change func(*SignIn)) SignIn { change(&s); return s }
	for _, c := range []struct {
		listen string
		s      SignIn
		want   string // in the fault; empty: it works
		note   string
	}{
		{"127.0.0.1:8080", SignIn{}, "", "no sign-in: only this machine can connect"},
		{"[::1]:8080", SignIn{}, "", "no sign-in: only this machine can connect"},
		{"localhost:0", SignIn{}, "", "no sign-in: only this machine can connect"},
		{"0.0.0.0:8080", SignIn{}, "--no-sign-in", ""},
		{":8080", SignIn{}, "--tokens FILE", ""},
		{"10.0.0.1:8080", SignIn{}, "can be reached from other machines", ""},
		{"127.0.0.1.example.com:80", SignIn{}, "can be reached from other machines", ""},
		{":8080", SignIn{Off: true}, "", "no sign-in: everybody who reaches it may do everything"},
		{":8080", SignIn{Tokens: "f"}, "", "sign-in with a token of f"},
		{":8080", SignIn{Tokens: "f", Off: true}, "contradict", ""},
		{":8080", oidc, "", "sign-in with https://id.example or a token of f"},
		{":8080", with(oidc, func(s *SignIn) { s.Issuer = "http://id.example" }), "not an https URL", ""},
		{":8080", with(oidc, func(s *SignIn) { s.Issuer = "http://127.0.0.1:5556" }), "", "sign-in with http://127.0.0.1:5556 or a token of f"},
		{":8080", with(oidc, func(s *SignIn) { s.PublicURL = "" }), "needs --public-url", ""},
		{"127.0.0.1:1", with(oidc, func(s *SignIn) { s.Tokens = "" }), "needs --tokens", ""},
		{":8080", with(oidc, func(s *SignIn) { s.ClientID = "" }), "needs --oidc-client-id", ""},
		{":8080", with(oidc, func(s *SignIn) { s.Issuer = "" }), "without --oidc-issuer", ""},
		{":8080", with(oidc, func(s *SignIn) { s.PublicURL = "g.example" }), "--public-url", ""},
		{":8080", with(oidc, func(s *SignIn) { s.PublicURL = "https://g.example/x" }), "without a path", ""},
	} {
		faults := fmt.Sprint(c.s.check(c.listen))
		if c.want == "" && faults != "[]" || !strings.Contains(faults, c.want) {
			t.Errorf("%s %+v: %s, want %s", c.listen, c.s, faults, c.want)
		}
		if got := c.s.note(c.listen); c.want == "" && got != c.note {
			t.Errorf("%s %+v: %s, want %s", c.listen, c.s, got, c.note)
		}
	}
}
