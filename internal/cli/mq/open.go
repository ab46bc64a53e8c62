package mq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/ingress"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// queues is the body of a command that calls the Queues service, either of a server or
// over the directory of a stopped server.
type queues func(ctx context.Context, q apiv1.QueuesServer, cmd *cobra.Command, args []string) error

// need describes the parts of a directory that a command opens.
type need struct {
	log   *string // log name: nil for none, "" for the existing one
	queue bool
	waits bool // waits for a person or for long work, so it has no timeout
}

// onQueues runs do on the server, or on a directory if one is given.
func (c *commands) onQueues(dir *string, n need, do queues) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		timeout := connect.DefaultTimeout
		if n.waits {
			timeout = 0
		}
		ctx, cancel := c.Deadline(cmd.Context(), timeout)
		defer cancel()
		var q apiv1.QueuesServer
		if *dir != "" {
			var opened *directory
			if opened, err = openDirectory(*dir, n); err != nil {
				return err
			}
			defer func() { err = cmp.Or(err, opened.close()) }()
			q = opened.service
		} else {
			conn, err := c.dial()
			if err != nil {
				return err
			}
			defer conn.Close() //nolint:errcheck // every answer has come
			q = remote{client: apiv1.NewQueuesClient(conn)}
			token, err := c.Token()
			if err != nil {
				return err
			}
			if token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
			}
		}
		return c.refusal(ctx, do(ctx, q, cmd, args))
	}
}

// addDir adds the flag that names a directory instead of a server.
func addDir(cmd *cobra.Command) *string {
	dir := new(string)
	cmd.Flags().StringVar(dir, "dir", "", "read this `directory` instead of asking a server: the data directory of a server or host that is down, "+
		"or the directory of one log or queue. Opening it finishes what a crash interrupted: it removes a torn tail, prepares a spare segment, "+
		"and writes a snapshot of a queue. It delivers nothing; only \"verify\" changes no file")
	return dir
}

