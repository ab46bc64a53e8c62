package sdk

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Options adjusts [Dial]. The zero value is valid.
type Options struct {
	// Token is sent with every call. Default: none, which only public calls accept.
	Token string

	// TLS is used for https addresses. Default: the system's roots, TLS 1.2 or later.
	TLS *tls.Config

	// MaxPending bounds the commands that are not answered yet. Whoever calls
	// when it is reached waits. Default: 8192.
	MaxPending int

	// RetryFor is how long commands, waits and followed logs survive a server
	// that cannot be reached before they fail with [ErrUnavailable].
	// Default: 30 s. Negative: they fail at once.
	RetryFor time.Duration

	// Dialer opens connections to host:port. Default: TCP.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
}

// Client talks to one server. It is safe for concurrent use.
type Client struct {
	url      string
	version  *Version
	retryFor time.Duration
	conn     *grpc.ClientConn
	producer *producer

	jobs    apiv1.JobsClient
	runs    apiv1.RunsClient
	modules apiv1.ModulesClient
	cluster apiv1.ClusterClient
}

// Dial connects to the server at http://host:port or https://host:port and
// returns when it has answered; ctx bounds that only. Later losses of the
// connection are repaired by the client itself. Dial fails with
// [ErrUnavailable] if nobody answers. It does not check the token: the first
// call that needs one does.
func Dial(ctx context.Context, address string, opt Options) (*Client, error) {
	target, transport, err := target(address, opt.TLS)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	conn, err := grpc.NewClient(target, dialOptions(transport, opt)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	c := &Client{
		url:      address,
		retryFor: max(cmp.Or(opt.RetryFor, 30*time.Second), 0),
		conn:     conn,
		jobs:     apiv1.NewJobsClient(conn),
		runs:     apiv1.NewRunsClient(conn),
		modules:  apiv1.NewModulesClient(conn),
		cluster:  apiv1.NewClusterClient(conn),
	}
	c.version, err = c.cluster.GetVersion(ctx, &apiv1.GetVersionRequest{})
	if err != nil {
		return nil, errors.Join(c.callError(ctx, "dial", err), conn.Close())
	}
	c.producer = newProducer(apiv1.NewProducerClient(conn).Produce, c.statusError, cmp.Or(opt.MaxPending, 8192), c.retryFor)
	return c, nil
}

// Close ends the client. Commands that are not answered yet fail with
// [ErrClosed]; wait for them first if their fate matters.
func (c *Client) Close() error {
	c.producer.close()
	return c.conn.Close()
}

// Version returns what the server said about itself when the client connected.
func (c *Client) Version() *Version { return c.version }

// target splits an address into what gRPC dials and how it is protected.
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
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		// The transport must not sleep longer than those who wait behind it.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if opt.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(opt.Token)))
	}
	if opt.Dialer != nil {
		options = append(options, grpc.WithContextDialer(opt.Dialer))
	}
	return options
}

// maxAnswer bounds one message from the server, in bytes: a page of 1000 jobs
// of 64 KiB input each.
const maxAnswer = 80 << 20

// bearer sends a token with each call. It does so without TLS too: a server in
// dev mode listens on loopback without.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }
