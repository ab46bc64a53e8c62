package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/console"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/nameserver"
)

// Ready says how to reach a process that serves.
type Ready struct {
	URL   string `json:"url"`   // of the console and of HTTP/JSON
	GRPC  string `json:"grpc"`  // host:port
	Token string `json:"token"` // of the administrator; "" when the process has none
	PID   int    `json:"pid"`
}

// quitPatience is how long calls under way may go on when a process ends.
const quitPatience = 2 * time.Second

// DevConfig is for one process with all roles.
type DevConfig struct {
	Data      string // default "wheelwork-data"
	Listen    string // loopback only; default 127.0.0.1:7700
	ReadyFile string // written when ready; "": none
	Sample    bool   // push the sample module and apply its job, when there is no job yet
	Logger    *slog.Logger
	Ready     func(Ready) // called when ready; nil: nobody
}

// Dev runs nameserver, server and host until ctx ends.
func Dev(ctx context.Context, cfg DevConfig) (err error) {
	log := logger(cfg.Logger)
	d, err := openData(cmp.Or(cfg.Data, "wheelwork-data"))
	if err != nil {
		return err
	}
	var open closers
	open.add(closeFunc(d.close))
	removeReady(cfg.ReadyFile) // of a process that was killed
	defer func() { err = errors.Join(err, open.Close()) }()
	tel, err := newTelemetry(ctx, "dev")
	if err != nil {
		return err
	}
	open.add(tel)

	token, err := dataToken(d.path)
	if err != nil {
		return err
	}
	inner := newToken("in_") // between the roles of this process
	g := newGuard()
	g.allow(token, admin)
	g.allow(inner, member)

	ln, _, err := listen(cmp.Or(cfg.Listen, "127.0.0.1:7700"), "", "")
	if err != nil {
		return err
	}
	defer ln.Close() //nolint:errcheck // closed by the door in the usual case
	srv, err := openServer(d, tel, log)
	if err != nil {
		return err
	}
	open.add(srv)
	dr := newDoor(g, tel, log)
	srv.sched.Register(dr.grpc)
	names := nameserver.New(nameserver.Config{Logger: log})
	names.Register(dr.grpc)

	page, err := dr.dial()
	if err != nil {
		return err
	}
	open.add(page)
	handler, err := console.New(console.Config{Conn: page, Banner: "dev", Version: version.String(), Logger: log})
	if err != nil {
		return err
	}
	members, err := dr.dial(grpc.WithPerRPCCredentials(bearer{token: inner}))
	if err != nil {
		return err
	}
	open.add(members)
	hostDir := func(parts ...string) string { return d.join(append([]string{"host"}, parts...)...) }
	toSelf := func(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
		return members, closeFunc(func() error { return nil }), nil
	}
	h, err := openHost(ctx, hostDir, HostConfig{Name: "dev"}, toSelf, tel, log)
	if err != nil {
		return err
	}
	open.add(h)

	ready := Ready{URL: "http://" + ln.Addr().String(), GRPC: ln.Addr().String(), Token: token, PID: os.Getpid()}
	r := newRoles(ctx)
	r.serve(dr, ln, tel.metrics(g, handler))
	r.run("server", srv.sched.Run)
	r.run("registration", func(ctx context.Context) error {
		return announce(ctx, members, srv, ln.Addr().String(), log)
	})
	r.run("host", h.host.Run)
	if cfg.Sample {
		admin, err := dr.dial(grpc.WithPerRPCCredentials(bearer{token: token}))
		if err != nil {
			return errors.Join(err, r.stop())
		}
		open.add(admin)
		if err := sample(ctx, admin, log); err != nil {
			return errors.Join(fmt.Errorf("start the sample job: %w", err), r.stop())
		}
	}
	if err := tellReady(cfg.ReadyFile, cfg.Ready, ready); err != nil {
		return errors.Join(err, r.stop())
	}
	defer removeReady(cfg.ReadyFile)
	return r.wait()
}

