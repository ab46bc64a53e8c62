package definition

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/environment"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) promote() *cobra.Command {
	p := planning{commands: c}
	cmd := &cobra.Command{
		Use:   "promote --from ENV --to ENV [JOB...]",
		Short: "Bring the definitions of an environment to another one, with their modules",
		Long: `Bring the definitions of one environment to another one, or the named jobs with what they
need: the jobs, calendars, aliases and grants that they use, the alert rules that name them, and
the modules, by digest. The command shows the plan and asks, unless --yes is given, and then
applies all of it or nothing. It prints the id of the change, which "wheelwork rollback --change" undoes.

Settings of the app and alert channels that the target has stay as they are, and so does the pause
of its jobs. Objects that only the target has stay, unless --prune is given. Values that the overlay
of the source has set do not leave it, and the overlay of the target applies.

The gates of the overlay of the target must be passed; with the gate approval, save a plan with
"wheelwork plan -o FILE" and let another person apply it.`,
		Example: `  wheelwork promote --from test --to prod
  wheelwork promote --from test --to prod nightly-totals --note "release 17" --yes`,
		Args: cobra.ArbitraryArgs,
	}
	p.fromFlag(cmd)
	p.targetFlags(cmd)
	p.gateFlags(cmd)
	cmd.Flags().BoolVar(&p.yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.jobs = args
		if p.from == "" || p.to == "" {
			return command.Usage(cmd, "say from where and to where: --from ENV --to ENV")
		}
		if err := p.check(cmd); err != nil {
			return err
		}
		ctx, cancel := p.Deadline(cmd.Context(), 0)
		defer cancel()
		plan, err := p.make(ctx, cmd)
		if err != nil {
			return err
		}
		defer p.close()
		if len(plan.Changes) == 0 {
			p.Note("app %s at %s: %s", plan.App, plan.Server, summary(plan))
			return nil
		}
		return p.showAndApply(ctx, cmd, plan)
	}
	return cmd
}

// showAndApply shows a plan, asks, and applies it.
func (p *planning) showAndApply(ctx context.Context, cmd *cobra.Command, plan *environment.Plan) error {
	if p.Format == output.Table {
		if err := p.show(plan); err != nil {
			return err
		}
	}
	if err := withoutProblems(plan); err != nil {
		return err
	}
	if plan.Gates.Approval {
		return command.Fail("failed_precondition", "the gate approval wants another person to apply the plan than the one who made it: save it with \"wheelwork plan -o FILE\"")
	}
	if !p.yes {
		if err := command.Confirm(cmd, "Apply this to app "+plan.App+" at "+plan.Server); err != nil {
			return err
		}
	}
	return p.carryOut(ctx, plan)
}

func withoutProblems(plan *environment.Plan) error {
	if len(plan.Problems) == 0 {
		return nil
	}
	return command.Fail("failed_precondition", "the plan cannot be applied: %s", strings.Join(plan.Problems, "\n"))
}

// applyPlan applies a saved plan.
func (c *commands) applyPlan(cmd *cobra.Command, file, note string) error {
	plan, err := readPlan(cmd.InOrStdin(), file)
	if err != nil {
		return err
	}
	ctx, cancel := c.Deadline(cmd.Context(), 0)
	defer cancel()
	p := planning{commands: c, to: plan.To, from: plan.From}
	if plan.To != "" {
		if err := noServerFlags(cmd); err != nil {
			return err
		}
	}
	defer p.close()
	if p.target, err = p.place(ctx, plan.To, ""); err != nil {
		return err
	}
	if s := p.target.server; s.URL != plan.Server || s.App != plan.App {
		return command.Fail("failed_precondition", "%s is for app %s at %s, and this is app %s at %s: name the same server and app, or make another plan", file, plan.App, plan.Server, s.App, s.URL)
	}
	if err := withoutProblems(plan); err != nil {
		return err
	}
	if len(plan.Changes) == 0 {
		c.Note("%s: nothing to change", file)
		return nil
	}
	if o := p.target.overlay; o != nil { // the gates of the environment hold now, whatever the plan was made with
		plan.Gates.Approval = plan.Gates.Approval || o.Gates.Approval
		plan.Gates.Freeze = cmp.Or(o.Gates.Freeze, plan.Gates.Freeze)
	}
	who, err := p.target.client.WhoAmI(ctx)
	if err != nil {
		return p.target.server.In(err)
	}
	if plan.Gates.Approval && who.GetPrincipal() == plan.MadeBy {
		return command.Fail("failed_precondition", "the gate approval wants another person than %s, who made the plan, to apply it", plan.MadeBy)
	}
	text, err := frozen(ctx, p.target.client, plan, time.Now())
	if err != nil {
		return p.target.server.In(err)
	}
	if text != "" {
		return command.Fail("failed_precondition", "%s", text)
	}
	if len(plan.Modules) > 0 {
		if p.source, err = p.place(ctx, plan.From, ""); err != nil {
			return err
		}
	}
	if note != "" {
		plan.Note = note
	}
	return p.carryOut(ctx, plan)
}

