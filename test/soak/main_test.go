// Package soak_test lets the pipeline run for a long time under random load and
// random faults, and compares its reports with a model that is summed up from the
// published events alone. Everything that is random is drawn from one seed.
//
// Without SOAK in the environment it is a short run of fixed seeds. SOAK=10m is
// how long it storms, SEED=n what it storms with; see `make soak`.
package soak_test

import (
	"testing"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

func TestMain(m *testing.M) { process.Main(m) }
