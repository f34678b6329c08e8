package gpu

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Reasons for which a line of a scrape is skipped, as counted by
// [Scrape.Rejected].
const (
	RejectUnreadable = "unreadable"      // a title, a dashed line, text where a number belongs, a broken label set
	RejectTooLong    = "too_long"        // a name or label that no event could carry
	RejectNoDevice   = "no_device"       // a GPU metric that does not say of which GPU
	RejectTwice      = "repeated_series" // the same series again; the first one counts
)

// sample is one line of a scrape. Its timestamp, if it had one, is dropped:
// exporters are known to write instants in January 1970.
type sample struct {
	name   string
	labels []*dto.LabelPair
	value  float64
}

// label returns the first non-empty value among the keys.
func (s *sample) label(keys ...string) string {
	for _, key := range keys {
		for _, l := range s.labels {
			if l.GetName() == key && l.GetValue() != "" {
				return l.GetValue()
			}
		}
	}
	return ""
}

// has says whether the label is there, empty or not.
func (s *sample) has(key string) bool {
	for _, l := range s.labels {
		if l.GetName() == key {
			return true
		}
	}
	return false
}

// parser reads an exposition line by line. The library's parser gives up at the
// first bad line and loses the rest of the scrape, and exporters do write bad
// lines, so it only ever sees one line at a time.
//
// A node repeats the label set of a unit on a hundred lines, and reading those
// is most of the work; sets that the library has accepted are remembered.
type parser struct {
	lib  expfmt.TextParser
	in   bytes.Reader
	line []byte
	sets map[string][]*dto.LabelPair // by the text between the braces
}

// parse calls emit for each sample. A line that is not a sample costs itself and
// nothing else; reject hears why.
func parse(text []byte, emit func(*sample), reject func(reason string)) {
	p := parser{lib: expfmt.NewTextParser(model.LegacyValidation), sets: map[string][]*dto.LabelPair{}}
	for len(text) > 0 {
		var raw []byte
		raw, text, _ = bytes.Cut(text, []byte{'\n'})
		raw = bytes.TrimSpace(bytes.TrimPrefix(raw, []byte("\ufeff")))
		if len(raw) == 0 || raw[0] == '#' {
			continue
		}
		s, err := p.sample(raw)
		switch {
		case err != nil:
			reject(RejectUnreadable)
		case !fits(s):
			reject(RejectTooLong)
		default:
			emit(s)
		}
	}
}

func (p *parser) sample(raw []byte) (*sample, error) {
	open, end := bytes.IndexByte(raw, '{'), bytes.LastIndexByte(raw, '}')
	if open > 0 && end > open {
		if labels, ok := p.sets[string(raw[open:end])]; ok && plainName(raw[:open]) {
			// Only a lone decimal is taken here; whatever else follows is the
			// library's to judge.
			rest := string(bytes.TrimSpace(raw[end+1:]))
			if v, err := strconv.ParseFloat(rest, 64); err == nil && !strings.ContainsAny(rest, "pP_") {
				return &sample{name: string(raw[:open]), labels: labels, value: v}, nil
			}
		}
	}
	p.line = append(append(p.line[:0], raw...), '\n')
	p.in.Reset(p.line)
	s, err := parseLine(&p.lib, &p.in)
	if err == nil && open > 0 && end > open {
		p.sets[string(raw[open:end])] = s.labels
	}
	return s, err
}

// plainName says whether the text is a metric name and nothing besides.
func plainName(name []byte) bool {
	for i, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return true
}

var errNotOneSample = errors.New("not one sample")

func parseLine(p *expfmt.TextParser, line *bytes.Reader) (*sample, error) {
	families, err := p.TextToMetricFamilies(line)
	if err != nil {
		return nil, err
	}
	for name, family := range families {
		if len(families) != 1 || len(family.Metric) != 1 || family.Metric[0].Untyped == nil {
			break
		}
		m := family.Metric[0]
		return &sample{name: name, labels: m.Label, value: m.Untyped.GetValue()}, nil
	}
	return nil, errNotOneSample
}

// maxLabelBytes bounds the labels that are read. Two of them with a separator
// still fit into a field of an event, and Kubernetes allows no longer name.
const maxLabelBytes = 253

// readLabels lists the labels that end up in a reading.
var readLabels = map[string]bool{
	"UUID": true, "uuid": true, "GPU_I_ID": true, "gpu_instance_id": true, "GPU_I_PROFILE": true, "profile": true,
	"modelName": true, "name": true, "Hostname": true, "hostname": true,
	"pod": true, "namespace": true, "pod_uid": true, "pod_name": true, "pod_namespace": true,
	"exported_pod": true, "exported_namespace": true, "exported_pod_uid": true,
}

// fits says whether every label that is read can be a field of an event.
func fits(s *sample) bool {
	for _, l := range s.labels {
		if readLabels[l.GetName()] && (len(l.GetValue()) > maxLabelBytes || strings.IndexByte(l.GetValue(), 0) >= 0) {
			return false
		}
	}
	return true
}
