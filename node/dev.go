package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/verifier"
	"github.com/wheelworkhq/wheelwork/mq"
)

// DevConfig is the configuration of one process with all roles.
type DevConfig struct {
	Data      string // default "wheelwork-data"
	Listen    string // loopback only; default 127.0.0.1:7700
	ReadyFile string // written when ready; "": none
	Writer    string // see ServerConfig
	// See ServerConfig.
	NewSecretKey bool
	Sync         mq.SyncPolicy
	Executors    Executors
	Dirs         map[string]string   // see HostConfig
	DirApps      map[string][]string // see HostConfig
	Slots        int                 // see HostConfig
	MaxSleeping  int                 // see HostConfig
	// See HostConfig.
	ModuleBytes, CompiledBytes, GuestBytes int64
	Retain                                 Retention       // see ServerConfig
	Sample                                 bool            // push the sample module and apply its job, if there is no job yet
	Verifier                               verifier.Config // see ServerConfig
	Limits                                 transport.Limits
	MaxApps                                int                 // see ServerConfig
	Streams                                access.StreamLimits // see ServerConfig
	Alerts                                 AlertsConfig        // see ServerConfig
	Backups                                BackupsConfig       // see ServerConfig
	Logger                                 *slog.Logger
	Ready                                  func(Ready) // called when ready; may be nil
	Reload                                 <-chan Reload[DevConfig]
}

// ofServer returns the configuration of the server.
func (cfg DevConfig) ofServer() ServerConfig {
	return ServerConfig{Data: cfg.Data, Listen: cfg.Listen, ReadyFile: cfg.ReadyFile, Writer: cfg.Writer, Sync: cfg.Sync, Retain: cfg.Retain, NewSecretKey: cfg.NewSecretKey, Verifier: cfg.Verifier, Limits: cfg.Limits, People: PeopleConfig{LegacyTokens: legacyAlways}, Certificates: CertificatesConfig{TLS: "off"}, MaxApps: cfg.MaxApps, Streams: cfg.Streams, Alerts: cfg.Alerts, Backups: cfg.Backups, Logger: cfg.Logger}
}

// Dev runs nameserver, server and host until ctx ends.
func Dev(ctx context.Context, cfg DevConfig) (err error) {
	if err := checkDirs(cfg.Dirs, cfg.DirApps); err != nil {
		return err
	}
	s, err := openServing(ctx, cfg.ofServer(), "dev")
	if err != nil {
		return err
	}
	started := false
	defer func() {
		if !started {
			err = errors.Join(err, s.Close())
		}
	}()
	dir := func(parts ...string) string { return s.data.Join(append([]string{"host"}, parts...)...) }
	toSelf := func(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
		return s.self, closeFunc(func() error { return nil }), nil
	}
	h, err := openHost(ctx, dir, HostConfig{Data: s.data.Path, Name: "dev", Slots: cfg.Slots, MaxSleeping: cfg.MaxSleeping, Executors: cfg.Executors, Dirs: cfg.Dirs, DirApps: cfg.DirApps, ModuleBytes: cfg.ModuleBytes, CompiledBytes: cfg.CompiledBytes, GuestBytes: cfg.GuestBytes}, connect{server: toSelf}, s.tel, s.log)
	if err != nil {
		return err
	}
	s.add(h)
	owner, err := s.dial(s.token)
	if err != nil {
		return err
	}
	started = true // finish closes s
	r := s.start(ctx)
	r.run("spool", h.faults.run)
	r.run("host", h.host.Run)
	r.run("reload", func(ctx context.Context) error {
		return reloads(ctx, cfg.Reload, func(next DevConfig) (func(), error) {
			var c changes
			c.add(s.prepare(next.ofServer()))
			c.add(func() { h.egress.allow(next.Executors.HTTP, next.Executors.Private) }, nil)
			return c.commit()
		})
	})
	if cfg.Sample {
		if err := sample(ctx, owner, s.log); err != nil {
			return s.finish(r, cfg.ReadyFile, fmt.Errorf("start the sample job: %w", err))
		}
	}
	return s.finish(r, cfg.ReadyFile, r.wait(cfg.ReadyFile, cfg.Ready, s.ready()))
}
