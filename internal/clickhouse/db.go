// Package clickhouse keeps the project's data in ClickHouse: the embedded engine
// or a server, whichever the DSN names. It implements the small interfaces that
// the stages declare and imports none of them.
package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	chgo "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/pressly/goose/v3"

	"github.com/gpumeter/gpumeter/schema"
)

// DefaultDatabase is used when the DSN names none.
const DefaultDatabase = "gpumeter"

// DB is a connection to one database. It is safe for concurrent use.
type DB struct {
	conn    driver.Conn
	wire    wire
	options *chgo.Options

	// OnMidInsert is called when half of a block of raw events has been sent
	// over HTTP; fault tests stop the process there.
	OnMidInsert func()

	// Buffers of the recompute path, as large as a chunk.
	cells  *spare[*cellColumns]
	groups *spare[*unitGroups]
}

// Open connects to the database that the DSN names, creating it if need be.
//
//	clickhouse://user:pass@host:9000/database   native protocol
//	http://user:pass@host:8123/database         HTTP
//
// A process that does not own its engine should use HTTP: the embedded engine
// can abort when a client of its native port dies (see internal/engine).
func Open(ctx context.Context, dsn string) (*DB, error) { return open(ctx, dsn, settings) }

// open is Open with the settings that every statement is sent with.
func open(ctx context.Context, dsn string, settings map[string]string) (*DB, error) {
	o, err := chgo.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("clickhouse DSN: %w", err)
	}
	if o.Auth.Database == "" || o.Auth.Database == "default" {
		o.Auth.Database = DefaultDatabase
	}
	if o.Auth.Username == "" {
		o.Auth.Username = "default"
	}
	o.Settings = chgo.Settings{}
	for k, v := range settings {
		o.Settings[k] = v
	}
	o.DialTimeout = 5 * time.Second
	o.ReadTimeout = 10 * time.Minute
	o.MaxOpenConns, o.MaxIdleConns = 16, 8
	if err := createDatabase(ctx, *o); err != nil {
		return nil, err
	}
	conn, err := chgo.Open(o)
	if err != nil {
		return nil, fmt.Errorf("open clickhouse: %w", err)
	}
	w, err := openWire(ctx, o, settings)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open clickhouse: %w", err)
	}
	return &DB{
		conn: conn, wire: w, options: o,
		cells: newSpare(2, newCellColumns), groups: newSpare(2, newUnitGroups),
	}, nil
}

// createDatabase connects to the database that always exists, because a
// connection to one that does not is refused. It makes an Atomic database: the
// embedded engine's "default" is of another kind.
func createDatabase(ctx context.Context, o chgo.Options) error {
	name := o.Auth.Database
	o.Auth.Database = "default"
	conn, err := chgo.Open(&o)
	if err != nil {
		return fmt.Errorf("open clickhouse: %w", err)
	}
	defer conn.Close()
	if err := conn.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+quoteName(name)+" ENGINE = Atomic"); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// Close ends all connections.
func (db *DB) Close() error {
	db.wire.close()
	return db.conn.Close()
}

// Ping says whether the server answers statements.
func (db *DB) Ping(ctx context.Context) error {
	var one uint8
	if err := db.conn.QueryRow(ctx, "SELECT 1").Scan(&one); err != nil {
		return fmt.Errorf("clickhouse does not answer: %w", err)
	}
	return nil
}

// Migrate brings the database to the newest schema and returns the names of the
// migrations that it applied. It is safe to run at any time, also from two
// processes one after the other.
func (db *DB) Migrate(ctx context.Context) ([]string, error) {
	std := chgo.OpenDB(db.options)
	defer std.Close()
	provider, err := goose.NewProvider(goose.DialectClickHouse, std, schema.SQL(), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	var applied []string
	for _, r := range results {
		applied = append(applied, r.Source.Path)
	}
	return applied, nil
}

// Exec runs one statement.
func (db *DB) Exec(ctx context.Context, statement string, args ...any) error {
	return db.conn.Exec(ctx, statement, args...)
}

// Transient says whether the same statement may succeed later: the server is
// away, restarting or out of memory, as opposed to having refused it.
func Transient(err error) bool {
	var (
		exception *chgo.Exception
		refused   *serverError
		network   net.Error
		code      string
	)
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &exception):
		code = fmt.Sprint(exception.Code)
	case errors.As(err, &refused):
		code = refused.code
	case errors.As(err, &network), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrDeadlineExceeded):
		return true
	default:
		return true // a broken connection comes in many wrappings
	}
	// Codes of statements that can never succeed: syntax, unknown table or
	// column, type mismatch.
	switch code {
	case "62", "47", "60", "16", "53", "6", "27", "117":
		return false
	}
	return true
}

func quoteName(s string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(s) + "`"
}

func quoteText(s string) string {
	return "'" + quotedText.Replace(s) + "'"
}

var quotedText = strings.NewReplacer("\\", "\\\\", "'", "\\'")
