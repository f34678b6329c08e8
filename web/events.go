package web

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/schema"
)

// Outcomes of one event.
const (
	Accepted    = "accepted"    // the stream has it
	Duplicate   = "duplicate"   // the stream had it already
	Rejected    = "rejected"    // it can never be taken as it is
	Unavailable = "unavailable" // the stream did not take it; offer it again unchanged
)

// EventsResult says what became of every event of a request.
type EventsResult struct {
	Accepted    int           `json:"accepted"`
	Duplicate   int           `json:"duplicate"`
	Rejected    int           `json:"rejected"`
	Unavailable int           `json:"unavailable"`
	Results     []EventResult `json:"results" doc:"One for each event, in the order of the request"`
}

// EventResult is the outcome of one event.
type EventResult struct {
	Index  int         `json:"index" doc:"Position in the request; -1 when the request as a whole could not be read"`
	Status string      `json:"status" enum:"accepted,duplicate,rejected,unavailable"`
	Kind   schema.Kind `json:"kind,omitempty" doc:"Kind of fault of a rejected event"`
	Reason string      `json:"reason,omitempty"`
}

// EventsProblem is the answer when not every event was taken and none, or not
// all of the rest, can be: a problem document that also has the results.
type EventsProblem struct {
	huma.ErrorModel
	EventsResult
}

type eventsInput struct {
	ContentType string `header:"Content-Type" doc:"application/cloudevents+json or application/cloudevents-batch+json; application/json is taken as whichever it looks like"`
	RawBody     []byte `contentType:"application/cloudevents+json"`
}

type eventsOutput struct {
	Status int
	Body   EventsResult
}

func (s *server) registerEvents() {
	if s.Ingest == nil {
		return
	}
	huma.Register(s.api, huma.Operation{
		OperationID: "putEvents", Method: http.MethodPost, Path: "/api/v1/events", Tags: []string{"events"},
		Summary: "Offer events to the stream",
		Description: "Answers after the stream has the events on disk. 200: all are taken. 207: some are, the others can never be. " +
			"422: none can be. 503: some or all have to be offered again, with the same ids; those already taken then count as duplicates.",
		// huma refuses a body of exactly its bound.
		MaxBodyBytes: schema.MaxMessageBytes + 1, BodyReadTimeout: 30 * time.Second, Errors: []int{413, 415, 422, 503},
		// The body is checked by the code that checks every other event.
		SkipValidateBody: true,
	}, s.putEvents)
	// huma describes a raw body as unnamed bytes; the document is to say more.
	event := &huma.Schema{Type: huma.TypeObject, Description: "A CloudEvents 1.0 event of a gpumeter type", AdditionalProperties: true}
	s.api.OpenAPI().Paths["/api/v1/events"].Post.RequestBody.Content = map[string]*huma.MediaType{
		schema.ContentTypeEvent: {Schema: event},
		schema.ContentTypeBatch: {Schema: &huma.Schema{Type: huma.TypeArray, Items: event}},
	}
}

func (s *server) putEvents(ctx context.Context, in *eventsInput) (*eventsOutput, error) {
	contentType, err := eventContentType(in.ContentType)
	if err != nil {
		return nil, err
	}
	result, messages, places := s.decode(contentType, in.RawBody)
	if len(messages) > 0 {
		receipts, err := s.Ingest(ctx, messages)
		if err == nil && len(receipts) != len(messages) {
			err = fmt.Errorf("%d receipts for %d messages", len(receipts), len(messages))
		}
		if err != nil {
			s.Log.Warn("events not taken", "events", len(messages), "err", err)
		}
		result.receive(places, receipts, err)
	}
	return result.answer()
}

// eventContentType returns the type to decode by; "" leaves it to the content.
// A type that a web page may send without asking first is not accepted.
func eventContentType(header string) (string, error) {
	media, _, err := mime.ParseMediaType(header)
	switch {
	case err == nil && (media == schema.ContentTypeEvent || media == schema.ContentTypeBatch):
		return media, nil
	case err == nil && media == "application/json":
		return "", nil
	}
	return "", huma.Error415UnsupportedMediaType(fmt.Sprintf("Content-Type %q is neither %s nor %s", clip(header), schema.ContentTypeEvent, schema.ContentTypeBatch))
}

