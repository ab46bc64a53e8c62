package node

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// Profile serves profiles of this process below /debug/pprof at address, which
// has to be of this machine: whoever reads them needs no token, and a profile
// shows what is in memory. The caller calls stop once.
func Profile(address string) (stop func() error, err error) {
	if loopbackOnly(address) != nil {
		return nil, fmt.Errorf("--pprof %s is not a loopback address: profiles are for this machine only, use a tunnel from elsewhere", address)
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
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
