package producer

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one producer.
type metrics struct {
	appended        prometheus.Counter
	sent            prometheus.Counter
	publishFailures prometheus.Counter
	samples         prometheus.Counter
	samplesFailed   prometheus.Counter
	blocked         prometheus.Counter
}

// newMetrics registers the producer's metrics; a nil registerer keeps them
// private.
func newMetrics(p *Producer, r prometheus.Registerer) (*metrics, error) {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "gpumeter", Subsystem: "producer", Name: name, Help: help})
		all = append(all, c)
		return c
	}
	gauge := func(name, help string, value func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "gpumeter", Subsystem: "producer", Name: name, Help: help}, value))
	}
	m := &metrics{
		appended:        counter("events_appended_total", "Usage events put into the spool."),
		sent:            counter("events_sent_total", "Usage events that the stream confirmed."),
		publishFailures: counter("publish_failures_total", "Batches that the stream did not take at an attempt."),
		samples:         counter("samples_total", "Ticks at which the source was read."),
		samplesFailed:   counter("samples_failed_total", "Ticks at which the source could not be read; their time is unknown."),
		blocked:         counter("spool_blocked_total", "Attempts to store a tick that the spool refused; sampling waits."),
	}
	gauge("spool_events", "Usage events in the spool.", func() float64 { return float64(p.o.Spool.Stats().Events) })
	gauge("spool_bytes", "Bytes in the spool.", func() float64 { return float64(p.o.Spool.Stats().Bytes) })
	gauge("spool_set_aside_events", "Usage events that the stream refuses for good, kept in the spool and missing from reports.",
		func() float64 { return float64(p.o.Spool.Stats().SetAside) })
	gauge("spool_oldest_seconds", "Age of the oldest event in the spool.", func() float64 { return p.oldest().Seconds() })
	gauge("readings_refused", "Readings since the start that could not become an event.", func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return float64(p.refused)
	})
	all = append(all, sourceMetrics{p.o.Source})
	if r == nil {
		return m, nil
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// sourceMetrics passes on what the source counts of its own.
type sourceMetrics struct{ source Source }

var (
	rejectedDesc     = prometheus.NewDesc("gpumeter_producer_lines_rejected_total", "Lines of the source that were skipped, by reason.", []string{"reason"}, nil)
	disagreementDesc = prometheus.NewDesc("gpumeter_producer_signal_disagreements_total", "Readings in which one compute signal was about zero and another well above.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s sourceMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- rejectedDesc
	ch <- disagreementDesc
}

// Collect implements prometheus.Collector.
func (s sourceMetrics) Collect(ch chan<- prometheus.Metric) {
	if r, ok := s.source.(interface{ Rejected() map[string]uint64 }); ok {
		for reason, n := range r.Rejected() {
			ch <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(n), reason)
		}
	}
	if d, ok := s.source.(interface{ Disagreements() uint64 }); ok {
		ch <- prometheus.MustNewConstMetric(disagreementDesc, prometheus.CounterValue, float64(d.Disagreements()))
	}
}