// decode reads the events of a request. Messages come in the order of the
// request: of two that contradict each other, the first one counts.
func (s *server) decode(contentType string, body []byte) (*EventsResult, []schema.Message, []int) {
	d := schema.Decode(contentType, body)
	result := &EventsResult{Results: []EventResult{}}
	reject := func(place int, err error) {
		result.add(EventResult{Index: place, Status: Rejected, Kind: schema.KindOf(err), Reason: err.Error()})
	}
	for _, r := range d.Rejects {
		reject(r.Place, r.Err)
	}
	events := make([]schema.Placed[schema.Event], 0, len(d.Usage)+len(d.Other))
	for i := range d.Usage {
		events = append(events, schema.Placed[schema.Event]{Event: schema.Event{Usage: &d.Usage[i].Event}, Place: d.Usage[i].Place})
	}
	events = append(events, d.Other...)
	slices.SortFunc(events, func(a, b schema.Placed[schema.Event]) int { return int(a.Place) - int(b.Place) })
	messages, places := make([]schema.Message, 0, len(events)), make([]int, 0, len(events))
	for i := range events {
		m := schema.MessageOf(s.Tenant, &events[i].Event)
		if len(m.Payload) > schema.MaxMessageBytes {
			reject(int(events[i].Place), &schema.Error{Kind: schema.KindTooLarge, Msg: fmt.Sprintf("%d bytes in canonical form, at most %d are allowed", len(m.Payload), schema.MaxMessageBytes)})
			continue
		}
		messages, places = append(messages, m), append(places, int(events[i].Place))
	}
	return result, messages, places
}

// receive enters the stream's answers; after err nothing is known to be taken.
func (r *EventsResult) receive(places []int, receipts []schema.Receipt, err error) {
	for i, place := range places {
		result := EventResult{Index: place, Status: Accepted}
		switch {
		case err != nil:
			result.Status, result.Reason = Unavailable, clip(err.Error())
		case receipts[i].Err != nil:
			result.Status, result.Reason = Unavailable, clip(receipts[i].Err.Error())
		case receipts[i].Duplicate:
			result.Status = Duplicate
		}
		r.add(result)
	}
}

func (r *EventsResult) add(e EventResult) {
	switch e.Status {
	case Accepted:
		r.Accepted++
	case Duplicate:
		r.Duplicate++
	case Rejected:
		r.Rejected++
	case Unavailable:
		r.Unavailable++
	}
	r.Results = append(r.Results, e)
}

// answer chooses the status so that a sender who looks at nothing else never
// believes that an event was taken when it was not.
func (r *EventsResult) answer() (*eventsOutput, error) {
	slices.SortStableFunc(r.Results, func(a, b EventResult) int { return a.Index - b.Index })
	switch taken := r.Accepted + r.Duplicate; {
	case r.Unavailable > 0:
		err := r.problem(http.StatusServiceUnavailable, "the stream did not take every event; offer them again unchanged")
		return nil, huma.ErrorWithHeaders(err, http.Header{"Retry-After": {"1"}})
	case taken > 0 && r.Rejected > 0:
		return &eventsOutput{Status: http.StatusMultiStatus, Body: *r}, nil
	case r.Rejected > 0 && r.Results[0].Index < 0 && r.Results[0].Kind == schema.KindTooLarge:
		return nil, r.problem(http.StatusRequestEntityTooLarge, r.Results[0].Reason)
	case r.Rejected > 0:
		return nil, r.problem(http.StatusUnprocessableEntity, "no event can be taken: "+r.Results[0].Reason)
	}
	return &eventsOutput{Status: http.StatusOK, Body: *r}, nil
}

func (r *EventsResult) problem(status int, detail string) error {
	return &EventsProblem{
		ErrorModel:   huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail},
		EventsResult: *r,
	}
}

var _ huma.StatusError = (*EventsProblem)(nil)
