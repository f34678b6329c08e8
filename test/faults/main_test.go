// Package faults_test proves that figures stay exact when parts of the pipeline
// die or hang. Nothing is imitated: the tests build the program, start its parts
// as processes, and send them SIGKILL and SIGSTOP, most of the time at a named
// point of their work (see internal/app/halt.go). What should come out is summed
// up from the list of published events, without any code of the pipeline.
package faults_test

import (
	"testing"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

func TestMain(m *testing.M) { process.Main(m) }