// outcome is what a plan has changed.
type outcome struct {
	Change  string `json:"change"` // its id
	Server  string `json:"server"`
	App     string `json:"app"`
	Created int    `json:"created"`
	Updated int    `json:"updated"`
	Deleted int    `json:"deleted"`
	Modules int    `json:"modules"`
}

// carryOut uploads the modules that a plan needs, and makes its changes.
func (p *planning) carryOut(ctx context.Context, plan *environment.Plan) error {
	for i := range plan.Modules {
		if err := p.copyModule(ctx, plan, &plan.Modules[i]); err != nil {
			return err
		}
	}
	set, err := setOf(plan)
	if err != nil {
		return err
	}
	id := newChange(time.Now())
	note := id
	if plan.Note != "" {
		note += ": " + plan.Note
	}
	p.Status(fmt.Sprintf("applying %s to app %s …", command.Count(len(plan.Changes), "change"), plan.App))
	_, err = p.target.client.ApplyChangeSet(sdk.WithNote(ctx, note), set)
	p.ClearStatus()
	if err != nil {
		return p.target.server.In(refusalOf(err))
	}
	done := outcome{id, plan.Server, plan.App, plan.Count(environment.Created), plan.Count(environment.Updated), plan.Count(environment.Deleted), len(plan.Modules)}
	if p.Format != output.Table {
		return p.PrintOne(nil, output.Object(done, nil))
	}
	p.Note("app %s at %s: %d created, %d updated, %d deleted\nchange %s: \"wheelwork rollback --change %[6]s\" undoes it", done.App, done.Server, done.Created, done.Updated, done.Deleted, id)
	return nil
}

// refusalOf says of a plan that was refused what has moved.
func refusalOf(err error) error {
	var refused *sdk.Error
	if !errors.As(err, &refused) || len(refused.Problems) == 0 {
		return err
	}
	var lines []string
	for _, x := range refused.Problems {
		lines = append(lines, x.Message)
	}
	if more := refused.ProblemsInAll - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	text := "nothing was changed: " + strings.Join(lines, "\n")
	if errors.Is(err, sdk.ErrChanged) {
		text += "\nmake the plan again"
	}
	return &refusedSet{text, refused}
}

// copyModule uploads a version from the source, and checks its bytes.
func (p *planning) copyModule(ctx context.Context, plan *environment.Plan, m *environment.Module) error {
	name, version, err := sdk.SplitModule(m.Ref)
	if err != nil {
		return err
	}
	app := p.source.server.App
	info, err := p.source.client.Module(ctx, app, m.Ref)
	if err != nil {
		return p.source.server.In(err)
	}
	code, err := p.source.client.DownloadModule(ctx, app, m.Ref)
	if err != nil {
		return p.source.server.In(err)
	}
	sum := sha256.Sum256(code)
	if digest := "sha256:" + hex.EncodeToString(sum[:]); digest != m.Digest {
		return command.Fail("failed_precondition", "module %s of %s has the digest %s now, and the plan %s: make the plan again", m.Ref, p.from, digest, m.Digest)
	}
	if _, _, err := p.target.client.PushModule(ctx, sdk.Upload{App: plan.App, Name: name, Version: version, Code: code, Signatures: info.GetSignatures()}); err != nil {
		return p.target.server.In(err)
	}
	return nil
}

// changeTime is the form of the time in the id of a change.
const changeTime = "20060102t150405"

// newChange returns the id of a change: c, the time in UTC and a random part. The id begins the note of
// each revision and each audit event of the change.
func newChange(now time.Time) string {
	return "c" + now.UTC().Format(changeTime) + "-" + strings.ToLower(rand.Text()[:8])
}

// timeOf returns the time in the id of a change.
func timeOf(id string) (time.Time, error) {
	text, _, ok := strings.Cut(strings.TrimPrefix(id, "c"), "-")
	at, err := time.Parse(changeTime, text)
	if !ok || err != nil || !strings.HasPrefix(id, "c") {
		return at, fmt.Errorf("%q is not the id of a change, such as c20260102t150405-abcdefgh", id)
	}
	return at, nil
}
