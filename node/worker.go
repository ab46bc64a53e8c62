package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/node/certificates"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
)

// HostConfig configures a process that is a host.
type HostConfig struct {
	Data       string // default "wheelwork-host"
	Nameserver string // host:port, or several with commas; this or Server
	Server     string // host:port, without a nameserver
	TokenFile  string // the token of the installation's hosts; this or Token
	Token      string
	// JoinToken, or "@" and the name of a file with it, gives the host a certificate at its first start, and
	// replaces the other two. With none of the three the host has joined before.
	JoinToken string
	CACert    string // to verify servers; "": no TLS
	Name      string // default: the machine's name
	Labels    map[string]string
	Apps      []string // default: all
	Slots     int      // default: GOMAXPROCS, at least 4
	// MaxSleeping bounds the tasks whose handlers sleep and hold no execution slot.
	// Default: 16 for each slot; negative: none.
	MaxSleeping int
	// Dirs maps the names that grants use to directories. Every app that the host serves
	// can be granted them, unless DirApps has the name: then the apps that are there.
	Dirs    map[string]string
	DirApps map[string][]string
	// TrustedKeys are the keys of the operator: the host runs only modules that one of
	// them has signed. Default: what each app asks for.
	TrustedKeys []string
	ModuleBytes int64 // bytes of the cache of modules; default 1 GiB
	// CompiledBytes bounds the compiled modules that are kept on disk. Default 2 GiB.
	CompiledBytes int64
	// GuestBytes bounds the memory of all guests together. Default: three quarters of
	// what the process may have, which is known on Linux; elsewhere there is no bound.
	GuestBytes int64
	Executors  Executors
	// MetricsListen is the address of /metrics and /livez, which ask for no token; "": none.
	MetricsListen string
	ReadyFile     string
	Logger        *slog.Logger
	Ready         func(Ready)
	Reload        <-chan Reload[HostConfig]
}

// certified reports whether the host shows a certificate to its servers, and sends no token.
func (cfg HostConfig) certified() bool {
	return cfg.JoinToken != "" || cfg.TokenFile == "" && cfg.Token == ""
}

// hostName returns the name of a host for people: the one that it was given, that of the machine, or its id.
func hostName(given, id string) string {
	if given != "" {
		return given
	}
	name, err := os.Hostname()
	if err != nil {
		return id
	}
	return name
}

// HasJoined reports whether a data directory is that of a host that has joined with a join token.
func HasJoined(data string) bool { return certificates.HasJoined(data) }

// token returns the token that the host sends to its servers.
func (cfg HostConfig) token() (string, error) {
	if cfg.Token == "" {
		return requireToken(cfg.TokenFile)
	}
	return cfg.Token, credential.CheckToken("--token", cfg.Token)
}

// checkDirs finds a mistake at the start, before a task meets it.
func checkDirs(dirs map[string]string, apps map[string][]string) error {
	for name, of := range apps {
		if _, ok := dirs[name]; !ok {
			return fmt.Errorf("--dir-apps %s: there is no --dir %s", name, name)
		}
		if len(of) == 0 || slices.Contains(of, "") {
			return fmt.Errorf("--dir-apps %s: want the names of apps, as NAME=shop|pay", name)
		}
	}
	for name, path := range dirs {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			err = errors.New("it is not a directory")
		}
		if err != nil {
			return fmt.Errorf("--dir %s: %w", name, err)
		}
		if err := manifest.Check(runtime.Grants{Files: []runtime.FileGrant{{Mount: "/any", Dir: name}}}); err != nil || name == "" {
			return fmt.Errorf("--dir %s: want a plain name, by which grants can speak of %s", name, path)
		}
	}
	return nil
}