// ServerConfig is for a process that is a server.
type ServerConfig struct {
	Data       string // default "wheelwork-data"
	Listen     string // default 127.0.0.1:7700
	Advertise  string // host:port at which others reach it; default: the address it listens on
	Nameserver string // host:port; default: the server is its own nameserver
	TokenFile  string // the token that the processes of the installation share
	TLSCert    string
	TLSKey     string
	CACert     string // to check the nameserver by; "": no TLS towards it
	ReadyFile  string
	Logger     *slog.Logger
	Ready      func(Ready)
}

// Server runs a server until ctx ends.
func Server(ctx context.Context, cfg ServerConfig) (err error) {
	log := logger(cfg.Logger)
	shared, err := fileToken(cfg.TokenFile)
	if err != nil {
		return err
	}
	d, err := openData(cmp.Or(cfg.Data, "wheelwork-data"))
	if err != nil {
		return err
	}
	var open closers
	open.add(closeFunc(d.close))
	removeReady(cfg.ReadyFile) // of a process that was killed
	defer func() { err = errors.Join(err, open.Close()) }()
	tel, err := newTelemetry(ctx, "server")
	if err != nil {
		return err
	}
	open.add(tel)

	token, err := dataToken(d.path)
	if err != nil {
		return err
	}
	inner := newToken("in_")
	g := newGuard()
	g.allow(token, admin)
	g.allow(shared, member)
	g.allow(inner, member)
	ln, secure, err := listen(cmp.Or(cfg.Listen, "127.0.0.1:7700"), cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return err
	}
	defer ln.Close() //nolint:errcheck // closed by the door in the usual case
	srv, err := openServer(d, tel, log)
	if err != nil {
		return err
	}
	open.add(srv)
	dr := newDoor(g, tel, log)
	srv.sched.Register(dr.grpc)

	page, err := dr.dial()
	if err != nil {
		return err
	}
	open.add(page)
	handler, err := console.New(console.Config{Conn: page, Version: version.String(), Secure: secure, Logger: log})
	if err != nil {
		return err
	}
	var names grpc.ClientConnInterface
	if cfg.Nameserver == "" {
		nameserver.New(nameserver.Config{Logger: log}).Register(dr.grpc)
		own, err := dr.dial(grpc.WithPerRPCCredentials(bearer{token: inner}))
		if err != nil {
			return err
		}
		open.add(own)
		names = own
	} else {
		other, err := dialMember(cfg.Nameserver, shared, cfg.CACert)
		if err != nil {
			return err
		}
		open.add(other)
		names = other
	}
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	address := ln.Addr().String()
	r := newRoles(ctx)
	r.serve(dr, ln, tel.metrics(g, handler))
	r.run("server", srv.sched.Run)
	r.run("registration", func(ctx context.Context) error {
		return announce(ctx, names, srv, cmp.Or(cfg.Advertise, address), log)
	})
	if err := tellReady(cfg.ReadyFile, cfg.Ready, Ready{URL: scheme + address, GRPC: address, Token: token, PID: os.Getpid()}); err != nil {
		return errors.Join(err, r.stop())
	}
	defer removeReady(cfg.ReadyFile)
	return r.wait()
}

// NameserverConfig is for a process that is a nameserver.
type NameserverConfig struct {
	Listen    string // default 127.0.0.1:7600
	TokenFile string // required: the token that the processes of the installation share
	TLSCert   string
	TLSKey    string
	ReadyFile string
	Logger    *slog.Logger
	Ready     func(Ready)
}

