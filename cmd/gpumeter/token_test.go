package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/web"
)

func command(t *testing.T, line ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), line, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestTokenNew(t *testing.T) {
	code, out, errs := command(t, "token", "new", "--name", "ann", "--role", "viewer", "--project", "llm", "--project", "a: b", "--expires", "2027-01-01")
	token, entry, _ := strings.Cut(out, "\n")
	if code != 0 || errs != "" || !strings.HasPrefix(token, "gpm_") || !strings.HasPrefix(entry, "- name: ann\n  sha256: ") || strings.Contains(entry, token) || !strings.Contains(entry, "2027-01-01") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	if code, _, errs := command(t, "token", "new", "--name", "x", "--role", "admin", "--project", "a"); code != 0 || !strings.Contains(errs, "may read only") {
		t.Errorf("%d %s", code, errs)
	}
	for _, line := range []string{"token new", "token new --name x --role root", "token new --name x --expires soon", "token new --name x more", "token old"} {
		if code, out, errs := command(t, strings.Fields(line)...); code != exitUsage || out != "" || errs == "" {
			t.Errorf("%s: %d %s%s", line, code, out, errs)
		}
	}
}

// A command sends the token of the file or the environment, and nothing else takes one.
func TestTokenIsSent(t *testing.T) {
	t.Setenv(envToken, "")
	service, err := report.New(report.Options{Store: emptyStore{}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	handler := web.Handler(web.Deps{Reports: service, Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		if strings.Contains(r.URL.String(), "gpm_") {
			t.Errorf("%s has the token", r.URL)
		}
		if r.Header.Get("Authorization") == "Bearer gpm_bad" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"detail":"the token is not known here"}`)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("gpm_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  string
		more []string
		want string
	}{
		{"", nil, ""}, {" gpm_env\n", nil, "Bearer gpm_env"}, {"gpm_env", []string{"--token-file", file}, "Bearer gpm_file"},
	} {
		t.Setenv(envToken, c.env)
		got = nil
		if code, _, errs := command(t, append([]string{"report", "spend", "--url", s.URL}, c.more...)...); code != 0 || len(got) != 1 || got[0] != c.want {
			t.Errorf("%+v: %d %q %s", c, code, got, errs)
		}
	}
	t.Setenv(envToken, "gpm_bad")
	if code, _, errs := command(t, "report", "spend", "--url", s.URL); code != exitFailed || !strings.Contains(errs, "not known here; this command takes the token from $GPUMETER_TOKEN or --token-file") || strings.Contains(errs, "gpm_bad") {
		t.Errorf("%d %s", code, errs)
	}
	if err := os.WriteFile(file, []byte("two tokens\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{{"--token-file", file}, {"--token-file", file + "x"}, {"--token", "gpm_x"}} {
		if code, _, errs := command(t, append([]string{"report", "spend", "--url", s.URL}, line...)...); code == 0 || errs == "" {
			t.Errorf("%q: %d %s", line, code, errs)
		}
	}
}

// A server that others reach does not start without a sign-in by oversight.
func TestServeRefusesToBeOpen(t *testing.T) {
	t.Setenv(envTokens, "")
	for _, line := range []string{"serve --listen 0.0.0.0:0", "up --listen :0", "serve --listen :0 --no-sign-in --tokens x"} {
		code, _, errs := command(t, append(strings.Fields(line), "--data", t.TempDir())...)
		if code == 0 || !strings.Contains(errs, "--tokens") || !strings.Contains(errs, "--no-sign-in") {
			t.Errorf("%s: %d %s", line, code, errs)
		}
	}
}
