package schema

import (
	"fmt"
	"testing"
)

// agentBatch is what an agent sends: the units of some nodes, one minute each.
func agentBatch(n int) []Usage {
	events := make([]Usage, n)
	for i := range events {
		u := &events[i]
		u.Source, u.Unit = "agent/node-7", fmt.Sprintf("GPU-5f3c9d1e-0000-4000-8000-%012d", i%8)
		u.StartMs = 1_772_359_200_000 + int64(i/8)*MinuteMs
		u.EndMs = u.StartMs + MinuteMs
		u.ID, u.TimeMs, u.Sequence = UsageID(u.Unit, u.StartMs), u.EndMs, uint64(i+1)
		u.Instance, u.Project, u.Node, u.Platform, u.Model = fmt.Sprintf("i%d", i%8), "a", "node-7", "self", "NVIDIA H100 80GB HBM3"
		u.Utilization, u.ActiveMs, u.IdleMs = Some(420_000), Some(60_000), Some(0)
		u.MemoryUsedBytes, u.MemoryTotalBytes, u.EnergyMj = Some(1<<35+int64(i)), Some(80<<30), Some(42_000_000)
	}
	return events
}

func BenchmarkDecode(b *testing.B) {
	const n = 50
	events := agentBatch(n)
	compact, err := EncodeCompact(events)
	if err != nil {
		b.Fatal(err)
	}
	array := []byte{'['}
	for i := range events {
		if i > 0 {
			array = append(array, ',')
		}
		array = append(array, EncodeEvent(&Event{Usage: &events[i]})...)
	}
	array = append(array, ']')
	for _, c := range []struct {
		name, contentType string
		payload           []byte
	}{{"compact", ContentTypeCompact, compact}, {"json", ContentTypeBatch, array}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := Decode(c.contentType, c.payload); len(d.Usage) != n {
					b.Fatal(d.Rejects)
				}
			}
			report(b, n, len(c.payload))
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	const n = 50
	events := agentBatch(n)
	b.Run("compact", func(b *testing.B) {
		b.ReportAllocs()
		size := 0
		for b.Loop() {
			payload, err := EncodeCompact(events)
			if err != nil {
				b.Fatal(err)
			}
			size = len(payload)
		}
		report(b, n, size)
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		size := 0
		for b.Loop() {
			size = 0
			for i := range events {
				size += len(EncodeEvent(&Event{Usage: &events[i]}))
			}
		}
		report(b, n, size)
	})
}

func report(b *testing.B, events, bytes int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
	b.ReportMetric(float64(bytes)/float64(events), "B/event")
}
