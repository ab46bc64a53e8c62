package module

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) rollout() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "rollout NAME[@VERSION]",
		Short: "Show which hosts have a version loaded and compiled",
		Long: `Show for each host of the app whether it has a version loaded and compiled: ready,
compiling, failed with the reason, or pending before it began. Hosts load each version
that is pushed, and the versions of aliases when they join. VERSION may be an alias;
the default is the version that was pushed last.`,
		Example: `  wheelwork module rollout totals@prod
  wheelwork module rollout totals --wait --timeout 2m`,
		Args: command.Arguments("NAME[@VERSION]"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until every host is ready, or one has failed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		do := c.Call
		if wait {
			do = c.Wait
		}
		return do(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			ref := args[0]
			if !strings.Contains(ref, "@") {
				ref += "@latest"
			}
			r, err := c.awaitRollout(ctx, client, ref, wait)
			if err != nil {
				return err
			}
			c.Note("%s@%s: ready on %d of %d hosts", r.GetName(), r.GetVersion(), r.GetReady(), r.GetHosts())
			if err := c.printRollout(r); err != nil {
				return err
			}
			if wait && !r.GetComplete() {
				return command.Fail("not_ready", "%s@%s is not ready on %d of %d hosts: the list says why", r.GetName(), r.GetVersion(), r.GetHosts()-r.GetReady(), r.GetHosts())
			}
			return nil
		})(cmd, args)
	}
	return cmd
}

// awaitRollout returns the roll-out of a version. With wait it returns when the roll-out
// is complete or a host has failed.
func (c *commands) awaitRollout(ctx context.Context, client *sdk.Client, ref string, wait bool) (*sdk.Rollout, error) {
	for {
		r, err := client.Rollout(ctx, c.App, ref)
		if err != nil || !wait || r.GetComplete() || settled(r) {
			return r, err
		}
		select {
		case <-time.After(readyPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// settled reports whether a host has failed, so that the roll-out cannot complete by
// itself.
func settled(r *sdk.Rollout) bool {
	for _, h := range r.GetByHost() {
		if h.GetState() == "failed" {
			return true
		}
	}
	return false
}

func (c *commands) printRollout(r *sdk.Rollout) error {
	if c.Format != output.Table {
		return c.PrintOne(nil, output.Message(r, nil))
	}
	return c.PrintAll([]string{"host", "state", "took", "error"}, output.Each(r.GetByHost(), hostRecord))
}

func hostRecord(h *apiv1.HostRollout) output.Record {
	return output.Record{Row: func() []output.Cell {
		took := ""
		if h.GetTookMs() > 0 {
			took = (time.Duration(h.GetTookMs()) * time.Millisecond).String()
		}
		return []output.Cell{{Text: h.GetName()}, {Text: h.GetState(), Tint: rolloutTint(h.GetState())}, {Text: took}, {Text: h.GetError()}}
	}}
}

func rolloutTint(state string) output.Tint {
	switch state {
	case "ready":
		return output.Green
	case "failed":
		return output.Red
	case "compiling":
		return output.Cyan
	}
	return output.None
}

func (c *commands) collect() *cobra.Command {
	var dry bool
	var older time.Duration
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete the bytes of versions that nothing refers to",
		Long: `Delete the bytes of the app's versions that nothing refers to: no job, no live run,
no alias, neither now nor before its last change, and no canary. The list still shows
the version, so that the history of runs can name it, and a push of the same bytes
restores it. The command keeps a version that was pushed a short time ago: a job may
name it soon. Hosts limit their own copies by size.`,
		Example: `  wheelwork module gc --dry-run
  wheelwork module gc --older-than 168h`,
		Args: command.Arguments(),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be deleted")
	cmd.Flags().DurationVar(&older, "older-than", 24*time.Hour, "only versions that were pushed longer ago than this")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if older <= 0 {
			return command.Usage(cmd, "--older-than %v: want a positive duration", older)
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			r, err := client.CollectModules(ctx, c.App, older, dry)
			if err != nil {
				return err
			}
			did := "freed"
			if dry {
				did = "would free"
			}
			c.Note("%s %s: %s, and %s of no version; %s kept", did, output.Bytes(r.GetBytes()), command.Count(len(r.GetCollected()), "version"), command.Count(r.GetOrphans(), "file"), command.Count(r.GetKept(), "version"))
			if c.Format != output.Table {
				return c.PrintOne(nil, output.Message(r, nil))
			}
			return c.PrintAll(moduleColumns(), output.Each(r.GetCollected(), moduleRecord))
		})(cmd, args)
	}
	return cmd
}