// Nameserver runs a nameserver until ctx ends.
func Nameserver(ctx context.Context, cfg NameserverConfig) error {
	log := logger(cfg.Logger)
	shared, err := requireToken(cfg.TokenFile)
	if err != nil {
		return err
	}
	tel, err := newTelemetry(ctx, "nameserver")
	if err != nil {
		return err
	}
	defer tel.Close() //nolint:errcheck // what could not be sent is lost with the process
	g := newGuard()
	g.allow(shared, member)
	ln, _, err := listen(cmp.Or(cfg.Listen, "127.0.0.1:7600"), cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return err
	}
	defer ln.Close()           //nolint:errcheck // closed by the door in the usual case
	removeReady(cfg.ReadyFile) // of a process that was killed
	dr := newDoor(g, tel, log)
	nameserver.New(nameserver.Config{Logger: log}).Register(dr.grpc)
	r := newRoles(ctx)
	r.serve(dr, ln, tel.metrics(g, http.NotFoundHandler()))
	if err := tellReady(cfg.ReadyFile, cfg.Ready, Ready{GRPC: ln.Addr().String(), PID: os.Getpid()}); err != nil {
		return errors.Join(err, r.stop())
	}
	defer removeReady(cfg.ReadyFile)
	return r.wait()
}

// HostConfig is for a process that is a host.
type HostConfig struct {
	Data       string // default "wheelwork-host"
	Nameserver string // host:port; this or Server
	Server     string // host:port, without a nameserver
	TokenFile  string // the token that the processes of the installation share; this or Token
	Token      string
	CACert     string // to check servers by; "": no TLS
	Name       string // default: the machine's name
	Labels     map[string]string
	Apps       []string // default: all
	Slots      int      // default: GOMAXPROCS, at least 4
	ReadyFile  string
	Logger     *slog.Logger
	Ready      func(Ready)
}

// Host runs a host until ctx ends.
func Host(ctx context.Context, cfg HostConfig) (err error) {
	log := logger(cfg.Logger)
	if (cfg.Nameserver == "") == (cfg.Server == "") {
		return errors.New("give --nameserver or --server, and not both: the host dials out to it")
	}
	token := cfg.Token
	if token == "" {
		if token, err = requireToken(cfg.TokenFile); err != nil {
			return err
		}
	}
	d, err := openData(cmp.Or(cfg.Data, "wheelwork-host"))
	if err != nil {
		return err
	}
	var open closers
	open.add(closeFunc(d.close))
	removeReady(cfg.ReadyFile) // of a process that was killed
	defer func() { err = errors.Join(err, open.Close()) }()
	tel, err := newTelemetry(ctx, "host")
	if err != nil {
		return err
	}
	open.add(tel)
	find := func(context.Context) (string, error) { return cfg.Server, nil }
	if cfg.Nameserver != "" {
		names, err := dialMember(cfg.Nameserver, token, cfg.CACert)
		if err != nil {
			return err
		}
		open.add(names)
		find = func(ctx context.Context) (string, error) { return assigned(ctx, names, cfg.Name, cfg.Apps) }
	}
	h, err := openHost(ctx, d.join, cfg, func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error) {
		address, err := find(ctx)
		if err != nil {
			return nil, nil, err
		}
		conn, err := dialMember(address, token, cfg.CACert)
		return conn, conn, err
	}, tel, log)
	if err != nil {
		return err
	}
	open.add(h)
	r := newRoles(ctx)
	r.run("host", h.host.Run)
	if err := tellReady(cfg.ReadyFile, cfg.Ready, Ready{PID: os.Getpid()}); err != nil {
		return errors.Join(err, r.stop())
	}
	defer removeReady(cfg.ReadyFile)
	return r.wait()
}

// assigned asks the nameserver for a server and waits until there is one.
func assigned(ctx context.Context, names grpc.ClientConnInterface, name string, apps []string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(names).Watch(ctx, &apiv1.WatchRequest{Host: name, Apps: apps})
	if err != nil {
		return "", fmt.Errorf("ask the nameserver: %w", err)
	}
	for {
		a, err := stream.Recv()
		if err != nil {
			return "", fmt.Errorf("ask the nameserver: %w", err)
		}
		if a.Address != "" {
			return a.Address, nil
		}
	}
}

