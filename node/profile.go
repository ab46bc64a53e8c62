package node

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// ProfileConfig configures the profiles of a process.
type ProfileConfig struct {
	Address string // on this machine only: a profile shows the contents of memory
	// Readers returns the token that readers must send or, if that is "", the file that has it.
	// It is called, and the file is read, at each request: a server makes the file at its first
	// start, and a reload may name another one.
	Readers func() (token, file string)
}

// Profile serves the profiles of this process below /debug/pprof. The caller must call
// stop once.
func Profile(cfg ProfileConfig) (stop func() error, err error) {
	if transport.CheckLoopback(cfg.Address) != nil {
		return nil, fmt.Errorf("--pprof %s is not a loopback address: profiles are for this machine only, use a tunnel from elsewhere", cfg.Address)
	}
	if token, file := cfg.Readers(); token == "" && file == "" {
		return nil, errors.New("--pprof: there is no token to ask readers for")
	}
	ln, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: cfg.guarded(mux), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	return func() error {
		err := s.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}

// guarded admits readers that have the token. It refuses a Host header that names another
// machine, and so pages on the Internet whose name resolves to this one (DNS rebinding).
func (c ProfileConfig) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localHost(r.Host) {
			http.Error(w, "the Host header names another machine: use 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		if err := c.admit(r); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit checks the token of a request.
func (c ProfileConfig) admit(r *http.Request) error {
	want, file := c.Readers()
	if want == "" {
		var err error
		if want, err = credential.ReadPrivate(file); err != nil {
			return fmt.Errorf("read the token of this process: %w", err)
		}
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	have, need := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	if !ok || want == "" || subtle.ConstantTimeCompare(have[:], need[:]) != 1 {
		return errors.New("a token is needed, as \"Authorization: Bearer TOKEN\": the administrator's of a server, and the one that a nameserver or a host was started with")
	}
	return nil
}

// localHost reports whether a Host header names this machine.
func localHost(header string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}
