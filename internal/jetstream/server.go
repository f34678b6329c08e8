// Package jetstream is the project's one adapter to NATS JetStream: the embedded
// server, the streams, publishing, consuming, and the Watermill publisher and
// subscriber of the control path.
package jetstream

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ServerOptions configure the embedded server.
type ServerOptions struct {
	Dir    string // where streams are kept
	Listen string // host:port, port 0 takes a free one
	// MaxStoreBytes bounds all streams together. 0 = 16 GiB.
	MaxStoreBytes int64
	// Unsynced acknowledges before the disk has the message. A power failure
	// then loses what the sender believes delivered. Only for measuring.
	Unsynced bool
}

// Server is an embedded NATS server with JetStream.
type Server struct{ s *server.Server }

// StartServer starts a server and waits until it takes connections.
func StartServer(o ServerOptions) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("jetstream: the embedded server needs a directory")
	}
	if o.MaxStoreBytes == 0 {
		o.MaxStoreBytes = 16 << 30
	}
	host, port, err := splitListen(o.Listen)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName:         "gpumeter",
		Host:               host,
		Port:               port,
		JetStream:          true,
		StoreDir:           filepath.Clean(o.Dir),
		JetStreamMaxStore:  o.MaxStoreBytes,
		JetStreamMaxMemory: 64 << 20,
		SyncAlways:         !o.Unsynced,
		NoSigs:             true,
		NoLog:              true,
		MaxPayload:         1 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("NATS did not come up on %s within 20 s; is the port taken, or %s in use by another process?", o.Listen, o.Dir)
	}
	return &Server{s: s}, nil
}

func splitListen(listen string) (string, int, error) {
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("NATS listen address %q: %w", listen, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("NATS listen address %q: bad port", listen)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// URL is where clients connect.
func (s *Server) URL() string { return s.s.ClientURL() }

// InProcess makes a client connect through memory instead of a socket.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.s) }

// Stop ends the server and waits for its files to be closed.
func (s *Server) Stop() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

// Connect connects a client that reconnects for ever: a meter that gives up on
// its stream after some tries is one that stopped without telling anybody.
func Connect(url, name string, logger interface{ Warn(string, ...any) }, more ...nats.Option) (*nats.Conn, error) {
	options := append([]nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
		nats.RetryOnFailedConnect(true),
		nats.Timeout(5 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(3),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				logger.Warn("NATS connection lost, reconnecting", "err", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Warn("NATS client", "err", err)
		}),
	}, more...)
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", url, err)
	}
	return nc, nil
}
