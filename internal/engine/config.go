package engine

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// KeepFree is the room in bytes that the engine leaves on its disk: it refuses to
// write when less would be left.
const KeepFree = 512 << 20

// layout is where things lie in Options.Dir.
type layout struct{ dir string }

func (l layout) lock() string   { return filepath.Join(l.dir, "engine.lock") }
func (l layout) config() string { return filepath.Join(l.dir, "config.xml") }
func (l layout) users() string  { return filepath.Join(l.dir, "users.xml") }
func (l layout) log() string    { return filepath.Join(l.dir, "log", "engine.log") }

// data ends in a slash, as ClickHouse wants it and gives it back.
func (l layout) data() string { return filepath.Join(l.dir, "data") + string(filepath.Separator) }

// writeConfig writes the two configuration files, anew at every start.
func writeConfig(l layout, o Options) error {
	if err := os.MkdirAll(filepath.Dir(l.log()), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(l.config(), serverConfig(l, o, runtime.NumCPU()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(l.users(), []byte(usersConfig), 0o600)
}

// serverConfig is small on purpose: one machine, shared with the pipeline. The
// threads that merge are few, the caches are bounded, and metrics that nobody
// reads are taken every ten seconds instead of every second. The engine has no
// system log tables unless they are configured, and they are not. The pools
// for background tasks are set because this build makes them with 0 to 2
// threads, too few for several tables; a pool that is not used is not made.
func serverConfig(l layout, o Options, cores int) []byte {
	const mib = 1 << 20
	merges := min(max(cores, 2), 4)
	memory := [2]string{"max_server_memory_usage_to_ram_ratio", "0.5"}
	if o.MaxMemory > 0 {
		memory = [2]string{"max_server_memory_usage", fmt.Sprint(o.MaxMemory)}
	}
	var b bytes.Buffer
	b.WriteString("<!-- Written at every start of the engine: changes made here are lost. -->\n<clickhouse>\n")
	for _, kv := range [][2]string{
		{"path", l.data()},
		{"users_config", l.users()},
		{"listen_host", "127.0.0.1"},
		{"tcp_port", fmt.Sprint(o.TCPPort)},
		{"http_port", fmt.Sprint(o.HTTPPort)},
		{"timezone", "UTC"},
		memory,
		{"mark_cache_size", fmt.Sprint(128 * mib)},
		{"primary_index_cache_size", fmt.Sprint(128 * mib)},
		{"uncompressed_cache_size", fmt.Sprint(64 * mib)},
		{"index_mark_cache_size", fmt.Sprint(16 * mib)},
		{"index_uncompressed_cache_size", fmt.Sprint(16 * mib)},
		{"background_pool_size", fmt.Sprint(merges)},
		{"background_common_pool_size", "2"},
		{"background_schedule_pool_size", "8"},
		{"background_distributed_schedule_pool_size", "2"},
		{"background_buffer_flush_schedule_pool_size", "1"},
		{"background_message_broker_schedule_pool_size", "1"},
		{"asynchronous_metrics_update_period_s", "10"},
		// The engine takes the level from here and overrides the logger's.
		{"log-level", "warning"},
	} {
		element(&b, "  ", kv[0], kv[1])
	}
	// Inserts and merges are refused while they would leave less than this. The
	// engine does not survive a disk that fills up under a running merge: it has
	// been seen to commit a part with truncated files and to say nothing.
	b.WriteString("  <storage_configuration><disks><default>\n")
	element(&b, "    ", "keep_free_space_bytes", fmt.Sprint(KeepFree))
	b.WriteString("  </default></disks></storage_configuration>\n  <logger>\n")
	element(&b, "    ", "level", "warning")
	element(&b, "    ", "log", l.log())
	element(&b, "    ", "size", "10M")
	element(&b, "    ", "count", "3")
	b.WriteString("  </logger>\n</clickhouse>\n")
	return b.Bytes()
}

func element(b *bytes.Buffer, indent, name, value string) {
	fmt.Fprintf(b, "%s<%s>", indent, name)
	_ = xml.EscapeText(b, []byte(value)) // a Buffer never fails
	fmt.Fprintf(b, "</%s>\n", name)
}

// usersConfig holds the one user. The engine gives no way to have a password
// (its own first session would need it too), so only this machine may connect.
// Inserts are synchronous: an acknowledged insert is on disk where the table
// says so. The poll interval is how soon a connection that idles notices that
// the engine stops (10 seconds by default).
const usersConfig = `<!-- Written at every start of the engine: changes made here are lost. -->
<clickhouse>
  <profiles><default>
    <async_insert>0</async_insert>
    <log_queries>0</log_queries>
    <poll_interval>1</poll_interval>
  </default></profiles>
  <users><default>
    <password></password>
    <networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
    <profile>default</profile>
    <quota>default</quota>
  </default></users>
  <quotas><default></default></quotas>
</clickhouse>
`
