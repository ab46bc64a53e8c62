package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// auditFlags select events.
type auditFlags struct{ actor, code, since, until string }

func (f *auditFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.actor, "actor", "", "only events of this `principal`")
	cmd.Flags().StringVar(&f.code, "code", "", "only events with this `code`, or all that begin with it if it ends in a dot: job.")
	cmd.Flags().StringVar(&f.since, "since", "", "only events since this `time`: a time ago, as 30d or 12h, a date, or an instant as 2030-01-31T08:00:00Z")
	cmd.Flags().StringVar(&f.until, "until", "", "only events until this `time`, as --since")
}

// query returns the selection. now is the time from which times ago are counted.
func (f *auditFlags) query(cmd *cobra.Command, app string, now time.Time) (q sdk.AuditQuery, err error) {
	q = sdk.AuditQuery{App: app, Actor: f.actor, Code: f.code}
	for _, x := range []struct {
		flag, text string
		to         *time.Time
	}{{"since", f.since, &q.Since}, {"until", f.until, &q.Until}} {
		if *x.to, err = past(x.text, now); err != nil {
			return q, command.Usage(cmd, "--%s %q: %v", x.flag, x.text, err)
		}
	}
	return q, nil
}

var errPast = errors.New("want a time ago, as 30d or 12h, a date as 2030-01-31, or an instant as 2030-01-31T08:00:00Z")

// past reads a time ago, a date or an instant; "" is the zero time.
func past(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := expiry(text, now); err == nil { // a time from now, which is read as a time ago
		if ago := t.Sub(now); ago > 0 {
			if _, err := time.Parse(time.RFC3339, text); err != nil {
				return now.Add(-ago), nil
			}
		}
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errPast
}

var auditColumns = []string{"time", "code", "actor", "app", "object", "outcome", "before", "after", "address"}

func auditRecord(e *sdk.AuditEvent) output.Record {
	return output.Message(e, func() []output.Cell {
		return []output.Cell{
			{Text: output.Time(e.GetTime())},
			{Text: e.GetCode()},
			{Text: e.GetActor()},
			{Text: e.GetApp()},
			{Text: e.GetObject()},
			{Text: e.GetOutcome()},
			{Text: e.GetBefore()},
			{Text: e.GetAfter()},
			{Text: e.GetAddress()},
		}
	})
}

func (c *commands) listAudit() *cobra.Command {
	var f auditFlags
	limit := 0
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List audit events, the newest first",
		Long: `List audit events, the newest first. Without --app on the command line the events are
those of all apps in which you have the permission audit.read, and with a role in the
cluster also those about no app. docs/audit.md has the codes.`,
		Example: `  wheelwork audit list --app shop
  wheelwork audit list --actor ci --code job. --since 12h -o jsonl`,
		Args: command.Arguments(),
	}
	f.addTo(cmd)
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this `number` of events (default 100 in a table, and all in the other forms)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := f.query(cmd, c.appOf(cmd), time.Now())
		if err != nil {
			return err
		}
		if limit < 0 {
			return command.Usage(cmd, "--limit %d: want 0 or more", limit)
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			events := client.AuditEvents(ctx, q)
			if most := cmp.Or(limit, c.shown()); most > 0 {
				events = connect.First(events, most)
			}
			return c.PrintAll(auditColumns, output.Records(events, auditRecord))
		})(cmd, args)
	}
	return cmd
}

// shown returns how many events a list shows if the command line does not say; 0: all.
func (c *commands) shown() int {
	if c.Format == output.Table {
		return 100
	}
	return 0
}

var chainColumns = []string{"partition", "chain", "events", "first", "last", "broken at", "problem"}

func chainRecord(x *sdk.AuditChain) output.Record {
	return output.Message(x, func() []output.Cell {
		state, broken := "intact", ""
		if !x.GetOk() {
			state, broken = "broken", strconv.FormatUint(x.GetBrokenAt(), 10)
		}
		return []output.Cell{
			{Text: x.GetPartition()},
			{Text: state},
			{Text: strconv.FormatUint(x.GetEvents(), 10)},
			{Text: strconv.FormatUint(x.GetFirst(), 10)},
			{Text: strconv.FormatUint(x.GetLast(), 10)},
			{Text: broken},
			{Text: x.GetProblem()},
		}
	})
}

func (c *commands) verifyAudit() *cobra.Command {
	var noted []string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no audit event was changed or removed",
		Long: `Compute the chain of hashes of each partition again. The result names the partition and
the first event that does not fit. The exit code is 1 if a chain is broken.

In a cluster the first partition notes the end of the log of each other one every 10 s, and
the logs must contain these ends. For the first one, and for a single server, note the
"last" and the "head" that -o json prints at another place, and give them with --anchor.`,
		Example: `  wheelwork audit verify
  wheelwork audit verify --anchor main=1204:9f2c…`,
		Args: command.Arguments(),
	}
	cmd.Flags().StringArrayVar(&noted, "anchor", nil, "the log of a partition must contain this end, `PARTITION=EVENT:HASH`; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		anchors, err := anchorsOf(noted)
		if err != nil {
			return command.Usage(cmd, "%v", err)
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			chains, err := client.VerifyAudit(ctx, anchors...)
			if err != nil {
				return err
			}
			if err := unknown(anchors, chains); err != nil {
				return err
			}
			if err := c.PrintAll(chainColumns, output.Each(chains, chainRecord)); err != nil {
				return err
			}
			for _, x := range chains {
				if !x.GetOk() {
					return fmt.Errorf("the audit log of the partition %s is broken at event %d: %s", x.GetPartition(), x.GetBrokenAt(), x.GetProblem())
				}
			}
			return nil
		})(cmd, args)
	}
	return cmd
}

// anchorsOf reads the ends of logs on a command line.
func anchorsOf(texts []string) (all []*sdk.AuditAnchor, err error) {
	for _, text := range texts {
		partition, end, _ := strings.Cut(text, "=")
		event, head, _ := strings.Cut(end, ":")
		n, err := strconv.ParseUint(event, 10, 64)
		if hash, wrong := hex.DecodeString(head); err != nil || wrong != nil || n == 0 || len(hash) != sha256.Size || partition == "" {
			return nil, fmt.Errorf("--anchor %q: want PARTITION=EVENT:HASH, with the last and the head of the partition as `wheelwork audit verify -o json` prints them", text)
		}
		all = append(all, &sdk.AuditAnchor{Partition: partition, Sequence: n, Head: head})
	}
	return all, nil
}

// unknown returns an error if an anchor is of a partition that was not verified.
func unknown(anchors []*sdk.AuditAnchor, chains []*sdk.AuditChain) error {
	for _, a := range anchors {
		if !slices.ContainsFunc(chains, func(x *sdk.AuditChain) bool { return x.GetPartition() == a.GetPartition() }) {
			return fmt.Errorf("there is no partition %s, whose end --anchor gives", a.GetPartition())
		}
	}
	return nil
}

func (c *commands) acceptAudit() *cobra.Command {
	return &cobra.Command{
		Use:   "accept PARTITION",
		Short: "Accept the audit log of a partition that was restored from an older backup",
		Long: `Accept the present audit log of a partition in place of the end that the first partition of
the cluster has noted. Use it after a restore from a backup, when "audit verify" says that
events at the end of the log are missing. The acceptance is an event in the audit log.`,
		Example: `  wheelwork audit accept u1`,
		Args:    command.Arguments("PARTITION"),
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.AcceptAudit(ctx, args[0]); err != nil {
				return err
			}
			c.Note("accepted the audit log of the partition %s", args[0])
			return nil
		}),
	}
}
