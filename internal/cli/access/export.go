package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/delivery"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// exportFlags say where audit events go.
type exportFlags struct {
	auditFlags
	file, webhook, secretFile, syslog, state string
	follow                                   bool
	batch                                    int
}

const (
	defaultBatch = 500
	maxBatch     = 1000
)

func (c *commands) exportAudit() *cobra.Command {
	f := exportFlags{batch: defaultBatch}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write audit events as JSON lines, or deliver them to another system",
		Long: `Write audit events as JSON lines to standard output or to a file, the newest first: one
object a line, as "audit list -o jsonl" prints it, and all of them.

With --follow, --webhook or --syslog the oldest events come first, those of a partition in the
order of their sequences. --follow waits for further ones, until the command is ended. --state
names a file that holds up to where events were delivered, so that the command continues there
when it is started again. An event may come twice after an interruption: its partition and
sequence are the same. An event with the code audit.gap stands for events that the log no
longer has.

--webhook posts JSON arrays, signed with the secret as Standard Webhooks describes, and tries
again until the receiver has them. It ends if the receiver refuses them.`,
		Example: `  wheelwork audit export --since 30d > audit.jsonl
  wheelwork audit export --app shop --file audit.jsonl
  wheelwork audit export --follow --webhook https://siem.example/wheelwork --webhook-secret-file secret --state audit.state
  wheelwork audit export --follow --file /var/log/wheelwork/audit.jsonl --state /var/lib/wheelwork/audit.state`,
		Args: command.Arguments(),
	}
	f.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.file, "file", "", "`file` to write, which must not exist; with --state it is appended to (default standard output)")
	flags.BoolVar(&f.follow, "follow", false, "wait for further events; the oldest come first")
	flags.StringVar(&f.webhook, "webhook", "", "post events to this `URL`, of https or of this machine; takes --state")
	flags.StringVar(&f.secretFile, "webhook-secret-file", "", "`file` with the secret that signs the requests of --webhook: at least 24 bytes, or whsec_ with base64")
	flags.StringVar(&f.syslog, "syslog", "", "send events to this `address` as messages of RFC 5424: tls://HOST:PORT, or tcp://HOST:PORT of this machine; takes --state")
	flags.StringVar(&f.state, "state", "", "`file` that holds up to where events were delivered, for the next start")
	flags.IntVar(&f.batch, "batch", f.batch, "at most this `number` of events at a time, up to 1000; a request of --webhook has 1 MiB at most")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := f.query(cmd, c.appOf(cmd), time.Now())
		if err != nil {
			return err
		}
		if err := f.check(cmd); err != nil {
			return err
		}
		if f.delivers() {
			return c.deliver(cmd, &f, q)
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			return c.writeEvents(ctx, client, q, f.file)
		})(cmd, args)
	}
	return cmd
}

// delivers reports whether the oldest events come first.
func (f *exportFlags) delivers() bool { return f.follow || f.webhook != "" || f.syslog != "" }

// check refuses flags that do not go together.
func (f *exportFlags) check(cmd *cobra.Command) error {
	targets := 0
	for _, to := range []string{f.file, f.webhook, f.syslog} {
		if to != "" {
			targets++
		}
	}
	switch {
	case targets > 1:
		return command.Usage(cmd, "--file, --webhook and --syslog: give one of them")
	case f.secretFile != "" && f.webhook == "":
		return command.Usage(cmd, "--webhook-secret-file needs --webhook")
	case f.state == "" && (f.webhook != "" || f.syslog != ""):
		return command.Usage(cmd, "--state is missing: name a file that holds up to where events were delivered")
	case f.state != "" && !f.delivers():
		return command.Usage(cmd, "--state needs --follow, --webhook or --syslog")
	case f.until != "" && f.delivers():
		return command.Usage(cmd, "--until ends a list, and --follow, --webhook and --syslog go on: leave it out")
	case f.batch < 1 || f.batch > maxBatch:
		return command.Usage(cmd, "--batch %d: want 1 to %d", f.batch, maxBatch)
	}
	return nil
}

// writeEvents writes all events of a selection, the newest first.
func (c *commands) writeEvents(ctx context.Context, client *sdk.Client, q sdk.AuditQuery, file string) (err error) {
	lines := *c.Printer
	lines.Format = output.JSONL
	if file != "" {
		made, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("write the events: %w", err)
		}
		defer func() { err = errors.Join(err, made.Close()) }()
		lines.Out = made
	}
	n := 0
	err = lines.PrintAll(auditColumns, output.Records(client.AuditEvents(ctx, q), func(e *sdk.AuditEvent) output.Record {
		n++
		return auditRecord(e)
	}))
	if err == nil && file != "" {
		c.Note("%s: %d events", file, n)
	}
	return err
}

// deliver carries events to the receiver of the flags, the oldest first.
func (c *commands) deliver(cmd *cobra.Command, f *exportFlags, q sdk.AuditQuery) (err error) {
	follower := &delivery.Follower{Query: q, Size: f.batch, Once: !f.follow, Note: c.Note}
	if f.state != "" {
		if follower.State, err = delivery.OpenState(f.state); err != nil {
			return err
		}
	}
	if follower.To, err = c.receiver(cmd, f); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, follower.To.Close()) }()
	ctx, cancel := c.Deadline(cmd.Context(), 0)
	defer cancel()
	from := &dialed{c: c, waits: f.follow}
	follower.From = from
	defer from.close()
	return follower.Run(ctx)
}

// dialed is a client that connects with its first call, so that a follower can start before its server.
type dialed struct {
	c      *commands
	waits  bool // a server that cannot be reached is dialled again
	client *sdk.Client
}

// AuditEventsAfter implements [delivery.Source].
func (d *dialed) AuditEventsAfter(ctx context.Context, q sdk.AuditQuery, after string, size int) (_ *sdk.AuditPage, err error) {
	if d.client == nil {
		if d.client, err = d.c.Dial(ctx); err != nil && (!d.waits || !errors.Is(err, sdk.ErrUnavailable)) {
			return nil, delivery.Final(err)
		} else if err != nil {
			return nil, err
		}
	}
	return d.client.AuditEventsAfter(ctx, q, after, size)
}

func (d *dialed) close() {
	if d.client != nil {
		d.client.Close() //nolint:errcheck // every answer has come
	}
}

// usage makes an error about the value of a flag one of usage.
func usage(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return command.Usage(cmd, "%v", err)
}

func (c *commands) receiver(cmd *cobra.Command, f *exportFlags) (delivery.Receiver, error) {
	switch {
	case f.webhook != "":
		secret := ""
		if f.secretFile != "" {
			var err error
			if secret, err = credential.ReadPrivate(f.secretFile); err != nil {
				return nil, fmt.Errorf("read --webhook-secret-file: %w", err)
			}
			if secret == "" {
				return nil, fmt.Errorf("read --webhook-secret-file: %s is empty", f.secretFile)
			}
		}
		to, err := delivery.NewWebhook(f.webhook, secret, nil)
		return to, usage(cmd, err)
	case f.syslog != "":
		to, err := delivery.NewSyslog(f.syslog)
		return to, usage(cmd, err)
	case f.file != "":
		return delivery.NewFile(f.file, f.state == "")
	}
	return delivery.NewStream(c.Out), nil
}