// Host runs a host until ctx ends.
func Host(ctx context.Context, cfg HostConfig) (err error) {
	log := logger(cfg.Logger)
	if (cfg.Nameserver == "") == (cfg.Server == "") {
		return errors.New("give --nameserver or --server, and not both: the host dials out to it")
	}
	if !cfg.certified() {
		if _, err := cfg.token(); err != nil {
			return err
		}
		if cfg.Server != "" { // the host would retry a wrong address for ever
			if err := transport.CheckPeer(cfg.Server, cfg.CACert); err != nil {
				return err
			}
		}
	}
	if err := checkDirs(cfg.Dirs, cfg.DirApps); err != nil {
		return err
	}
	d, err := datadir.Open(cmp.Or(cfg.Data, "wheelwork-host"), datadir.HostForm)
	if err != nil {
		return err
	}
	var open closers
	open.add(closeFunc(d.Close))
	removeReady(cfg.ReadyFile) // left by a process that was killed
	id, err := datadir.Identity(d.Join("id"), "host-")
	if err != nil {
		return errors.Join(err, open.Close())
	}
	cfg.Name = hostName(cfg.Name, id)
	own, certificate, err := cfg.identity(ctx, d, id, log)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // it was ended before it joined
		}
		return errors.Join(err, open.Close())
	}
	started := false
	defer func() {
		if !started {
			err = errors.Join(err, open.Close())
		}
	}()
	tel, err := newTelemetry(ctx, "host")
	if err != nil {
		return err
	}
	open.add(tel)
	metrics, err := openMetrics(cfg.MetricsListen, tel)
	if err != nil {
		return err
	}
	if metrics != nil {
		open.add(metrics)
	}
	c := connect{server: func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error) {
		conn, err := own.Dial(cfg.Server)
		return conn, conn, err
	}}
	if cfg.Nameserver != "" {
		names, err := own.Dial(cfg.Nameserver)
		if err != nil {
			return err
		}
		open.add(names)
		c = viaNames(names, id, cfg, own, log)
	}
	cfg.Data = d.Path
	h, err := openHost(ctx, d.Join, cfg, c, tel, log)
	if err != nil {
		return err
	}
	open.add(h)
	r := newRoles(ctx)
	r.run("memory", giveBack)
	started = true // finish closes open
	if metrics != nil {
		r.run("metrics", metrics.run)
	}
	if certificate != nil {
		r.run("certificate", certificate.Run)
	}
	r.run("spool", h.faults.run)
	r.run("host", h.host.Run)
	r.run("reload", func(ctx context.Context) error {
		return reloads(ctx, cfg.Reload, func(next HostConfig) (func(), error) {
			var c changes
			if certificate == nil {
				token, err := next.token()
				if err != nil {
					return nil, err
				}
				c.add(own.Renew(token, next.CACert))
			}
			c.add(func() { h.egress.allow(next.Executors.HTTP, next.Executors.Private) }, nil)
			return c.commit()
		})
	})
	err = r.wait(cfg.ReadyFile, cfg.Ready, Ready{PID: os.Getpid()})
	defer removeReady(cfg.ReadyFile)
	return finish(d.Path, errors.Join(r.cause(), h.faults.err()), func() error {
		return errors.Join(err, r.stop(), open.Close())
	})
}

// identity returns how the host calls its servers, and its certificate; nil: it sends a token.
func (cfg HostConfig) identity(ctx context.Context, d *datadir.Dir, id string, log *slog.Logger) (*transport.Identity, *certificates.Host, error) {
	if cfg.certified() {
		h, err := certificates.OpenHost(ctx, d, id, cfg.Name, cmp.Or(cfg.Server, cfg.Nameserver), cfg.JoinToken, log)
		if err != nil {
			return nil, nil, err
		}
		return h.Identity(), h, nil
	}
	token, err := cfg.token()
	if err != nil {
		return nil, nil, err
	}
	own, err := transport.NewIdentity(token, cfg.CACert)
	return own, nil, err
}

// viaNames connects a host to the servers that the nameserver names. id is the host's.
func viaNames(names grpc.ClientConnInterface, id string, cfg HostConfig, own *transport.Identity, log *slog.Logger) connect {
	owner := func(ctx context.Context, partition string) (grpc.ClientConnInterface, io.Closer, error) {
		req := &apiv1.WatchRequest{Host: cfg.Name, HostId: id, Apps: cfg.Apps, Unit: partition}
		a, err := assigned(ctx, names, req)
		if err != nil {
			return nil, nil, err
		}
		conn, err := own.Dial(a.Address)
		if err != nil {
			return nil, nil, err
		}
		kept := follow(names, req, a, conn)
		if partition == "" {
			return conn, kept, nil
		}
		return ofPartition{conn, partition}, kept, nil
	}
	return connect{
		server:     func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error) { return owner(ctx, "") },
		partitions: func(ctx context.Context) ([]string, error) { return partitionsOf(ctx, names, cfg.Name, cfg.Apps, log) },
		partition:  owner,
	}
}

// ofPartition is a connection on which all calls are about one partition.
type ofPartition struct {
	grpc.ClientConnInterface
	partition string
}

// Invoke implements [grpc.ClientConnInterface].
func (c ofPartition) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.ClientConnInterface.Invoke(metadata.AppendToOutgoingContext(ctx, router.PartitionHeader, c.partition), method, args, reply, opts...)
}

// NewStream implements [grpc.ClientConnInterface].
func (c ofPartition) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(metadata.AppendToOutgoingContext(ctx, router.PartitionHeader, c.partition), desc, method, opts...)
}
