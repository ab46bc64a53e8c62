package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/backup/planned"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/membership"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/console"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/nameserver"
	"github.com/wheelworkhq/wheelwork/sched"
)

// Server runs a server until ctx ends.
func Server(ctx context.Context, cfg ServerConfig) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer func() {
		if gone := (*memberError)(nil); errors.As(context.Cause(ctx), &gone) {
			err = errors.Join(gone, err)
		}
	}()
	cfg.fail = fail
	s, err := openServing(ctx, cfg, "")
	if err != nil {
		if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
			return nil // it was asked to end before it served
		}
		return err
	}
	r := s.start(ctx)
	r.run("reload", func(ctx context.Context) error { return reloads(ctx, cfg.Reload, s.prepare) })
	err = r.wait(cfg.ReadyFile, cfg.Ready, s.ready())
	return s.finish(r, cfg.ReadyFile, err)
}

// finish ends a server in order, if its disk works. err is what failed before.
func (s *serving) finish(r *roles, readyFile string, err error) error {
	defer removeReady(readyFile)
	return finish(s.data.Path, errors.Join(r.cause(), s.parts.faults.err()), func() error {
		return errors.Join(err, r.stop(), s.Close())
	})
}

// serving is a server with its listener, open but not started. Closing it closes
// everything in it.
type serving struct {
	closers
	data      *datadir.Dir
	tel       *telemetry
	log       *slog.Logger
	token     string      // of the administrator, as at the start
	hostToken string      // of workers, as at the start
	legacy    bool        // token is accepted
	inner     string      // token between the roles of this process
	acting    string      // token of the calls to itself for the callers of operations
	setup     *setup      // nil: there is no page to make the first administrator
	people    *federation // nil: there is no provider, and no authenticating proxy
	// tellSetup is called with the address of that page.
	tellSetup   func(link string)
	guard       *access.Guard
	ln          *transport.Port
	public      string             // the origin for people; "": that of the listener
	certificate *serverCertificate // nil: it serves without TLS
	listen      string             // the address of ln as it was configured
	advertise   string
	// auditEvery is how often refused calls become audit events, and ends of audit logs are anchored; 0: the defaults.
	auditEvery time.Duration
	parts      *serverParts
	recipients atomic.Pointer[encryption.Recipients] // of backups
	backups    *planned.Maker                        // nil: it makes none by itself
	server     *transport.Server
	handler    http.Handler
	codes      *console.Codes // for signing in browsers
	// self is a connection of this process to its own listener, with the role member.
	self *grpc.ClientConn
	// names are connections to the nameservers to which this server reports; one may be
	// self.
	names   []grpc.ClientConnInterface
	toNames *transport.Identity // of this server towards other nameservers; nil: there are none
}