// announce keeps the server known to the nameserver.
func announce(ctx context.Context, names grpc.ClientConnInterface, srv *serverParts, address string, log *slog.Logger) error {
	const every, again = time.Second, 500 * time.Millisecond
	client := apiv1.NewNameserverClient(names)
	session := func() error {
		stream, err := client.Join(ctx)
		if err != nil {
			return err
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			load, err := srv.sched.Load(ctx)
			if err != nil {
				return err
			}
			err = stream.Send(&apiv1.ServerReport{
				Server: srv.id, Address: address, Version: version.String(),
				ScheduleRate: load.ScheduleRate, Hosts: int32(load.Hosts), Apps: load.Apps,
			})
			if err != nil {
				_, err := stream.Recv() // says why
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
	for ctx.Err() == nil {
		if err := session(); err != nil && ctx.Err() == nil {
			log.Warn("the nameserver is out of reach", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
	return nil
}

func dialMember(address, token, caCert string) (*grpc.ClientConn, error) {
	creds, err := transport(caCert)
	if err != nil {
		return nil, fmt.Errorf("read --ca-cert: %w", err)
	}
	if caCert == "" {
		if err := loopbackOnly(address); err != nil {
			return nil, fmt.Errorf("%s is not on this machine: TLS is required towards it, give --ca-cert", address)
		}
	}
	opts := append(dialOptions(), grpc.WithTransportCredentials(creds), grpc.WithPerRPCCredentials(bearer{token, caCert != ""}))
	return grpc.NewClient(address, opts...)
}

func requireToken(path string) (string, error) {
	t, err := fileToken(path)
	if err == nil && t == "" {
		err = errors.New("--token-file is required: a file with the token that the nameserver, the servers and the hosts of this installation share")
	}
	return t, err
}

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

func tellReady(file string, f func(Ready), r Ready) error {
	if file != "" {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := writeFile(file, append(b, '\n'), 0o600); err != nil {
			return fmt.Errorf("write --ready-file: %w", err)
		}
	}
	if f != nil {
		f(r)
	}
	return nil
}

func removeReady(file string) {
	if file != "" {
		os.Remove(file) //nolint:errcheck // it may have been removed by who waited for it
	}
}

// roles are the long-lived goroutines of a process. They are stopped in the
// reverse order of their start, each when the one before has ended: a host
// brings its results back while its server still listens.
type roles struct {
	ctx   context.Context // ends when any role fails or the process is asked to end
	fail  context.CancelCauseFunc
	group errgroup.Group
	stops []func()
}

func newRoles(ctx context.Context) *roles {
	r := &roles{}
	r.ctx, r.fail = context.WithCancelCause(ctx)
	return r
}

// run starts a role. It is stopped by its context.
func (r *roles) run(name string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	done := make(chan struct{})
	r.group.Go(func() error {
		defer close(done)
		err := f(ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		r.fail(err) // a role that ends, ends the process
		return err
	})
	r.stops = append(r.stops, func() { cancel(); <-done })
}

// serve starts the door. The rooms behind it outlive it by one step: it is
// closed when everything that was started later has ended.
func (r *roles) serve(d *door, ln net.Listener, h http.Handler) {
	done := make(chan struct{})
	r.group.Go(func() error {
		defer close(done)
		err := d.serve(ln, h)
		if err != nil {
			err = fmt.Errorf("serve: %w", err)
		}
		r.fail(err)
		return err
	})
	r.stops = append(r.stops, func() { d.close(quitPatience); <-done })
}

// wait blocks until the process is asked to end or a role fails, and stops all.
func (r *roles) wait() error {
	<-r.ctx.Done()
	return r.stop()
}

func (r *roles) stop() error {
	for i := len(r.stops) - 1; i >= 0; i-- {
		r.stops[i]()
	}
	return r.group.Wait()
}
