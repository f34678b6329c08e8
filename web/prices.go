package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Prices keeps the versions of price books, contracts and platform profiles. Its
// errors are *report.RequestError, *report.ConflictError, *InvalidDocument,
// ErrNotFound, or what storage says.
type Prices interface {
	// Apply makes documents known from now on: all of them, or none when one is not
	// valid or changes a closed period without a Force.
	Apply(ctx context.Context, tenant string, r ApplyRequest) (*AppliedPrices, error)
	// Withdraw ends a contract or a profile from now on.
	Withdraw(ctx context.Context, tenant, kind, name string, r ApplyRequest) (*AppliedPrices, error)
	// List returns every document that was ever applied, with all of its versions.
	List(ctx context.Context, tenant string) (*PriceList, error)
	// Content returns a version, named by its version or its content hash, as it was
	// given; without one, the version that is in force. With it comes its description.
	Content(ctx context.Context, tenant, kind, name, version string) ([]byte, *PriceVersion, error)
}

// ApplyRequest asks for documents to be applied.
type ApplyRequest struct {
	Documents []PriceFile
	By        string
	Reason    string
	Force     string // why to apply it although it changes closed periods
	DryRun    bool   // only say what would change
}

// PriceFile is a document as its author wrote it.
type PriceFile struct {
	File    string `json:"file" doc:"Name in messages"`
	Content string `json:"content" doc:"YAML"`
}

// PriceVersion is a version of a document.
type PriceVersion struct {
	Version   string `json:"version" doc:"Digest of what it says, as figures show it; empty when withdrawn"`
	Hash      string `json:"content_hash" doc:"SHA-256 of its bytes; empty when withdrawn"`
	AppliedAt string `json:"applied_at" doc:"Answers as of an earlier instant do not see it"`
	AppliedBy string `json:"applied_by"`
	Reason    string `json:"reason"`
	Forced    string `json:"forced" doc:"Why it was applied although it changes closed periods; empty: it changes none"`
	Withdrawn bool   `json:"withdrawn"`
}

// PriceDocument is a document with its history.
type PriceDocument struct {
	Kind     string         `json:"kind" enum:"book,contract,profile"`
	Name     string         `json:"name"`
	Current  *PriceVersion  `json:"current" doc:"Null when it is withdrawn"`
	Versions []PriceVersion `json:"versions" doc:"In the order of applying"`
}

// PriceList is all that was ever applied.
type PriceList struct {
	Documents []PriceDocument `json:"documents"`
}

// AppliedPrices says what applying did, or would do.
type AppliedPrices struct {
	DryRun bool `json:"dry_run"`
	// Refused is of a dry run only: otherwise the answer is an error.
	Refused   string            `json:"refused,omitempty" doc:"Of a dry run: why it cannot be applied as it was asked for"`
	Documents []AppliedDocument `json:"documents"`
}

// AppliedDocument is what became of one document.
type AppliedDocument struct {
	File          string       `json:"file"`
	Kind          string       `json:"kind" enum:"book,contract,profile"`
	Name          string       `json:"name"`
	Unchanged     bool         `json:"unchanged" doc:"It is in force already, byte for byte; no version was made"`
	Previous      string       `json:"previous" doc:"Version that was in force; empty: none"`
	Version       PriceVersion `json:"version" doc:"Of a dry run without applied_at"`
	Changes       []string     `json:"changes" doc:"What changes, one line each; at most 100"`
	ChangesTotal  int          `json:"changes_total"`
	ClosedPeriods []string     `json:"closed_periods" doc:"Closed periods that it changes; they get an adjustment in the next statement"`
}

// InvalidDocument says what is wrong with documents; nothing was applied.
type InvalidDocument struct{ Faults []DocumentFault }

// DocumentFault is one thing that is wrong in a document.
type DocumentFault struct {
	Place string // FILE:LINE:COLUMN, as far as known
	Msg   string
}

// Error lists all faults.
func (e *InvalidDocument) Error() string {
	var list []string
	for _, f := range e.Faults {
		list = append(list, f.Place+": "+f.Msg)
	}
	return strings.Join(list, "; ")
}

// maxPricesBytes bounds a request to apply, some large documents together.
const maxPricesBytes = 32 << 20

// PricesQuery is what every version says of itself.
type PricesQuery struct {
	By     string `query:"by" doc:"Who applies it" required:"true"`
	Reason string `query:"reason" doc:"Why" required:"true"`
	Force  string `query:"force" doc:"Why to apply it although it changes closed periods; it is stored"`
	DryRun bool   `query:"dry_run" doc:"Only say what would change"`
	TenantQuery
}

func (q *PricesQuery) request() ApplyRequest {
	return ApplyRequest{By: q.By, Reason: q.Reason, Force: q.Force, DryRun: q.DryRun}
}

// DocumentPath names a document.
type DocumentPath struct {
	Kind string `path:"kind" enum:"book,contract,profile"`
	Name string `path:"name" doc:"default, the id of a contract, the platform of a profile"`
}

type applyInput struct {
	PricesQuery
	File        string `query:"file" default:"document" doc:"Name of the document in messages"`
	ContentType string `header:"Content-Type"`
	RawBody     []byte `contentType:"application/yaml"`
}

