package schema

import (
	"embed"
	"io/fs"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// SQL returns the numbered migrations. Names, types and units of all columns are
// documented in them.
func SQL() fs.FS {
	sub, err := fs.Sub(sqlFiles, "sql")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return sub
}
