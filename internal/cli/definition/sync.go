package definition

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/environment"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
)

// syncing has the flags of sync.
type syncing struct {
	planning
	dir           string
	report, apply bool
	once          bool
	interval      time.Duration
	last          string // what the last round has shown
}

// leastInterval bounds how often the definitions of both sides are read.
const leastInterval = time.Second

func (c *commands) sync() *cobra.Command {
	s := syncing{planning: planning{commands: c}}
	cmd := &cobra.Command{
		Use:   "sync --dir DIR {--report | --apply | --prune}",
		Short: "Keep an environment as a folder of documents says",
		Long: `Compare an environment with a folder of documents at each interval, with the overlay of the
environment: for a folder that another program updates, as a working copy of a repository.
--report shows the differences, when they are other ones than in the round before. --apply makes the changes, all of them or none, and --prune also deletes
what no document names, with --owner only definitions with that label. A folder with a mistake
or without a document changes nothing. The command goes on after an error, and ends with an interrupt.

With --once it makes one round: then the exit code is 0 when nothing differs or all was applied, 2 when
--report has found differences, 1 after an error, and 64 for wrong usage.`,
		Example: `  wheelwork sync --dir /srv/definitions --apply --to prod
  wheelwork sync --dir /srv/definitions --prune --owner shop-team --to prod --interval 5m`,
		Args:        command.Arguments(),
		Annotations: command.Compares,
	}
	cmd.Flags().StringVar(&s.dir, "dir", "", "`folder` with documents (required)")
	cmd.Flags().BoolVar(&s.report, "report", false, "show the differences, and change nothing")
	cmd.Flags().BoolVar(&s.apply, "apply", false, "make the changes")
	cmd.Flags().BoolVar(&s.prune, "prune", false, "make the changes, and delete what no document names")
	cmd.Flags().StringVar(&s.owner, "owner", "", "of what no document names, count the definitions with the label "+ownerLabel+" of this `name` alone")
	cmd.Flags().DurationVar(&s.interval, "interval", time.Minute, "time from the end of a round to the next one")
	cmd.Flags().BoolVar(&s.once, "once", false, "make one round")
	cmd.Flags().StringVar(&s.note, "note", "", "reason, for the history and the audit log")
	s.targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		modes := 0
		for _, on := range []bool{s.report, s.apply, s.prune} {
			if on {
				modes++
			}
		}
		switch {
		case s.dir == "":
			return command.Usage(cmd, "--dir is missing: name the folder with the documents")
		case modes != 1:
			return command.Usage(cmd, "say what to do with differences: --report, --apply or --prune")
		case s.interval < leastInterval:
			return command.Usage(cmd, "--interval %v: want at least %v", s.interval, leastInterval)
		}
		s.files = []string{s.dir}
		if err := s.check(cmd); err != nil {
			return err
		}
		ctx, cancel := s.Deadline(cmd.Context(), 0)
		defer cancel()
		return s.loop(ctx, cmd)
	}
	return cmd
}

// loop makes rounds until the context ends.
func (s *syncing) loop(ctx context.Context, cmd *cobra.Command) error {
	for {
		plan, err := s.round(ctx, cmd)
		switch {
		case s.once && err == nil && s.report && len(plan.Changes)+len(plan.Kept) > 0:
			return command.ErrDiffers
		case s.once || ctx.Err() != nil:
			return err
		case err != nil && connect.Fatal(err) && s.last == "":
			return err // of the first round: a wrong address or token
		case err != nil:
			s.noteOnce(err.Error())
		}
		timer := time.NewTimer(s.interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// round compares both sides once, and makes the changes.
func (s *syncing) round(ctx context.Context, cmd *cobra.Command) (*environment.Plan, error) {
	p := s.planning // a round keeps nothing for the next one
	plan, err := p.make(ctx, cmd)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if len(plan.Changes) == 0 || s.report {
		if state := plan.Fingerprint(); state != s.last {
			s.last = state
			return plan, p.show(plan)
		}
		return plan, nil
	}
	if err := withoutProblems(plan); err != nil {
		return nil, err
	}
	if plan.Gates.Approval {
		return nil, errors.New("the gate approval wants a person to apply a plan: use --report")
	}
	s.last = ""
	return plan, p.carryOut(ctx, plan)
}

// noteOnce notes a text unless the last round has noted it.
func (s *syncing) noteOnce(text string) {
	if s.last != text {
		s.Note("%s", text)
	}
	s.last = text
}