func (s *server) registerPrices() {
	if s.Prices == nil {
		return
	}
	huma.Register(s.api, huma.Operation{
		OperationID: "listPrices", Method: http.MethodGet, Path: pricesPath, Tags: []string{"prices"},
		Summary: "Price book, contracts and platform profiles, with all their versions", Errors: []int{422, 500, 504},
	}, func(ctx context.Context, in *TenantQuery) (*body[*PriceList], error) {
		if err := s.ownTenant(in.Tenant); err != nil {
			return nil, err
		}
		list, err := s.Prices.List(ctx, s.Tenant)
		if err != nil {
			return nil, s.problem(ctx, "listing the prices", err)
		}
		return &body[*PriceList]{list}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "applyPrices", Method: http.MethodPost, Path: pricesPath, Tags: []string{"prices"},
		Summary: "Apply documents as new versions",
		Description: "The body is one document in YAML, or JSON with several: all of them are applied, or none. " +
			"409: a closed period would change and no force is given. 422: a document is not valid; errors name the place.",
		MaxBodyBytes: maxPricesBytes, BodyReadTimeout: 30 * time.Second, Errors: []int{409, 413, 415, 422, 500, 504},
		SkipValidateBody: true, // the documents' own parser says more
	}, s.applyPrices)
	s.api.OpenAPI().Paths[pricesPath].Post.RequestBody.Content = map[string]*huma.MediaType{
		"application/yaml": {Schema: &huma.Schema{Type: huma.TypeString, Description: "A price book, a contract or a profile"}},
		"application/json": {Schema: &huma.Schema{Type: huma.TypeObject, Description: `{"documents":[{"file":NAME,"content":YAML}]}`, AdditionalProperties: true}},
	}
	s.registerPriceDocument()
}

func (s *server) registerPriceDocument() {
	huma.Register(s.api, huma.Operation{
		OperationID: "priceDocument", Method: http.MethodGet, Path: pricesPath + "/{kind}/{name}", Tags: []string{"prices"},
		Summary:   "A version of a document as it was given",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/yaml": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
		Errors:    []int{404, 422, 500, 504},
	}, func(ctx context.Context, in *struct {
		DocumentPath
		Version string `query:"version" doc:"Version or content hash. Default: the version in force."`
		TenantQuery
	}) (*hashOutput, error) {
		if err := s.ownTenant(in.Tenant); err != nil {
			return nil, err
		}
		content, v, err := s.Prices.Content(ctx, s.Tenant, in.Kind, in.Name, in.Version)
		if err != nil {
			return nil, s.pricesProblem(ctx, "the document", err)
		}
		return &hashOutput{ContentType: "application/yaml; charset=utf-8", ETag: `"` + v.Hash + `"`, Body: content}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "withdrawPrices", Method: http.MethodDelete, Path: pricesPath + "/{kind}/{name}", Tags: []string{"prices"},
		Summary:     "Withdraw a contract or a profile from now on",
		Description: "Its versions stay, and answers as of an earlier instant still use it. 409: a closed period would change and no force is given.",
		Errors:      []int{404, 409, 422, 500, 504},
	}, func(ctx context.Context, in *struct {
		DocumentPath
		PricesQuery
	}) (*body[*AppliedPrices], error) {
		if err := s.ownTenant(in.Tenant); err != nil {
			return nil, err
		}
		applied, err := s.Prices.Withdraw(ctx, s.Tenant, in.Kind, in.Name, in.request())
		if err != nil {
			return nil, s.pricesProblem(ctx, "withdrawing", err)
		}
		return &body[*AppliedPrices]{applied}, nil
	})
}

func (s *server) applyPrices(ctx context.Context, in *applyInput) (*body[*AppliedPrices], error) {
	if err := s.ownTenant(in.Tenant); err != nil {
		return nil, err
	}
	r := in.request()
	// A type that a web page may send without asking first is not accepted.
	switch media, _, err := mime.ParseMediaType(in.ContentType); {
	case err == nil && (media == "application/yaml" || media == "application/x-yaml"):
		r.Documents = []PriceFile{{File: in.File, Content: string(in.RawBody)}}
	case err == nil && media == "application/json":
		var list struct {
			Documents []PriceFile `json:"documents"`
		}
		if err := json.Unmarshal(in.RawBody, &list); err != nil {
			return nil, huma.Error422UnprocessableEntity(`the body is not {"documents":[{"file":NAME,"content":YAML}]}: ` + clip(err.Error()))
		}
		r.Documents = list.Documents
	default:
		return nil, huma.Error415UnsupportedMediaType(fmt.Sprintf("Content-Type %q is neither application/yaml nor application/json", clip(in.ContentType)))
	}
	applied, err := s.Prices.Apply(ctx, s.Tenant, r)
	if err != nil {
		return nil, s.pricesProblem(ctx, "applying prices", err)
	}
	return &body[*AppliedPrices]{applied}, nil
}

// pricesProblem is problem for what can be wrong with documents.
func (s *server) pricesProblem(ctx context.Context, what string, err error) error {
	var invalid *InvalidDocument
	if !errors.As(err, &invalid) {
		return s.problem(ctx, what, err)
	}
	var details []error
	for _, f := range invalid.Faults {
		details = append(details, &huma.ErrorDetail{Message: f.Msg, Location: f.Place})
	}
	return huma.Error422UnprocessableEntity("nothing was applied: a document is not valid", details...)
}
