// Package web is the HTTP interface: reports and their explanation, events in,
// the quarantine, status, health and metrics, all described by an OpenAPI
// document at /openapi.json.
//
// Errors are problem documents of RFC 9457. Who may what is in accessOf; what somebody
// may see is a condition of the query (scopeOf), not of the handler. Without a sign-in
// the handler belongs on a loopback address. It refuses requests that a browser sends
// on behalf of another site.
//
// huma was chosen over ogen and swaggest/rest: ogen generates code from a
// hand-written document, swaggest asks for one interactor type per operation;
// huma derives the document from the Go types and runs on net/http's own mux.
package web
