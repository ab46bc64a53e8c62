package sdk

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
)

// Options adjusts [Dial]. The zero value is valid.
type Options struct {
	// Token is sent with every call. White space around it is removed, so the contents of
	// a token file are valid. Default: none, which only public calls accept.
	Token string

	// TLS is used for https addresses. Default: the system's roots, TLS 1.2 or later.
	TLS *tls.Config

	// Ack selects when a command is answered. [Applied]: when it is done. [Kept]: when a
	// server has stored it durably and will execute it later, or move it to the dead
	// letters. Default: Applied.
	Ack Ack

	// MaxPending bounds the unanswered commands. At the bound, calls wait for room, and
	// the Try forms fail with [ErrFull]. Default: 8192. At most 65 536.
	MaxPending int

	// MaxPendingBytes bounds the size of the unanswered commands on the wire. Default: 64
	// MiB. At least 1 MiB, the size of the largest command.
	MaxPendingBytes int

	// Timeout bounds the whole life of a command from the call: the wait for room, all
	// attempts and the answer. An earlier deadline of the call's context takes
	// precedence. A command is never sent again later than 9 minutes after it was first
	// sent. Default: 1 min.
	Timeout time.Duration

	// AttemptTimeout is the time in which a server must answer commands before the client
	// sends them to another server. It has to cover the transfer of a message of 1 MiB.
	// Default: 5 s. At most 1 min.
	AttemptTimeout time.Duration

	// RetryFor is how long commands, uploads, waits and followed logs survive while no
	// server can be reached. Then they fail with [ErrUnavailable]. Default: 30 s.
	// Negative: they fail at once.
	RetryFor time.Duration

	// Program is the name of the calling program in the revisions of the definitions that it
	// changes, at most 40 printable ASCII characters. Default: "sdk".
	Program string

	// Dialer opens connections to host:port. Default: TCP.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	// DialOptions are added to those of the client's connections: interceptors, stats
	// handlers. An interceptor sees every attempt of a call, and the stream that carries
	// commands, but not the single command. Default: none.
	DialOptions []grpc.DialOption
}

// Client talks to the servers of one installation. It is safe for concurrent use.
type Client struct {
	version  *Version
	retryFor time.Duration
	servers  *servers
	producer *producer

	jobs       apiv1.JobsClient
	operations apiv1.OperationsClient
	runs       apiv1.RunsClient
	calendars  apiv1.CalendarsClient
	apps       apiv1.AppsClient
	revisions  apiv1.RevisionsClient
	alerts     apiv1.AlertsClient
	events     apiv1.EventsClient
	changeSets apiv1.ChangeSetsClient
	modules    apiv1.ModulesClient
	values     apiv1.ValuesClient
	secrets    apiv1.SecretsClient
	access     apiv1.ModuleAccessClient
	principals apiv1.AccessClient
	audit      apiv1.AuditClient
	machines   apiv1.MachinesClient
	cluster    apiv1.ClusterClient
	members    apiv1.MembershipClient
	backups    apiv1.BackupsClient
}

// Dial connects to the server at http://host:port or https://host:port and returns when
// the server has answered; ctx bounds only Dial itself. The address may list several
// servers of one installation, separated by commas; Dial tries one after another.
//
// The client repairs lost connections by itself, and sends commands that one server does
// not answer to the others. It connects to no other address, also if a server names one: each
// server forwards the calls that another server must answer. Dial fails with
// [ErrUnavailable] if no server answers. It does not check the token: the first call that
// needs one does.
func Dial(ctx context.Context, address string, opt Options) (*Client, error) {
	limits, err := opt.limits()
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	servers, err := newServers(address, opt.connect, limits.attempt)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	servers.takeover, servers.program = min(takeover, limits.retryFor), cmp.Or(opt.Program, "sdk")
	c := &Client{
		retryFor:   limits.retryFor,
		servers:    servers,
		jobs:       apiv1.NewJobsClient(servers),
		runs:       apiv1.NewRunsClient(servers),
		operations: apiv1.NewOperationsClient(servers),
		calendars:  apiv1.NewCalendarsClient(servers),
		values:     apiv1.NewValuesClient(servers),
		secrets:    apiv1.NewSecretsClient(servers),
		access:     apiv1.NewModuleAccessClient(servers), principals: apiv1.NewAccessClient(servers), audit: apiv1.NewAuditClient(servers), machines: apiv1.NewMachinesClient(servers),
		apps:      apiv1.NewAppsClient(servers),
		revisions: apiv1.NewRevisionsClient(servers), alerts: apiv1.NewAlertsClient(servers), events: apiv1.NewEventsClient(servers), changeSets: apiv1.NewChangeSetsClient(servers),
		modules: apiv1.NewModulesClient(servers),
		cluster: apiv1.NewClusterClient(servers),
		members: apiv1.NewMembershipClient(servers),
		backups: apiv1.NewBackupsClient(servers),
	}
	c.version, err = c.cluster.GetVersion(ctx, &apiv1.GetVersionRequest{})
	if err != nil {
		return nil, errors.Join(c.callError(ctx, "dial", err), servers.close())
	}
	c.producer = newProducer(servers, c.statusError, limits)
	return c, nil
}

