package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpumeter/gpumeter/internal/app"
)

func TestTimeFlags(t *testing.T) {
	for line, want := range map[string]string{
		"": "5m0s 10m0s []",
		"--future-tolerance 90s --grace 72h --grace-for a=1h --grace-for b=c=30m": "1m30s 72h0m0s [a=1h0m0s,b=c=30m0s]",
		"--grace-for a=1h --grace-for a=60m":                                      "5m0s 10m0s [a=1h0m0s]",
		"--grace-for a=1h --grace-for a=2h":                                       `tenant "a" cannot have both`,
		"--grace-for a":                                                           "not TENANT=DURATION",
		"--grace-for =1h":                                                         "not TENANT=DURATION",
		"--grace-for a=5":                                                         "not a duration above zero",
		"--grace 0":                                                               "not a duration above zero",
		"--future-tolerance -5m":                                                  "not a duration above zero",
	} {
		var o app.Options
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		toleranceFlag(f, &o)
		graceFlags(f, &o)
		got := ""
		if err := f.Parse(strings.Fields(line)); err != nil {
			got = err.Error()
		} else {
			got = o.FutureTolerance.String() + " " + o.Grace.Default.String() + " [" + f.Lookup("grace-for").Value.String() + "]"
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
	for _, command := range []string{"up", "serve"} {
		if code, _, stderr := gpumeter(t, nil, command, "--grace-for", "x"); code != 2 || !strings.Contains(stderr, "TENANT=DURATION") {
			t.Errorf("%s: exit code %d, %s", command, code, stderr)
		}
	}
	if code, _, stderr := gpumeter(t, nil, "consume", "--future-tolerance", "soon"); code != 2 || !strings.Contains(stderr, "duration") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if d := app.DefaultGrace; d != 10*time.Minute {
		t.Error(d)
	}
}
