package web

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/schema"
)

// QuarantineItem is a quarantined message or event with its Ref.
type QuarantineItem struct {
	Ref string `json:"ref" doc:"Names the item in a request to drive it again"`
	schema.QuarantinedItem
}

// QuarantinePage is one page of the quarantine.
type QuarantinePage struct {
	Items []QuarantineItem `json:"items"`
	Next  string           `json:"next" doc:"The after of the next page; empty on the last one"`
}

// RedriveRequest chooses what to offer to the stream again: All or Refs.
type RedriveRequest struct {
	All  bool     `json:"all,omitempty" doc:"Everything not driven again yet, without events that are held until their time"`
	Refs []string `json:"refs,omitempty" maxItems:"1000" doc:"The ref of each item"`
}

// RedriveResult counts what the stream took.
type RedriveResult struct {
	Redriven int `json:"redriven"`
}

type body[T any] struct{ Body T }

func (s *server) registerQuarantine() {
	if s.Quarantine == nil {
		return
	}
	huma.Register(s.api, huma.Operation{
		OperationID: "listQuarantine", Method: http.MethodGet, Path: "/api/v1/quarantine", Tags: []string{"quarantine"},
		Summary: "What could not be accepted, whole and with the reason", Errors: []int{422, 500},
	}, func(ctx context.Context, in *struct {
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		After string `query:"after" doc:"The next of the page before"`
	}) (*body[QuarantinePage], error) {
		items, next, err := s.Quarantine.List(ctx, s.Tenant, in.Limit, in.After)
		if err != nil {
			return nil, s.problem(ctx, "listing the quarantine", err)
		}
		page := QuarantinePage{Items: []QuarantineItem{}, Next: next}
		for i := range items {
			page.Items = append(page.Items, QuarantineItem{Ref: RefOf(&items[i]).String(), QuarantinedItem: items[i]})
		}
		return &body[QuarantinePage]{page}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "redriveQuarantine", Method: http.MethodPost, Path: "/api/v1/quarantine/redrive", Tags: []string{"quarantine"},
		Summary: "Offer quarantined items to the stream again", Errors: []int{404, 422, 500},
		Description: "Harmless to repeat: an item that was taken before counts once.",
	}, s.redrive)
}

func (s *server) redrive(ctx context.Context, in *body[RedriveRequest]) (*body[RedriveResult], error) {
	if in.Body.All == (len(in.Body.Refs) > 0) {
		return nil, huma.Error422UnprocessableEntity(`give either "all": true or "refs"`)
	}
	var refs []Ref
	for _, text := range in.Body.Refs {
		ref, err := ParseRef(text)
		if err != nil {
			return nil, huma.Error422UnprocessableEntity(err.Error())
		}
		refs = append(refs, ref)
	}
	n, err := s.Quarantine.Redrive(ctx, s.Tenant, refs)
	if err != nil {
		return nil, s.problem(ctx, "driving again", err)
	}
	return &body[RedriveResult]{RedriveResult{Redriven: n}}, nil
}

// Health is the answer of /healthz.
type Health struct {
	Status string `json:"status" enum:"ok"`
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready      bool        `json:"ready"`
	Components []Component `json:"components"`
}

type readyOutput struct {
	Status int
	Body   Readiness
}

func (s *server) registerHealth() {
	if s.Status != nil {
		huma.Register(s.api, huma.Operation{
			OperationID: "status", Method: http.MethodGet, Path: "/api/v1/status", Tags: []string{"operation"},
			Summary: "What the program is doing", Errors: []int{500},
		}, func(ctx context.Context, _ *struct{}) (*body[any], error) {
			status, err := s.Status(ctx)
			if err != nil {
				return nil, s.problem(ctx, "the status", err)
			}
			return &body[any]{status}, nil
		})
	}
	huma.Register(s.api, huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Tags: []string{"operation"},
		Summary: "Whether the process answers at all; see readyz for whether it makes progress",
	}, func(context.Context, *struct{}) (*body[Health], error) {
		return &body[Health]{Health{Status: "ok"}}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: []string{"operation"},
		Summary:   "Whether every component makes progress; 503 when one does not",
		Responses: map[string]*huma.Response{"503": {Description: "Not ready; the body is the same as for 200"}},
	}, func(ctx context.Context, _ *struct{}) (*readyOutput, error) {
		out := &readyOutput{Status: http.StatusOK, Body: Readiness{Ready: true, Components: []Component{}}}
		if s.Ready != nil {
			out.Body.Components = append(out.Body.Components, s.Ready()...)
		}
		for i := range out.Body.Components {
			c := &out.Body.Components[i]
			if !c.Ready {
				out.Status, out.Body.Ready = http.StatusServiceUnavailable, false
			}
			if !identityOf(ctx).whole() {
				c.Detail = "" // it may name anything; probes need the states only
			}
		}
		return out, nil
	})
}
