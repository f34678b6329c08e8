package report

import (
	"io"
	"slices"
	"strings"
)

// Writer is an answer that can be written in any of the Formats.
type Writer interface {
	JSON() []byte
	CSV(w io.Writer) error
	Table(w io.Writer) error
}

// CheckFormat returns a *RequestError unless format is one of Formats.
func CheckFormat(format string) error {
	if !slices.Contains(Formats, format) {
		return wrong("format", "%q is not one of %s", clip(format), strings.Join(Formats, ", "))
	}
	return nil
}

// Write writes an answer in a format and fails on an unknown one.
func Write(w io.Writer, answer Writer, format string) error {
	switch format {
	case "json":
		_, err := w.Write(answer.JSON())
		return err
	case "csv":
		return answer.CSV(w)
	case "table":
		return answer.Table(w)
	}
	return CheckFormat(format)
}

// ContentType returns the media type of a format.
func ContentType(format string) string {
	switch format {
	case "json":
		return "application/json"
	case "csv":
		return "text/csv; charset=utf-8"
	}
	return "text/plain; charset=utf-8"
}
