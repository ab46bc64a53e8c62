package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) moduleRollout() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "rollout NAME[@VERSION]",
		Short: "Show which hosts have a version loaded and compiled",
		Long: `Show for each host of the app whether it has a version loaded and compiled: ready,
compiling, failed with the reason, or pending when it was not asked to. Hosts load
what is pushed, and what aliases point at when they join. VERSION may be an alias;
without it the version that was pushed last is shown.`,
		Example: `  wheelwork module rollout totals@prod
  wheelwork module rollout totals --wait --timeout 2m`,
		Args: arguments("NAME[@VERSION]"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until every host is ready, or one has failed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		do := c.call
		if wait {
			do = c.wait
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
			c.note("%s@%s: ready on %d of %d hosts", r.GetName(), r.GetVersion(), r.GetReady(), r.GetHosts())
			if err := c.printRollout(r); err != nil {
				return err
			}
			if wait && !r.GetComplete() {
				return &codedError{"not_ready", fmt.Sprintf("%s@%s is not ready on %d of %d hosts: the list says why", r.GetName(), r.GetVersion(), r.GetHosts()-r.GetReady(), r.GetHosts())}
			}
			return nil
		})(cmd, args)
	}
	return cmd
}

// awaitRollout returns the roll-out of a version. With wait it returns when the roll-out
// is complete or a host has failed.
func (c *cli) awaitRollout(ctx context.Context, client *sdk.Client, ref string, wait bool) (*sdk.Rollout, error) {
	for {
		r, err := client.Rollout(ctx, c.app, ref)
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

func (c *cli) printRollout(r *sdk.Rollout) error {
	if c.format != formatTable {
		return c.printOne(nil, message(r, nil))
	}
	return c.printAll([]string{"host", "state", "took", "error"}, func(yield func(record, error) bool) {
		for _, h := range r.GetByHost() {
			took := ""
			if h.GetTookMs() > 0 {
				took = (time.Duration(h.GetTookMs()) * time.Millisecond).String()
			}
			if !yield(record{row: func() []cell {
				return []cell{{h.GetName(), none}, {h.GetState(), rolloutTint(h.GetState())}, {took, none}, {h.GetError(), none}}
			}}, nil) {
				return
			}
		}
	})
}

func rolloutTint(state string) tint {
	switch state {
	case "ready":
		return green
	case "failed":
		return red
	case "compiling":
		return cyan
	}
	return none
}

func (c *cli) moduleCollect() *cobra.Command {
	var dry bool
	var older time.Duration
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Drop the bytes of versions that nothing refers to",
		Long: `Drop the bytes of the app's versions that nothing refers to: no job, no run that
has not ended, no alias and no canary, and not what an alias pointed at before.
The version stays in the list, so that the history of runs can name it, and
pushing the same bytes brings it back. A version that was pushed a short time ago
stays: a job may be about to name it. Hosts bound their own copies by size.`,
		Example: `  wheelwork module gc --dry-run
  wheelwork module gc --older-than 168h`,
		Args: arguments(),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would go")
	cmd.Flags().DurationVar(&older, "older-than", 24*time.Hour, "only what was pushed longer ago than this")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if older <= 0 {
			return usage(cmd, "--older-than %v: want a positive duration", older)
		}
		return c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			r, err := client.CollectModules(ctx, c.app, older, dry)
			if err != nil {
				return err
			}
			did := "freed"
			if dry {
				did = "would free"
			}
			c.note("%s %s of %d versions and %d files that belong to none; %d versions stay", did, bytesText(r.GetBytes()), len(r.GetCollected()), r.GetOrphans(), r.GetKept())
			if c.format != formatTable {
				return c.printOne(nil, message(r, nil))
			}
			return c.printAll(moduleColumns(), func(yield func(record, error) bool) {
				for _, m := range r.GetCollected() {
					if !yield(message(m, func() []cell { return moduleRow(m) }), nil) {
						return
					}
				}
			})
		})(cmd, args)
	}
	return cmd
}
