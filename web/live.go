package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/report"
)

// heartbeatEvery is how often a stream says that it is still there, so that proxies keep
// it open and a page notices when it is not.
const heartbeatEvery = 15 * time.Second

// writeLimit bounds one write to a client that does not read.
const writeLimit = 10 * time.Second

// registerLive registers the stream of live figures. All who ask the same share one
// answer, computed when what is stored has changed; they cost a write each.
func (s *server) registerLive() {
	huma.Register(s.api, huma.Operation{
		OperationID: "live", Method: http.MethodGet, Path: livePath, Tags: []string{"dashboard"},
		Summary: "The overview, whenever it has changed, as server-sent events",
		Description: "Events are called overview and hold what " + overviewPath + " answers for the month to date. An event called problem holds a problem document; the stream ends after it. " +
			"Comments in between say that the stream is alive.",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
		Errors:    []int{422},
	}, func(ctx context.Context, in *LiveQuestion) (*huma.StreamResponse, error) {
		p := report.OverviewParams{Tenant: s.Tenant, Zone: in.Zone, Filter: in.filter, Projects: scopeOf(ctx)}
		// The first answer comes before the head, so that a wrong question is an error.
		if _, err := s.overview(ctx, p); err != nil {
			return nil, s.problem(ctx, "the overview", err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) { s.stream(hc, p) }}, nil
	})
}

// stream writes overviews until the client goes, the server stops or the asker may no
// longer see them.
func (s *server) stream(hc huma.Context, p report.OverviewParams) {
	hc.SetHeader("Content-Type", "text/event-stream")
	hc.SetHeader("Cache-Control", "no-store")
	hc.SetHeader("X-Accel-Buffering", "no") // nginx would hold events back
	out := hc.BodyWriter()
	control := http.NewResponseController(responseWriter(out))
	write := func(parts ...[]byte) error {
		// Only a ResponseWriter without a connection has no deadline to move.
		_ = control.SetWriteDeadline(time.Now().Add(writeLimit))
		for _, part := range parts {
			if _, err := out.Write(part); err != nil {
				return err
			}
		}
		return control.Flush()
	}
	ctx, cancel := context.WithCancel(hc.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	err := s.overviews.watch(ctx, nameOf(p), heartbeatEvery, s.computeOverview(p), func(v any) error {
		return write([]byte("event: overview\ndata: "), v.(*shownOverview).text, []byte("\n\n"))
	}, func() error {
		if err := stillSees(ctx, p.Projects); err != nil {
			return err
		}
		return write([]byte(": alive\n\n"))
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, http.ErrHandlerTimeout) {
		_ = write([]byte(fmt.Sprintf("event: problem\ndata: {\"title\":\"the stream ended\",\"detail\":%q}\n\n", clip(err.Error()))))
	}
}

func responseWriter(out any) http.ResponseWriter {
	w, _ := out.(http.ResponseWriter)
	return w
}
