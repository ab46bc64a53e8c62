package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/nameserver"
)

// NameserverConfig configures a nameserver.
type NameserverConfig struct {
	Listen    string // default 127.0.0.1:7600
	TokenFile string // required: the file with the token of hosts
	// ServerTokenFile holds the token of nameserver and servers; "": they use that of
	// hosts, on this machine only.
	ServerTokenFile string
	TLSCert         string
	TLSKey          string
	ReadyFile       string
	Limits          transport.Limits // on what callers may take
	Logger          *slog.Logger
	Ready           func(Ready)
	Reload          <-chan Reload[NameserverConfig]
}

// Nameserver runs a nameserver until ctx ends.
func Nameserver(ctx context.Context, cfg NameserverConfig) error {
	log := logger(cfg.Logger)
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:7600")
	if _, err := requireToken(cfg.TokenFile); err != nil {
		return err
	}
	tokens, err := credential.ReadProcesses(cfg.TokenFile, cfg.ServerTokenFile, cfg.Listen, log)
	if err != nil {
		return err
	}
	if err := credential.CheckKeyFile("--tls-key", cfg.TLSKey); err != nil {
		return err
	}
	tel, err := newTelemetry(ctx, "nameserver")
	if err != nil {
		return err
	}
	defer tel.Close() //nolint:errcheck // what could not be sent is lost with the process
	g := access.New()
	g.Replace(tokens.Tokens()...)
	ln, err := transport.Listen(cfg.Listen, cfg.TLSCert, cfg.TLSKey, nil, false, cfg.Limits, log)
	if err != nil {
		return err
	}
	defer ln.Close()           //nolint:errcheck // closed by the server in the usual case
	removeReady(cfg.ReadyFile) // left by a process that was killed
	dr := transport.NewServer(g, cfg.Limits, log, tel.serverOptions()...)
	nameserver.New(nameserver.Config{Logger: log}).Register(dr.GRPC)
	r := newRoles(ctx)
	r.serve(dr, ln, tel.metrics(g, http.NotFoundHandler()))
	r.run("reload", func(ctx context.Context) error {
		return reloads(ctx, cfg.Reload, func(next NameserverConfig) (func(), error) {
			if _, err := requireToken(next.TokenFile); err != nil {
				return nil, err
			}
			tokens, err := credential.ReadProcesses(next.TokenFile, next.ServerTokenFile, cfg.Listen, slog.New(slog.DiscardHandler))
			if err != nil {
				return nil, err
			}
			var c changes
			c.renewListener(ln, dr, next.TLSCert, next.TLSKey, next.Limits)
			c.add(func() { g.Replace(tokens.Tokens()...) }, nil)
			return c.commit()
		})
	})
	return r.until(cfg.ReadyFile, cfg.Ready, Ready{GRPC: ln.Addr().String(), PID: os.Getpid()})
}

// assigned asks the nameserver for a server and waits until there is one: the owner of
// the partition that the request names or, if it names none, that of its first app's
// partition.
func assigned(ctx context.Context, names grpc.ClientConnInterface, req *apiv1.WatchRequest) (*apiv1.Assignment, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(names).Watch(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask the nameserver: %w", err)
	}
	for {
		a, err := stream.Recv()
		if err != nil {
			return nil, fmt.Errorf("ask the nameserver: %w", err)
		}
		if a.Address != "" {
			return a, nil
		}
	}
}

// partitionsOf returns the partitions of the nameserver's cluster; none: the nameserver has
// only standalone servers. It repeats the request until the nameserver answers.
func partitionsOf(ctx context.Context, names grpc.ClientConnInterface, name string, apps []string, log *slog.Logger) ([]string, error) {
	for first := true; ; first = false {
		a, err := assigned(ctx, names, &apiv1.WatchRequest{Host: name, Apps: apps})
		if err == nil {
			return a.Units, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		level := slog.LevelWarn
		if first { // processes that start together wait for each other
			level = slog.LevelInfo
		}
		log.Log(ctx, level, "waits for the nameserver, which does not answer", "error", status.Convert(err).Message())
		wait.For(ctx, namesAgain)
	}
}

const (
	namesAgain  = 500 * time.Millisecond // pause before the next request to a nameserver
	reportEvery = time.Second            // how often a server reports itself although nothing has changed
)

// announce reports the server to the nameserver until ctx ends. It reports a partition
// that the server has taken at once, because hosts ask the nameserver for the owner. It
// returns an error if the server is standalone and the nameserver has another server.
func announce(ctx context.Context, names grpc.ClientConnInterface, srv *serverParts, address string, log *slog.Logger) error {
	for ctx.Err() == nil {
		err := reportTo(ctx, names, srv, address)
		switch {
		case err == nil || ctx.Err() != nil:
		case srv.member == nil && router.OwnerIn(err) != nil:
			return errors.New("the nameserver refuses this server: " + status.Convert(err).Message())
		default:
			log.Warn("the nameserver took no report of this server", "error", err)
		}
		wait.For(ctx, namesAgain)
	}
	return nil
}

// reportTo is one session with the nameserver. It returns the nameserver's refusal, or
// nil when ctx ends.
func reportTo(ctx context.Context, names grpc.ClientConnInterface, srv *serverParts, address string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(names).Join(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for joined := false; ; joined = true {
		owns := srv.owns()
		report, err := srv.report(ctx, address)
		if err != nil {
			return err
		}
		if err = stream.Send(report); err != nil || !joined {
			if _, err := stream.Recv(); err != nil { // an order, or the reason why the nameserver takes no report
				return err
			}
		}
		if err != nil || !srv.untilOther(ctx, owns, tick.C) {
			return err
		}
	}
}

func requireToken(path string) (string, error) {
	t, err := credential.FileToken("--token-file", path)
	if err == nil && t == "" {
		err = errors.New("--token-file is required: a file with the token of the hosts of this installation, as `wheelwork token generate FILE` makes one")
	}
	return t, err
}