// dial prepares the connection to the server; the first call opens it. Logs and dead
// letters belong to this one server.
func (c *commands) dial() (*grpc.ClientConn, error) {
	if err := c.Ready(); err != nil {
		return nil, err
	}
	if strings.Contains(c.URL, ",") {
		return nil, command.Fail(command.CodeUsage, "--url names several servers, and each has logs and dead letters of its own: name one")
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a server: want http://host:port or https://host:port", c.URL)
	}
	host, transport := u.Host, insecure.NewCredentials()
	if u.Port() == "" {
		host += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	if u.Scheme == "https" {
		conf, err := c.TLS()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(conf)
	}
	// A page holds up to 1000 messages.
	return grpc.NewClient("dns:///"+host, grpc.WithTransportCredentials(transport), grpc.WithUserAgent("wheelwork"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(80<<20)))
}

// refusal converts the service's error to one that [connect.Server.Explain] knows.
func (c *commands) refusal(ctx context.Context, err error) error {
	s, ok := status.FromError(err)
	switch {
	case err == nil || !ok:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("read the queue: %w", ctx.Err())
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("read the queue: %w", context.DeadlineExceeded)
	}
	message := s.Message()
	if s.Code() == codes.Unavailable && strings.Contains(message, "connection error") {
		if _, reason, ok := strings.Cut(message, "Error while dialing: "); ok {
			message = strings.TrimSuffix(reason, `"`)
		}
		message = "cannot reach " + c.URL + ": " + message
	}
	return &sdk.Error{Code: s.Code(), Message: message}
}

// remote is the Queues service of a server.
type remote struct {
	apiv1.UnimplementedQueuesServer
	client apiv1.QueuesClient
}

func (r remote) GetQueues(ctx context.Context, req *apiv1.GetQueuesRequest) (*apiv1.GetQueuesResponse, error) {
	return r.client.GetQueues(ctx, req)
}

func (r remote) PeekMessages(ctx context.Context, req *apiv1.PeekMessagesRequest) (*apiv1.PeekMessagesResponse, error) {
	return r.client.PeekMessages(ctx, req)
}

func (r remote) TailMessages(req *apiv1.TailMessagesRequest, to apiv1.Queues_TailMessagesServer) error {
	from, err := r.client.TailMessages(to.Context(), req)
	return relay(from, to, err)
}

func (r remote) VerifyLog(req *apiv1.VerifyLogRequest, to apiv1.Queues_VerifyLogServer) error {
	from, err := r.client.VerifyLog(to.Context(), req)
	return relay(from, to, err)
}

func (r remote) ListDeadLetters(ctx context.Context, req *apiv1.ListDeadLettersRequest) (*apiv1.ListDeadLettersResponse, error) {
	return r.client.ListDeadLetters(ctx, req)
}

func (r remote) GetDeadLetter(ctx context.Context, req *apiv1.GetDeadLetterRequest) (*apiv1.DeadLetter, error) {
	return r.client.GetDeadLetter(ctx, req)
}

func (r remote) EditDeadLetter(ctx context.Context, req *apiv1.EditDeadLetterRequest) (*apiv1.DeadLetter, error) {
	return r.client.EditDeadLetter(ctx, req)
}

func (r remote) ReplayDeadLetters(ctx context.Context, req *apiv1.ReplayDeadLettersRequest) (*apiv1.ReplayDeadLettersResponse, error) {
	return r.client.ReplayDeadLetters(ctx, req)
}

func (r remote) DropDeadLetters(ctx context.Context, req *apiv1.DropDeadLettersRequest) (*apiv1.DropDeadLettersResponse, error) {
	return r.client.DropDeadLetters(ctx, req)
}

// relay forwards the messages of a stream until it ends.
func relay[M any](from grpc.ServerStreamingClient[M], to grpc.ServerStreamingServer[M], err error) error {
	for err == nil {
		var m *M
		if m, err = from.Recv(); err == nil {
			err = to.Send(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sink is the receiving end of a stream of the service.
type sink[M any] struct {
	grpc.ServerStream // nil: the service calls only Send and Context
	ctx               context.Context
	send              func(*M) error
}

func (s sink[M]) Context() context.Context { return s.ctx }
func (s sink[M]) Send(m *M) error          { return s.send(m) }

// dataLogs holds the paths of the logs and the queue in a directory.
type dataLogs struct {
	dir   string
	logs  map[string]string // directories by name, without the queue's
	queue string            // directory of the queue; "": there is none
}

// findLogs finds the logs of a directory without opening any of them.
func findLogs(dir string) (dataLogs, error) {
	p := dataLogs{dir: dir, logs: map[string]string{}}
	switch {
	case isLog(dir):
		abs, err := filepath.Abs(dir)
		if err != nil {
			return p, err
		}
		p.logs[filepath.Base(abs)] = dir
		return p, nil
	case isLog(filepath.Join(dir, "log")):
		p.queue = dir
		return p, nil
	}
	for name, below := range map[string][]string{"journal": {"journal"}, "spool": {"spool", filepath.Join("host", "spool")}} {
		for _, sub := range below { // the data directory of "dev" contains its host's directory
			if sub = filepath.Join(dir, sub); isLog(sub) {
				p.logs[name] = sub
			}
		}
	}
	if sub := filepath.Join(dir, "ingress"); isLog(filepath.Join(sub, "log")) {
		p.queue = sub
	}
	if len(p.logs) == 0 && p.queue == "" {
		return p, command.Fail("not_found", "%s is neither the data directory of a server or host nor the directory of a log or a queue", dir)
	}
	return p, nil
}

// isLog reports whether a directory holds segments, or an interrupted repair.
func isLog(dir string) bool {
	segments, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.seg"))
	if err == nil && len(segments) > 0 {
		return true
	}
	_, err = os.Stat(filepath.Join(dir, "REPAIR"))
	return err == nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// all returns the directories of all logs by name, including the queue's.
func (p dataLogs) all() map[string]string {
	all := maps.Clone(p.logs)
	if p.queue != "" {
		all[ingressLog] = filepath.Join(p.queue, "log")
	}
	return all
}

const ingressLog = "ingress"

// directory is the Queues service over the opened logs.
type directory struct {
	service apiv1.QueuesServer
	closers []func() error
}

func (d *directory) close() (err error) {
	for _, f := range slices.Backward(d.closers) {
		err = errors.Join(err, f())
	}
	return err
}

func openDirectory(dir string, n need) (_ *directory, err error) {
	p, err := findLogs(dir)
	if err != nil {
		return nil, err
	}
	d := &directory{}
	defer func() {
		if err != nil {
			err = errors.Join(process.InUse(dir, err), d.close())
		}
	}()
	logs := map[string]*mq.Log{}
	if n.log != nil {
		if *n.log == "" && p.queue == "" && len(p.logs) == 1 && !n.queue {
			for name := range p.logs { // a directory that is a log itself needs no name
				*n.log = name
			}
		}
		for name, at := range p.logs {
			if !n.queue && name != *n.log {
				continue
			}
			l, err := mq.Open(quietLog(at))
			if err != nil {
				return nil, err
			}
			d.closers = append(d.closers, l.Close)
			logs[name] = l
		}
	}
	var q *queue.Queue
	if p.queue != "" && (n.queue || *n.log == "" || *n.log == ingressLog) {
		if q, err = queue.Open(queue.Config{Dir: p.queue, Log: quietLog(filepath.Join(p.queue, "log"))}); err != nil {
			return nil, err
		}
		d.closers = append(d.closers, q.Close)
	}
	if n.log == nil && q == nil {
		return nil, command.Fail("not_found", "there is no message queue in %s", dir)
	}
	d.service = ingress.NewQueues(q, logs)
	return d, nil
}

// quietLog returns a configuration for reading a log. It keeps the log's segment size,
// reserves no disk space, and does not scan for damage.
func quietLog(dir string) mq.Config {
	conf := mq.Config{Dir: dir, Writer: "pwrite", ReserveBytes: -1, ScrubBytesPerSecond: -1}
	if segments, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.seg")); err == nil && len(segments) > 0 {
		if info, err := os.Stat(slices.Max(segments)); err == nil {
			conf.SegmentBytes = info.Size()
		}
	}
	return conf
}
