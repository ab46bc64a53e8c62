package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// metricsReaders bounds the connections to --metrics-listen, which asks for no token.
	metricsReaders = 64
	// metricsTime bounds one answer, so that a silent client cannot hold a connection.
	metricsTime = 30 * time.Second
)

// metricsPort serves /metrics and /livez, and nothing else, to every client that reaches it.
type metricsPort struct {
	ln     net.Listener
	server *http.Server
}

// openMetrics listens at an address; "" serves nothing. The answer of /metrics shows names
// of apps and jobs, and no payload.
func openMetrics(address string, tel *telemetry) (*metricsPort, error) {
	if address == "" {
		return nil, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("--metrics-listen %q is not HOST:PORT: %w", address, err)
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w: choose another address", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", tel.scrape())
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // the client may be gone
	})
	return &metricsPort{netutil.LimitListener(ln, metricsReaders), &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: metricsTime, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}, nil
}

// run serves until ctx ends.
func (p *metricsPort) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { p.server.Close() })() //nolint:errcheck // Serve returns the error
	if err := p.server.Serve(p.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close stops listening, also if run was never called.
func (p *metricsPort) Close() error {
	if err := p.ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
