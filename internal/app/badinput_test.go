package app

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// A wrong question to any route is answered with what is wrong with it, never with
// figures and never with a fault of the server; names that are SQL or scripts are names.
func TestBadInput(t *testing.T) {
	s := newSceneOfTwo(t)
	spanned := []string{
		"/api/v1/reports/spend", "/api/v1/explain", "/api/v1/overview", "/api/v1/projects", "/api/v1/instances", "/api/v1/units", "/api/v1/leases",
		"/api/v1/instances/web-alpha", "/api/v1/instances/web-alpha/timeline", "/api/v1/instances/web-alpha/charges",
	}
	wrong := []string{
		"zone=Mars/Olympus", "zone=Local", "zone=../../etc/passwd", "from=yesterday", "to=2026-13-01", "from=2026-03-09&to=2026-03-01", "from=1000-01-01", "to=9999-12-31",
		"as_of=never", "as_of=2026-03-01T00:00:00.0001Z", "from=2026-03-01&from=2026-03-02", "projekt=a", "from=%00", "zone=" + strings.Repeat("x", 5000),
	}
	filtered := []string{"filter=x", "filter=cost=1", "filter=day=2026-03-01", "label=no-equals", "project=a&filter=project=b"}
	for _, path := range spanned {
		for _, query := range wrong {
			s.refused(path + "?" + query)
		}
		if !strings.Contains(path, "web-alpha") {
			for _, query := range filtered {
				s.refused(path + "?" + query)
			}
		}
	}
	for _, path := range []string{
		"/api/v1/instances?after=x", "/api/v1/instances?after=" + strings.Repeat("A", 9000), "/api/v1/instances?limit=0", "/api/v1/instances?limit=501", "/api/v1/instances?limit=1e3",
		"/api/v1/instances?sort=price%27--", "/api/v1/instances?order=up", "/api/v1/instances?q=" + strings.Repeat("q", 201), "/api/v1/units?after=x", "/api/v1/units?limit=-1",
		"/api/v1/leases?after=x", "/api/v1/leases?limit=100000", "/api/v1/instances/web-alpha/charges?after=x", "/api/v1/instances/web-alpha/timeline?step=week",
		"/api/v1/instances/web-alpha/timeline?step=minute&from=2001-01-01&to=2099-01-01", "/api/v1/projects?share=fair", "/api/v1/explain?after=x", "/api/v1/explain?limit=1001",
		"/api/v1/reports/spend?by=hour&from=2001-01-01&to=2099-01-01", "/api/v1/reports/profit", "/api/v1/reports/spend?by=project&limit=5&after=x", "/api/v1/live?zone=Mars", "/api/v1/live?to=2026-03-01",
	} {
		s.refused(path)
	}
	for _, name := range []string{"'; DROP TABLE usage_hour; --", `\'`, "a' OR '1'='1", `"><script>alert(1)</script>`, "\t\n\u202e"} {
		for _, path := range []string{
			"/api/v1/reports/spend?by=instance&project=NAME&", "/api/v1/reports/spend?label=team%3DNAME&", "/api/v1/reports/spend?filter=label:NAME%3Dx&", "/api/v1/reports/spend?by=label:NAME&", "/api/v1/explain?instance=NAME&",
			"/api/v1/overview?model=NAME&", "/api/v1/instances?q=NAME&", "/api/v1/instances?region=NAME&", "/api/v1/units?unit=NAME&", "/api/v1/leases?instance=NAME&", "/api/v1/projects?platform=NAME&",
			"/api/v1/instances/NAME/timeline?", "/api/v1/instances/NAME/charges?",
		} {
			path = strings.Replace(path, "NAME", url.QueryEscape(name), 1) + scopeSpan
			if strings.Contains(path, "/instances/") {
				path = strings.ReplaceAll(path, "+", "%20")
			}
			code, text := s.ask("all", "GET", path, "")
			// A browser takes it for data, whatever is in it: the type says JSON, and nosniff.
			if code != 200 && code != 422 || strings.Contains(text, "DB::Exception") || !json.Valid([]byte(text)) {
				t.Errorf("%s: %d %.300s", path, code, text)
			}
		}
	}
	if code, text := s.ask("all", "GET", "/api/v1/instances/nothing-like-it?"+scopeSpan, ""); code != 404 {
		t.Errorf("an instance that is not there: %d %s", code, text)
	}
	if code, text := s.ask("all", "GET", "/api/v1/reports/spend?"+scopeSpan, ""); code != 200 || !strings.Contains(text, `"allocated_ms":`) || strings.Contains(text, `"allocated_ms":0,`) {
		t.Errorf("figures after all of this: %d %s", code, text)
	}
}

// refused fails when a question is not answered with a problem document of 4xx that says
// what is wrong.
func (s *sceneOfTwo) refused(path string) {
	s.t.Helper()
	code, text := s.ask("all", "GET", path, "")
	var problem struct {
		Status int    `json:"status"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	err := json.Unmarshal([]byte(text), &problem)
	if code < 400 || code > 499 || err != nil || problem.Status != code || problem.Detail == "" || len(text) > 4000 {
		s.t.Errorf("%.200s: %d %v %.400s", path, code, err, text)
	}
}
