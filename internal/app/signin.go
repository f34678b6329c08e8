package app

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpumeter/gpumeter/web"
)

// SignIn says who may use HTTP.
type SignIn struct {
	Tokens    string // tokens file; empty = no sign-in
	Off       bool   // there is to be none, although other machines reach the server
	PublicURL string // how browsers reach the server

	Issuer     string // of OpenID Connect; empty = tokens only
	ClientID   string
	SecretFile string // file of the client's secret; empty = a public client
	Groups     string // claim of the id token that lists groups; default groups
}

// check finds what cannot work, each fault with its flag.
func (s *SignIn) check(listen string) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	set(&s.Groups, "groups")
	if s.PublicURL != "" {
		u, err := url.Parse(s.PublicURL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			fault("--public-url %q is not an URL without a path, such as https://gpumeter.example.com", s.PublicURL)
		}
	}
	switch {
	case s.Tokens != "" && s.Off:
		fault("--tokens and --no-sign-in contradict each other; give one of them")
	case s.Tokens == "" && !s.Off && !loopback(listen):
		fault("--listen %s can be reached from other machines, and there is no sign-in; give --tokens FILE (gpumeter token new makes an entry of it), listen on 127.0.0.1, or say with --no-sign-in that everybody who reaches it may do everything", listen)
	}
	if s.Issuer == "" {
		if s.ClientID != "" || s.SecretFile != "" {
			fault("--oidc-client-id and --oidc-client-secret-file say nothing without --oidc-issuer")
		}
		return faults
	}
	u, err := url.Parse(s.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Host)) {
		fault("--oidc-issuer %q is not an https URL", s.Issuer)
	}
	for flag, value := range map[string]string{"--oidc-client-id": s.ClientID, "--public-url": s.PublicURL, "--tokens": s.Tokens} {
		if value == "" {
			fault("--oidc-issuer needs %s, too", flag)
		}
	}
	return faults
}

// loopback says whether only the own machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// note is what the ready line says of the sign-in.
func (s *SignIn) note(listen string) string {
	switch {
	case s.Issuer != "":
		return "sign-in with " + s.Issuer + " or a token of " + s.Tokens
	case s.Tokens != "":
		return "sign-in with a token of " + s.Tokens
	case loopback(listen):
		return "no sign-in: only this machine can connect"
	}
	return "no sign-in: everybody who reaches it may do everything"
}

// build makes what the web stage needs; directory is nil without sign-in.
func (s *SignIn) build(listen string, clock Clock, log *slog.Logger) (in web.SignIn, directory *tokensFile, err error) {
	in = web.SignIn{Now: clock.Now, OwnHosts: s.Tokens == "" && (loopback(listen) || s.PublicURL != "")}
	if s.PublicURL != "" {
		if in.PublicURL, err = url.Parse(s.PublicURL); err != nil {
			return in, nil, fmt.Errorf("--public-url: %w", err)
		}
	}
	if s.Tokens == "" {
		return in, nil, nil
	}
	if directory, err = openTokens(s.Tokens, clock, log); err != nil {
		return in, nil, fmt.Errorf("--tokens: %w", err)
	}
	in.Directory = directory
	if s.Issuer != "" {
		secret, err := s.secret()
		if err != nil {
			return in, nil, fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
		in.OIDC = &web.OIDC{Issuer: s.Issuer, ClientID: s.ClientID, ClientSecret: secret, GroupsClaim: s.Groups}
	}
	return in, directory, nil
}

func (s *SignIn) secret() (string, error) {
	if s.SecretFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(s.SecretFile)
	if err == nil && len(bytes.TrimSpace(b)) == 0 {
		err = fmt.Errorf("%s is empty", s.SecretFile)
	}
	return string(bytes.TrimSpace(b)), err
}

// Bounds of the tokens file.
const (
	maxTokensBytes = 4 << 20
	tokensEvery    = time.Second // between two looks at it
)

// tokensFile answers from a tokens file, and reads it again when it has changed: it looks
// when it is asked, at most once a second. While the file is gone or has a fault, what it
// said before counts, and readiness fails: a slip must not lock everybody out.
type tokensFile struct {
	path  string
	clock Clock
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	data   []byte
	book   *tokenBook
	err    error // of the last look
}

var _ web.Directory = (*tokensFile)(nil)

func openTokens(path string, clock Clock, log *slog.Logger) (*tokensFile, error) {
	f := &tokensFile{path: path, clock: clock, log: log, book: &tokenBook{}}
	f.current()
	return f, f.err
}

// current is the book that counts now.
func (f *tokensFile) current() *tokenBook {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < tokensEvery {
		return f.book
	}
	f.looked = time.Now()
	data, err := readTokens(f.path)
	if err == nil && f.err == nil && f.data != nil && bytes.Equal(data, f.data) {
		return f.book
	}
	var book *tokenBook
	if err == nil {
		book, err = parseTokens(f.path, data)
	}
	if err != nil {
		if f.err == nil || f.err.Error() != err.Error() {
			f.log.Error("the tokens file cannot be read; what it said before counts", "err", err)
		}
		f.err = err
		return f.book
	}
	f.data, f.book, f.err = append([]byte{}, data...), book, nil
	return f.book
}

func readTokens(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxTokensBytes+1))
	if err == nil && len(data) > maxTokensBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxTokensBytes)
	}
	return data, err
}

// component says for readiness whether the file can be read.
func (f *tokensFile) component() web.Component {
	book := f.current()
	f.mu.Lock()
	defer f.mu.Unlock()
	c := web.Component{Name: "tokens", Ready: f.err == nil, Detail: fmt.Sprintf("%d tokens and %d groups", len(book.tokens), len(book.groups))}
	if f.err != nil {
		c.Detail = "what the file said before counts: " + f.err.Error()
	}
	return c
}

// Token implements web.Directory. It compares with every token, each in constant time.
func (f *tokensFile) Token(sum [sha256.Size]byte) (web.Identity, bool) {
	book := f.current()
	found := -1
	for i := range book.tokens {
		if subtle.ConstantTimeCompare(book.tokens[i].sum[:], sum[:]) == 1 {
			found = i
		}
	}
	if found < 0 || f.over(&book.tokens[found]) {
		return web.Identity{}, false
	}
	return book.tokens[found].Identity, true
}

func (f *tokensFile) over(h *holder) bool {
	return !h.expires.IsZero() && !f.clock.Now().Before(h.expires)
}

// Groups implements web.Directory: members of several groups may do what any of them
// may. A role above viewer is worth something with all projects only, so the roles of
// groups with some projects do not add to one of all.
func (f *tokensFile) Groups(groups []string) (who web.Identity, ok bool) {
	all, some := web.Role(0), web.Role(0)
	projects := []string{}
	for _, h := range f.current().groups {
		switch {
		case !slices.Contains(groups, h.Name):
		case h.Projects == nil:
			all = max(all, h.Role)
		default:
			some = max(some, h.Role)
			projects = append(projects, h.Projects...)
		}
	}
	switch {
	case all > 0:
		return web.Identity{Role: all}, true
	case some > 0:
		slices.Sort(projects)
		return web.Identity{Role: some, Projects: slices.Compact(projects)}, true
	}
	return web.Identity{}, false
}
