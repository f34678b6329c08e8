// Package gpu is where readings come from. Each source yields []schema.Reading:
// what every accounting unit of a node does at one instant, who holds it, and
// what could not be read.
//
//   - [Scrape] asks an exporter over HTTP: dcgm-exporter or nvidia_gpu_exporter.
//   - [Simulation] invents a fleet of nodes as a pure function of a seed and an
//     instant, so that the rest can be run and shown without any GPU.
//
// One rule holds for all of them: what was not supported, not sampled, blank or
// out of range is unknown and says why. It never becomes zero, because a zero
// would be billed as idle time.
package gpu