// openServing opens what every process with a server has. kind names the kind of
// installation on the console's pages; "" for the usual one.
func openServing(ctx context.Context, cfg ServerConfig, kind string) (_ *serving, err error) {
	s := &serving{log: logger(cfg.Logger), advertise: cfg.Advertise, auditEvery: cfg.auditEvery, codes: console.NewCodes(), inner: credential.NewToken("in_"), acting: credential.NewToken("in_"), guard: access.New()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if cfg.People.Setup != nil {
		s.setup, s.tellSetup = newSetup(), cfg.People.Setup
	}
	if err := cfg.People.AuthProxy.Check(cfg.Limits.TrustedProxies); err != nil {
		return nil, err
	}
	if err := cfg.People.usePublicURL(); err != nil {
		return nil, err
	}
	s.public = cfg.People.PublicURL
	if s.people, err = newFederation(cfg.People); err != nil {
		return nil, err
	}
	recipients, err := readRecipients(cfg)
	if err != nil {
		return nil, err
	}
	s.recipients.Store(&recipients)
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:7700")
	s.listen = cfg.Listen
	tokens, err := credential.ReadProcesses(cfg.TokenFile, cfg.ServerTokenFile, cfg.Listen, s.log)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(credential.CheckKeyFile("--tls-key", cfg.Certificates.Key), credential.CheckKeyFile("--etcd-key", cfg.Etcd.Key)); err != nil {
		return nil, err
	}
	if s.data, err = datadir.Open(cmp.Or(cfg.Data, "wheelwork-data"), datadir.ServerForm); err != nil {
		return nil, err
	}
	s.add(closeFunc(s.data.Close))
	removeReady(cfg.ReadyFile) // left by a process that was killed
	if s.tel, err = newTelemetry(ctx, cmp.Or(kind, "server")); err != nil {
		return nil, err
	}
	s.add(s.tel)
	if s.legacy, err = acceptsLegacy(s.data, cfg.People.LegacyTokens, cfg.Listen); err != nil {
		return nil, err
	}
	if s.token, err = credential.KeepToken(s.data.Join("token"), "ww_"); err != nil {
		return nil, err
	}
	if s.hostToken, err = credential.KeepToken(s.data.Join("host-token"), "wh_"); err != nil {
		return nil, err
	}
	if err := cfg.Certificates.check(); err != nil {
		return nil, err
	}
	var own *transport.Machine // nil: no machine is shown a certificate
	if cfg.secure() {
		if s.certificate, err = openCertificate(ctx, s.data, &cfg, s.log); err != nil {
			return nil, err
		}
		own = s.certificate.own
	} else if cfg.Certificates.JoinToken != "" {
		return nil, errors.New("--join-token needs TLS: start the server beyond this machine, or with --tls on")
	}
	if cfg.Cluster.On {
		m, err := startMember(ctx, s.data, &cfg, s.log)
		if err != nil {
			return nil, err
		}
		s.add(m)
		if err := s.data.MarkClustered(); err != nil {
			return nil, err
		}
		go watchMember(ctx, m, cfg.fail)
	}
	if s.ln, err = transport.Listen(cfg.Listen, cfg.Certificates.Cert, cfg.Certificates.Key, own, cfg.both(), cfg.Limits, s.log); err != nil {
		return nil, err
	}
	s.add(closeFunc(func() error {
		s.ln.Close() //nolint:errcheck // closed by the server in the usual case
		return nil
	}))
	if err := s.openParts(ctx, cfg, tokens); err != nil {
		return nil, err
	}
	if s.certificate != nil {
		if err := s.certificate.of.Sign(s.parts.authority); err != nil {
			return nil, err
		}
		if m := s.parts.member; m != nil {
			m.Certified, m.Router.Peers.Machine, m.Router.Peers.Certified = true, own.Identity(), func(address string) bool { return cluster.Certified(m.View, address) }
		}
	}
	s.guard.Replace(s.accepted(s.token, s.hostToken, tokens)...)
	switch r, err := s.data.Recovery(time.Now()); {
	case err != nil:
		return nil, err
	case r != nil:
		s.log.Warn("a token of wheelwork access recover is an administrator", "until", r.Until)
		s.guard.Recover(r.Digest, r.Until)
	}
	if err := s.openServer(cfg, tokens); err != nil {
		return nil, err
	}
	if s.setup != nil {
		if s.setup.conn, err = s.dial(s.setup.token); err != nil {
			return nil, err
		}
	}
	if s.people != nil {
		if s.people.conn, err = s.dial(s.people.token); err != nil {
			return nil, err
		}
	}
	return s, s.openConsole(kind, cfg.People.AuthProxy)
}

// openServer registers the services with the listener.
func (s *serving) openServer(cfg ServerConfig, tokens credential.Processes) (err error) {
	if cfg.Nameserver != "" {
		if err := s.findNames(cfg, tokens.Own()); err != nil {
			return err
		}
	}
	m := s.parts.member
	s.guard.SetStreamLimits(cfg.Streams)
	s.guard.Used = func(id string) {
		go func() {
			if id == access.Recovery {
				s.events().record(context.Background(), audit.Event{By: &apiv1.Attribution{Author: id, Kind: access.KindUser, Token: id}, Row: audit.Row{Code: "access.recovered", Object: id}})
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if _, err := apiv1.NewAccessClient(s.self).UseSession(ctx, &apiv1.UseSessionRequest{Id: id}); err != nil {
				s.log.Warn("the use of a session or a token is not recorded", "id", id, "error", err)
			}
		}()
	}
	s.server = transport.NewServer(s.guard, cfg.Limits, s.log, append(s.tel.serverOptions(), s.owned()...)...)
	s.parts.ingress.Register(s.server.GRPC)
	recipients := func() encryption.Recipients { return *s.recipients.Load() }
	kept := apiv1.BackupsServer(&archive.Service{Source: s.parts.state, Recipients: recipients, Log: s.log})
	if m != nil {
		m.backups.Recipients, kept = recipients, m.backups
	}
	if kept, s.backups, err = openBackups(cfg.Backups, s.data, s.parts, cmp.Or(s.advertise, s.ln.Addr().String()), recipients, kept, s.tel, s.log); err != nil {
		return err
	}
	apiv1.RegisterBackupsServer(s.server.GRPC, kept)
	if s.self, err = s.dial(s.inner); err != nil {
		return err
	}
	acting, err := s.dial(s.acting)
	if err != nil {
		return err
	}
	s.parts.operations.Conn = acting
	s.parts.operations.Note = s.events().noted
	if m != nil {
		s.parts.operations.Conn = &router.Acting{Self: acting, Forwarder: &m.Router.Forwarder, Accepts: m.View.Passable}
		m.Router.Writes, m.Router.PublicURL = s.guard.Writes, s.public
		apiv1.RegisterNameserverServer(s.server.GRPC, m.Nameserver())
		apiv1.RegisterMembershipServer(s.server.GRPC, m.Service())
		return m.Router.Register(s.server.GRPC)
	}
	s.parts.sched.Register(s.server.GRPC)
	if len(s.names) == 0 {
		s.names = append(s.names, s.self)
		nameserver.New(nameserver.Config{Only: s.parts.id, Logger: s.log}).Register(s.server.GRPC)
	}
	apiv1.RegisterMembershipServer(s.server.GRPC, &membership.Standalone{Names: apiv1.NewNameserverClient(s.names[0]), ID: s.parts.id})
	return nil
}

// events returns what makes the audit events of this server.
func (s *serving) events() *recorder { return &recorder{s.parts.note, s.log} }

// owned returns the interceptors that pass on calls which another server of the cluster
// must answer.
func (s *serving) owned() []grpc.ServerOption {
	m := s.parts.member
	r := s.events()
	opts := []grpc.ServerOption{grpc.ChainUnaryInterceptor(sched.AttributeUnary, r.Unary), grpc.ChainStreamInterceptor(sched.AttributeStream, r.Stream)}
	if m == nil {
		return opts
	}
	i := &router.Interceptor{Guard: s.guard, Forwarder: &m.Router.Forwarder, Accepts: m.View.Passable}
	return append(opts, grpc.ChainUnaryInterceptor(i.Unary), grpc.ChainStreamInterceptor(i.Stream))
}

func (s *serving) openParts(ctx context.Context, cfg ServerConfig, tokens credential.Processes) (err error) {
	if s.parts, err = openServer(ctx, s.data, cfg, tokens, s.guard, s.tel, s.log); err != nil {
		return err
	}
	s.add(s.parts)
	return nil
}

// dial returns a connection to the process's own listener with a token. Without one ("")
// each call must bring its own.
func (s *serving) dial(token string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	if token != "" {
		opts = append(opts, transport.WithToken(token, false))
	}
	conn, err := s.server.Dial(opts...)
	if err != nil {
		return nil, err
	}
	s.add(conn)
	return conn, nil
}

// findNames connects to the nameservers. Several do not know of each other, and could
// admit two standalone servers, so there may be several only in a cluster.
func (s *serving) findNames(cfg ServerConfig, token string) (err error) {
	addresses := strings.Split(cfg.Nameserver, ",")
	if len(addresses) > 1 && len(cfg.Etcd.Endpoints) == 0 {
		return errors.New("--nameserver names several, which is for servers of a cluster (--cluster, --etcd-endpoints): give one")
	}
	if s.toNames, err = transport.NewIdentity(token, cfg.CACert); err != nil {
		return err
	}
	for _, address := range addresses {
		conn, err := s.toNames.Dial(strings.TrimSpace(address))
		if err != nil {
			return err
		}
		s.add(conn)
		s.names = append(s.names, conn)
	}
	return nil
}

func (s *serving) openConsole(kind string, named AuthProxy) error {
	conn, err := s.dial("")
	if err != nil {
		return err
	}
	var proxy *authProxy // nil: there is none
	if named.Header != "" {
		proxy = &authProxy{named, s.server.Limits, s.people.proxied, &s.guard.Refusals}
	}
	pages, err := console.New(console.Config{
		Conn: conn, Banner: kind, Version: version.String(), Secure: s.ln.Secure, PublicURL: s.public,
		MaxBody: func() int64 { return s.server.Limits().Body }, MaxModule: func() int64 { return s.parts.uploads.Limits().ModuleBytes },
		Admit: func(r *http.Request) error { return s.guard.Admit(r.Context(), r.Header.Values("Authorization")) },
		SignedIn: func(token string, from netip.Addr) {
			if p, err := s.guard.Identify(token); err == nil {
				by := &apiv1.Attribution{Author: p.Author(), Kind: p.Kind, Token: p.Token, Address: from.String(), Cause: "console"}
				s.events().record(context.Background(), audit.Event{By: by, Row: audit.Row{Code: "session.started", Object: "console"}})
			}
		},
		Setup: s.setup.console(), Provider: s.people.console(), Proxy: proxy.console(), Codes: s.codes, Sessions: s.data.File("console-sessions"), Address: func(r *http.Request) netip.Addr { return s.server.Limits().ClientOf(r) }, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.server.Signed = pages.SignedIn
	s.handler = proxy.handler(s.tel.metrics(s.guard, pages))
	return nil
}

// url is where the server listens.
func (s *serving) url() string {
	scheme := "http://"
	if s.ln.Secure {
		scheme = "https://"
	}
	return scheme + s.ln.Addr().String()
}

// link returns an address of the console for people.
func (s *serving) link(path string) string { return cmp.Or(s.public, s.url()) + path }

func (s *serving) ready() Ready {
	r := Ready{URL: s.url(), GRPC: s.ln.Addr().String(), HostToken: s.hostToken, PID: os.Getpid()}
	if s.legacy {
		r.Token, r.LoginURL = s.token, s.link("/login?code="+s.codes.Issue(s.token))
	}
	return r
}

// start starts the server's roles.
func (s *serving) start(ctx context.Context) *roles {
	r := newRoles(ctx)
	r.run("disk", s.parts.faults.run)
	r.run("memory", giveBack)
	r.serve(s.server, s.ln, s.handler)
	r.run("server", s.parts.run)
	r.run("ingress", s.parts.ingress.Run)
	r.run("audit", func(ctx context.Context) error {
		return s.events().refusals(ctx, cmp.Or(s.auditEvery, auditEvery), &s.guard.Refusals)
	})
	if s.certificate != nil {
		r.run("certificate", func(ctx context.Context) error { return s.certificate.run(ctx, apiv1.NewMachinesClient(s.self)) })
		r.run("revocation", func(ctx context.Context) error { return s.certificate.untilRevoked(ctx, s.guard.Revoked) })
		if m := s.parts.member; m != nil {
			r.run("authority", func(ctx context.Context) error { return m.shared.Run(ctx, s.data, m.authority, s.log) })
		}
	}
	if m := s.parts.member; m != nil {
		a := &anchors{first: m.View.Fallback(), replicas: m.replicas, to: apiv1.NewAuditClient(s.self), log: s.log, stored: map[string]*apiv1.AuditAnchor{}, told: map[string]string{}}
		r.run("audit anchors", func(ctx context.Context) error { return a.run(ctx, cmp.Or(s.auditEvery, anchorEvery)) })
	}
	if s.backups != nil {
		r.run("backups", s.backups.Run)
	}
	if s.setup != nil {
		r.run("setup", func(ctx context.Context) error {
			return s.setup.announce(ctx, func() { s.tellSetup(s.link("/setup?code=" + s.setup.code)) })
		})
	}
	for _, names := range s.names {
		r.run("registration", func(ctx context.Context) error {
			return announce(ctx, names, s.parts, cmp.Or(s.advertise, s.ln.Addr().String()), s.log)
		})
	}
	return r
}

// prepare reads the settings of a server that need no restart.
func (s *serving) prepare(next ServerConfig) (func(), error) {
	// The start has logged the warnings about unsafe tokens.
	tokens, err := credential.ReadProcesses(next.TokenFile, next.ServerTokenFile, s.listen, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	token, err := credential.KeptToken(s.data.Join("token"))
	if err != nil {
		return nil, err
	}
	hostToken, err := credential.KeptToken(s.data.Join("host-token"))
	if err != nil {
		return nil, err
	}
	recipients, err := readRecipients(next)
	if err != nil {
		return nil, err
	}
	var c changes
	c.add(func() {}, next.People.AuthProxy.Check(next.Limits.TrustedProxies))
	c.renewListener(s.ln, s.server, next.Certificates.Cert, next.Certificates.Key, next.Limits)
	if s.toNames != nil {
		c.add(s.toNames.Renew(tokens.Own(), next.CACert))
	}
	if m := s.parts.member; m != nil {
		peers := m.Router.Peers
		key := peers.Key.Token() // it is in etcd, and does not change
		c.add(peers.Own.Renew(cmp.Or(tokens.Own(), key), next.CACert))
		c.add(peers.Key.Renew(key, next.CACert))
	}
	c.add(func() { s.parts.uploads.SetLimits(next.Verifier.Limits) }, nil)
	c.add(s.parts.renewKeys(s.data, next))
	c.add(func() { s.recipients.Store(&recipients) }, nil)
	c.add(func() { s.guard.SetStreamLimits(next.Streams) }, next.Streams.Check())
	c.add(func() { s.guard.Replace(s.accepted(token, hostToken, tokens)...) }, nil)
	return c.commit()
}

func readRecipients(cfg ServerConfig) (encryption.Recipients, error) {
	r, err := encryption.ParseRecipients(cfg.BackupRecipients)
	if err != nil {
		return r, fmt.Errorf("--backup-recipient: %w", err)
	}
	return r, nil
}

// accepted returns the tokens that a server accepts: those of the administrator, of workers and of
// the other processes, and its own.
func (s *serving) accepted(token, hostToken string, processes credential.Processes) []access.Token {
	all := []access.Token{{Text: hostToken, Role: access.Worker}}
	if s.legacy {
		all = append(all, access.Token{Text: token, Role: access.Admin})
	}
	all = append(append(all, processes.Tokens()...), access.Token{Text: s.inner, Role: access.Member}, access.Token{Text: s.acting, Role: access.Acting})
	if s.setup != nil {
		all = append(all, access.Token{Text: s.setup.token, Role: access.Setup})
	}
	if s.people != nil {
		all = append(all, access.Token{Text: s.people.token, Role: access.Federation})
	}
	if m := s.parts.member; m != nil {
		all = append(all, access.Token{Text: m.Router.Peers.Key.Token(), Role: access.Server})
	}
	return all
}