// limits returns the bounds of commands with defaults filled in.
func (o Options) limits() (limits, error) {
	l := limits{
		commands: cmp.Or(o.MaxPending, 8192),
		bytes:    cmp.Or(o.MaxPendingBytes, 64<<20),
		timeout:  cmp.Or(o.Timeout, time.Minute),
		attempt:  cmp.Or(o.AttemptTimeout, 5*time.Second),
		retryFor: max(cmp.Or(o.RetryFor, 30*time.Second), 0),
		ack:      cmp.Or(o.Ack, Applied),
	}
	switch {
	case l.ack != Applied && l.ack != Kept:
		return l, fmt.Errorf("the Ack is %q: want %q or %q", o.Ack, Applied, Kept)
	case l.commands < 1 || l.commands > maxPending:
		return l, fmt.Errorf("MaxPending is %d: want 1 to %d", l.commands, maxPending)
	case l.bytes < maxBatchBytes:
		return l, fmt.Errorf("MaxPendingBytes is %d: want at least %d, the largest command", l.bytes, maxBatchBytes)
	case l.timeout < 0:
		return l, fmt.Errorf("the Timeout is %v: want more than 0", l.timeout)
	case l.attempt < 0 || l.attempt > time.Minute:
		return l, fmt.Errorf("the AttemptTimeout is %v: want more than 0, at most 1m", l.attempt)
	}
	return l, nil
}

// Flush waits until the commands of all calls that have returned are answered or have
// failed. It does not wait for calls that still wait for room, or for calls that begin
// after it. It fails only when ctx ends first.
func (c *Client) Flush(ctx context.Context) error { return c.producer.flush(ctx) }

// Close ends the client without waiting. Unanswered commands fail with [ErrClosed], so
// every command has an outcome when Close returns. Call [Client.Flush] first if the
// commands must be answered. Close must not be called from a function given to
// [Pending.Then].
func (c *Client) Close() error {
	c.producer.close()
	return c.servers.close()
}

// Version returns the version that the server reported when the client connected.
func (c *Client) Version() *Version { return c.version }

// Conn prepares a connection to one server with these options, for API services that a
// [Client] does not cover. The first call opens the connection.
func (o Options) Conn(address string) (*grpc.ClientConn, error) { return o.connect(address) }

// connect prepares the connection to a server; the first call opens it.
func (o Options) connect(address string) (*grpc.ClientConn, error) {
	target, transport, err := target(address, o.TLS)
	if err != nil {
		return nil, err
	}
	if o.Token, err = cleanToken(o.Token); err != nil {
		return nil, err
	}
	return grpc.NewClient(target, dialOptions(transport, o)...)
}

// cleanToken removes white space around a token, and refuses a text that is not a token.
// Its errors do not repeat the text, which may be a secret.
func cleanToken(token string) (string, error) {
	token = strings.TrimSpace(token)
	switch {
	case strings.ContainsAny(token, "\r\n"):
		return "", errors.New("the token has a line break in it: pass one line, the token alone")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("the token has a character that tokens do not have: read it from its file again")
	}
	return token, nil
}

// target splits an address into the address for gRPC and its transport security.
func target(address string, conf *tls.Config) (string, credentials.TransportCredentials, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.User != nil {
		return "", nil, fmt.Errorf("%q is not the address of a server: want http://host:port or https://host:port", address)
	}
	switch u.Scheme {
	case "http":
		return "dns:///" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")), insecure.NewCredentials(), nil
	case "https":
		if conf == nil {
			conf = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		return "dns:///" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), credentials.NewTLS(conf), nil
	}
	return "", nil, fmt.Errorf("%q begins with %q: want http:// or https://", address, u.Scheme)
}

func dialOptions(transport credentials.TransportCredentials, opt Options) []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent("wheelwork-sdk"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.ForceCodecV2(codec.New())),
		// The transport must not pause longer than the calls that wait for it.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A watch may be silent for long: keepalive distinguishes a quiet server from a
		// lost one.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	}
	if opt.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(opt.Token)))
	}
	if opt.Dialer != nil {
		options = append(options, grpc.WithContextDialer(opt.Dialer))
	}
	return append(options, opt.DialOptions...)
}

// maxAnswer bounds one message from the server, in bytes: a page of 1000 jobs
// of 64 KiB input each.
const maxAnswer = 80 << 20

// bearer sends a token with each call, also without TLS: a server in dev mode listens on
// loopback without TLS.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }
