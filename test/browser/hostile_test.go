//go:build browser

package browser_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// hostile are names that are scripts to whoever takes them for HTML, and the span in
// which they were used.
type hostile struct {
	Image string `json:"image"` // an instance, a project, an owner and a label
	Quote string `json:"quote"` // the same, of another instance
	From  string `json:"from"`
	To    string `json:"to"`
}

// ingestHostile sends usage and a lease under such names, and waits until it counts.
func ingestHostile(t *testing.T, server string) hostile {
	t.Helper()
	to := time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)
	h := hostile{Image: "<img src=x onerror=alert(1)>", Quote: `"><script>alert(2)</script>`, From: to.Add(-time.Hour).Format(time.RFC3339), To: to.Format(time.RFC3339)}
	type object = map[string]any
	var events []object
	send := func(kind, id string, data object) {
		events = append(events, object{"specversion": "1.0", "type": "gpumeter." + kind + ".v1", "source": "hostile", "id": id, "data": data})
	}
	for i, name := range []string{h.Image, h.Quote} {
		owner := object{"owner": name, "label": name}
		send("lease", fmt.Sprint("lease ", i), object{"instance": name, "at": h.From, "state": "running", "gpus": 1, "project": name,
			"platform": "aliyun", "region": name, "model": "NVIDIA H100 80GB HBM3", "labels": owner})
		send("lease", fmt.Sprint("end ", i), object{"instance": name, "at": h.To, "state": "released"})
		send("usage", fmt.Sprint("usage ", i), object{"unit": fmt.Sprint(name, i), "node": name, "start": h.From, "end": h.To, "instance": name, "project": name,
			"platform": "aliyun", "region": name, "model": "NVIDIA H100 80GB HBM3", "utilization": 0.5, "labels": owner})
	}
	batch, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	post(t, server, batch)
	q := url.Values{"from": {h.From}, "to": {h.To}}
	err = process.Await(patience, "the names that are scripts are in a report", func() error {
		for _, name := range []string{h.Image, h.Quote} {
			q.Set("project", name)
			var report struct {
				Totals struct {
					Allocated int64 `json:"allocated_ms"`
				} `json:"totals"`
			}
			if err := get(server+"/api/v1/reports/spend?"+q.Encode(), &report); err != nil {
				return err
			}
			if report.Totals.Allocated == 0 {
				return errors.New("nothing of " + name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
