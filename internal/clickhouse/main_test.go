package clickhouse_test

import (
	"testing"

	"github.com/gpumeter/gpumeter/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
