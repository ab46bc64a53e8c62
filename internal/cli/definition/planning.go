package definition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/environment"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// planning has the flags of the commands that make plans.
type planning struct {
	*commands
	files                    []string
	from, to, overlay, owner string
	prune, yes               bool
	gates                    environment.Gates
	soak                     time.Duration
	note, file               string
	jobs                     []string
	withoutChecks            bool // leave out what needs further calls

	source, target *place
	wanted         []*document.Document
}

func (p *planning) sourceFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&p.files, "filename", "f", nil, "`file` with documents, a folder of such files, or - for standard input; may be repeated")
}

func (p *planning) targetFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.to, "to", "", "`name` of the target: a context (default the server of the command line)")
	cmd.Flags().StringVar(&p.overlay, "overlay", "", "`file` with what differs in the target on purpose (default that of its context)")
	p.completeContexts(cmd, "to")
}

func (p *planning) fromFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.from, "from", "", "`name` of the source: a context")
	p.completeContexts(cmd, "from")
}

func (p *planning) gateFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.prune, "prune", false, "delete what only the target has")
	cmd.Flags().DurationVar(&p.soak, "soak", 0, "how long the source must have had each definition, as 24h (default that of the overlay)")
	cmd.Flags().IntVar(&p.gates.LastGreen, "last-green", 0, "`number` of last runs of each job in the source that must have succeeded (default that of the overlay)")
	cmd.Flags().StringVar(&p.note, "note", "", "reason, for the history and the audit log")
}

func (p *planning) completeContexts(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return p.CompleteContexts(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(fmt.Sprintf("complete --%s: %v", flag, err)) // the flag is misspelt in this program
	}
}

func (c *commands) plan() *cobra.Command {
	p := planning{commands: c}
	cmd := &cobra.Command{
		Use:   "plan {-f FILE | --from ENV} [--to ENV] [JOB...]",
		Short: "Show what would change in an environment, and save it as a plan",
		Long: `Show what would make the definitions of an environment those of documents (-f), or of
another environment (--from): objects to create, change and delete, field by field, planned
times that move, runs that have not ended, missing modules and secrets, and what the server
would refuse. Nothing changes.

An environment is a context: a server, an app and a token, which "wheelwork context set" stores.
--from and --to ignore WHEELWORK_URL, WHEELWORK_TOKEN and WHEELWORK_APP. Without --to the target
is the server and the app of the command line. The overlay of the target sets what differs there
on purpose; such fields are marked. With JOB the plan has only these jobs of --from, and what they need.

Objects that only the target has are shown, and stay, unless --prune is given.

-o FILE saves the plan, which "wheelwork apply FILE" applies as it is, or refuses when one of
the objects has changed since. -o json prints the plan instead of a table.

Exit codes: 0 nothing to change, 2 changes, 1 an error, 64 wrong usage.`,
		Example: `  wheelwork plan -f definitions --to prod
  wheelwork plan --from test --to prod -o release.plan
  wheelwork apply release.plan`,
		Args:        cobra.ArbitraryArgs,
		Annotations: command.Compares,
	}
	p.sourceFlags(cmd)
	p.fromFlag(cmd)
	p.targetFlags(cmd)
	p.gateFlags(cmd)
	cmd.Flags().StringVar(&p.owner, "owner", "", "of what only the target has, count the definitions with the label "+ownerLabel+" of this `name` alone")
	cmd.Flags().StringVarP(&p.file, "output", "o", "", "`file` to save the plan to; json: print it, table: print a table (default)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.jobs = args
		if err := p.check(cmd); err != nil {
			return err
		}
		if p.file == output.YAML || p.file == output.JSONL {
			return command.Usage(cmd, "-o %s: a plan is a file, or json; name a file ./%[1]s", p.file)
		}
		ctx, cancel := p.Deadline(cmd.Context(), 0)
		defer cancel()
		plan, err := p.make(ctx, cmd)
		if err != nil {
			return err
		}
		defer p.close()
		return p.finish(plan)
	}
	return cmd
}

// finish saves or prints a plan.
func (p *planning) finish(plan *environment.Plan) error {
	switch p.file {
	case output.JSON:
		if err := plan.Write(p.Out); err != nil {
			return err
		}
	case "", output.Table:
		if err := p.show(plan); err != nil {
			return err
		}
	default:
		if err := p.show(plan); err != nil {
			return err
		}
		if err := save(p.file, plan); err != nil {
			return err
		}
		p.Note("%s: saved; \"wheelwork apply %[1]s\" applies it", p.file)
	}
	if len(plan.Changes) > 0 {
		return command.ErrDiffers
	}
	return nil
}

// save writes a plan to a file that its owner alone may read: it has the inputs of jobs.
func save(file string, plan *environment.Plan) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	if err := cmp.Or(plan.Write(f), f.Close()); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	return nil
}

// check checks the flags.
func (p *planning) check(cmd *cobra.Command) error {
	switch {
	case len(p.files) == 0 && p.from == "":
		return command.Usage(cmd, "say what the target shall have: -f FILE, or --from ENV")
	case len(p.files) > 0 && p.from != "":
		return command.Usage(cmd, "-f and --from: a plan has one source")
	case len(p.jobs) > 0 && p.from == "":
		return command.Usage(cmd, "unexpected argument %q: -f names the documents", p.jobs[0])
	case len(p.jobs) > 0 && p.prune:
		return command.Usage(cmd, "JOB and --prune: plan the whole app to delete what only the target has")
	case p.from != "" && p.from == p.to:
		return command.Usage(cmd, "--from and --to are both %s", p.from)
	case p.soak < 0:
		return command.Usage(cmd, "--soak %v: want a positive duration", p.soak)
	case p.from == "" && (p.soak > 0 || p.gates.LastGreen > 0):
		return command.Usage(cmd, "--soak and --last-green need --from: a folder has no runs")
	}
	if err := p.gates.Check(); err != nil {
		return command.Usage(cmd, "--last-green: %v", err)
	}
	if p.to != "" {
		return noServerFlags(cmd)
	}
	return nil
}

func (p *planning) close() {
	for _, x := range []*place{p.source, p.target} {
		if x != nil && x.client != nil {
			x.close()
		}
	}
}

// make reads both sides and makes the plan.
func (p *planning) make(ctx context.Context, cmd *cobra.Command) (plan *environment.Plan, err error) {
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.target, err = p.place(ctx, p.to, p.overlay); err != nil {
		return nil, err
	}
	target, unread, err := p.target.definitions(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.read(ctx, cmd, target); err != nil {
		return nil, err
	}
	p.wanted = slices.DeleteFunc(p.wanted, func(d *document.Document) bool { return slices.Contains(unread, d.Kind) })
	in := environment.Input{Target: target, Wanted: p.wanted, Prune: p.prune, Overlay: p.target.overlay, Now: time.Now(), Base: sdk.BaseOf}
	if p.owner != "" {
		named := map[string]bool{}
		for _, d := range p.wanted {
			named[d.String()] = true
		}
		in.Target = slices.DeleteFunc(target, func(d *document.Document) bool { return d.Labels[ownerLabel] != p.owner && !named[d.String()] })
	}
	if plan, err = environment.New(in); err != nil {
		return nil, err
	}
	if len(p.jobs) > 0 {
		plan.Kept = []environment.Object{}
	}
	plan.From, plan.To = cmp.Or(p.from, strings.Join(p.files, ", ")), p.target.server.Name()
	if p.to == "" {
		plan.To = ""
	}
	plan.Server, plan.App, plan.Note = p.target.server.URL, p.target.server.App, p.note
	for _, k := range unread {
		plan.Problems = append(plan.Problems, fmt.Sprintf("the caller may not read the definitions of kind %s there, so they are left out", k.Name))
	}
	if !p.withoutChecks {
		if err := p.examine(ctx, plan); err != nil {
			return nil, p.target.server.In(err)
		}
	}
	return plan, plan.Seal()
}

// read reads the wanted definitions.
func (p *planning) read(ctx context.Context, cmd *cobra.Command, target []*document.Document) (err error) {
	app := p.target.server.App
	if p.from == "" {
		if p.wanted, err = document.ReadFiles(cmd.InOrStdin(), p.files, document.Options{}); err != nil {
			return err
		}
		for _, d := range p.wanted {
			if d.App == "" {
				d.SetApp(app)
			}
			if d.App != app {
				return document.Problem{At: d.At, Text: fmt.Sprintf("%s belongs to app %s, and the plan is for app %s: leave out the app, or plan each app for itself", d, d.App, app)}
			}
		}
		if len(p.wanted) == 0 {
			return command.Fail("failed", "%s: there is no document in it", strings.Join(p.files, ", "))
		}
		return document.CheckUnique(p.wanted)
	}
	if p.source, err = p.place(ctx, p.from, ""); err != nil {
		return err
	}
	if p.source.server.URL == p.target.server.URL && p.source.server.App == app {
		return command.Usage(cmd, "--from and the target are the same app of the same server: app %s at %s", app, p.target.server.URL)
	}
	if err := p.source.mayCopy(ctx); err != nil {
		return err
	}
	source, _, err := p.source.definitions(ctx)
	if err != nil {
		return err
	}
	if len(p.jobs) > 0 {
		if source, err = environment.Select(source, p.jobs); err != nil {
			return command.Fail("not_found", "environment %s: %v", p.from, err)
		}
	}
	p.wanted = environment.For(app, source, target, p.source.overlay)
	return nil
}

// show prints a plan as a table.
func (p *planning) show(plan *environment.Plan) error {
	var rows [][]output.Cell
	line := func(what, result, field, old, next string) {
		rows = append(rows, []output.Cell{{Text: what}, {Text: result}, {Text: field}, {Text: old, Tint: output.Red}, {Text: next, Tint: output.Green}})
	}
	for _, m := range plan.Modules {
		line("module "+m.Ref, "uploaded", "", "", "")
		for _, x := range m.Capabilities {
			line("", "", "new capability", "", x)
		}
	}
	for i := range plan.Changes {
		c := &plan.Changes[i]
		line(c.String(), c.Result, "", "", "")
		for _, x := range c.Fields {
			field := x.Field
			if x.Overlay {
				field += " (by overlay)"
			}
			line("", "", field, cmp.Or(x.Old, "-"), cmp.Or(x.New, "-"))
		}
		if c.Fires != nil {
			next := "-"
			if c.Fires.Next != nil {
				next = "next at " + c.Fires.Next.Format(time.RFC3339)
			}
			moved := ""
			if c.Fires.Moved > 0 {
				moved = command.Count(c.Fires.Moved, "fire") + " in 7 days"
			}
			line("", "", "  fires that move", moved, next)
		}
		if c.Live > 0 {
			line("", "", "  live runs", fmt.Sprint(c.Live), "")
		}
	}
	for _, o := range plan.Kept {
		line(o.String(), "only there", "", "", "")
	}
	if len(rows) > 0 {
		err := p.PrintAll([]string{"object", "change", "field", "now", "then"}, output.Each(rows, func(row []output.Cell) output.Record {
			return output.Record{Row: func() []output.Cell { return row }}
		}))
		if err != nil {
			return err
		}
	}
	for _, text := range plan.Problems {
		p.Note("problem: %s", text)
	}
	p.Note("app %s at %s: %s", plan.App, plan.Server, summary(plan))
	return nil
}

func summary(plan *environment.Plan) string {
	var parts []string
	for _, x := range []struct{ result, text string }{{environment.Created, "to create"}, {environment.Updated, "to change"}, {environment.Deleted, "to delete"}} {
		if n := plan.Count(x.result); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, x.text))
		}
	}
	if n := len(plan.Kept); n > 0 {
		parts = append(parts, fmt.Sprintf("%d only there, which stay", n))
	}
	if len(plan.Changes) == 0 {
		parts = append([]string{"nothing to change"}, parts...)
	}
	return strings.Join(parts, ", ")
}

// set returns the change set of a plan.
func setOf(plan *environment.Plan) (set sdk.ChangeSet, err error) {
	set.App, set.CreateApp = plan.App, plan.To != ""
	var deleted []string
	for i := range plan.Changes {
		c := &plan.Changes[i]
		m, err := c.Decode()
		if err != nil {
			return set, err
		}
		if m == nil {
			k, err := document.Find(c.Kind)
			if err != nil {
				return set, err
			}
			set.Deletions, deleted = append(set.Deletions, sdk.Object{Kind: revisionKind(k), Name: c.Name}), append(deleted, c.Base)
			continue
		}
		set.Definitions, set.Bases = append(set.Definitions, m), append(set.Bases, c.Base)
	}
	set.Bases = append(set.Bases, deleted...)
	return set, nil
}

// changed returns the wanted definitions that a plan creates or changes, as they will be.
func changed(plan *environment.Plan) (all []*document.Document, err error) {
	for i := range plan.Changes {
		m, err := plan.Changes[i].Decode()
		if err != nil {
			return nil, err
		}
		k, err := document.Find(plan.Changes[i].Kind)
		if err != nil {
			return nil, err
		}
		if m != nil {
			all = append(all, document.Of(k, m))
		}
	}
	return all, nil
}

// examine adds to a plan what the target lacks, what the gates say, and what the server would refuse.
func (p *planning) examine(ctx context.Context, plan *environment.Plan) error {
	who, err := p.target.client.WhoAmI(ctx)
	if err != nil {
		return err
	}
	plan.MadeBy = who.GetPrincipal()
	if o := p.target.overlay; o != nil {
		plan.Gates = o.Gates
	}
	if p.soak > 0 {
		plan.Gates.Soak = p.soak.String()
	}
	plan.Gates.LastGreen = cmp.Or(p.gates.LastGreen, plan.Gates.LastGreen)
	if len(plan.Changes) == 0 {
		return nil
	}
	definitions, err := changed(plan)
	if err != nil {
		return err
	}
	if err := p.findModules(ctx, plan, definitions); err != nil {
		return err
	}
	if err := p.findSecrets(ctx, plan, definitions); err != nil {
		return err
	}
	if err := p.checkGates(ctx, plan, definitions); err != nil {
		return err
	}
	if len(plan.Modules) > 0 || len(plan.Problems) > 0 {
		return nil // the server would refuse what is missing now
	}
	return p.dryRun(ctx, plan)
}

// dryRun lets the server check a plan.
func (p *planning) dryRun(ctx context.Context, plan *environment.Plan) error {
	set, err := setOf(plan)
	if err != nil {
		return err
	}
	set.DryRun = true
	_, err = p.target.client.ApplyChangeSet(ctx, set)
	var refused *sdk.Error
	switch {
	case err == nil:
	case errors.Is(err, sdk.ErrDenied):
		plan.Problems = append(plan.Problems, err.Error())
	case errors.As(err, &refused) && len(refused.Problems) > 0:
		for _, x := range refused.Problems {
			plan.Problems = append(plan.Problems, x.Message)
		}
		if more := refused.ProblemsInAll - len(refused.Problems); more > 0 {
			plan.Problems = append(plan.Problems, fmt.Sprintf("and %d more", more))
		}
	default:
		return err
	}
	return nil
}

// findModules adds the versions that the target lacks.
func (p *planning) findModules(ctx context.Context, plan *environment.Plan, definitions []*document.Document) error {
	refs := environment.Versions(definitions)
	if len(refs) == 0 {
		return nil
	}
	here, digests, err := modulesOf(ctx, p.target)
	if err != nil {
		return err
	}
	aliases, err := p.target.client.Aliases(ctx, plan.App, "")
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, x := range aliases {
		known[x.GetModule()+"@"+x.GetName()] = true
	}
	var there map[string]*sdk.Module
	byDigest := map[string]*sdk.Module{}
	if p.source != nil {
		if there, byDigest, err = modulesOf(ctx, p.source); err != nil {
			return p.source.server.In(err)
		}
	}
	var add func(m *sdk.Module)
	add = func(m *sdk.Module) {
		if digests[m.GetDigest()] != nil && here[m.GetName()+"@"+m.GetVersion()] != nil {
			return
		}
		var others []*sdk.Module
		for _, x := range here {
			if x.GetName() == m.GetName() {
				others = append(others, x)
			}
		}
		digests[m.GetDigest()], here[m.GetName()+"@"+m.GetVersion()] = m, m
		if i := byDigest[m.GetInterpreter()]; i != nil && digests[m.GetInterpreter()] == nil {
			add(i)
		}
		plan.Modules = append(plan.Modules, environment.Module{Ref: m.GetName() + "@" + m.GetVersion(), Digest: m.GetDigest(), Size: m.GetSize(), Needs: m.GetNeeds(), Capabilities: environment.Capabilities(m, others), Script: m.GetInterpreter()})
	}
	for _, ref := range refs {
		old, next := here[ref], there[ref]
		switch {
		case known[ref]:
		case old != nil && next != nil && old.GetDigest() != next.GetDigest():
			plan.Problems = append(plan.Problems, fmt.Sprintf("module %s has other bytes in the target (%s) than in the source (%s): give the new one another version", ref, old.GetDigest(), next.GetDigest()))
		case old != nil:
		case next != nil:
			add(next)
		default:
			plan.Problems = append(plan.Problems, fmt.Sprintf("module %s is missing in the target: push it first with `wheelwork module push %[1]s FILE`", ref))
		}
	}
	return nil
}

// modulesOf returns the versions of an environment whose bytes are there, by name@version and by digest.
func modulesOf(ctx context.Context, x *place) (byRef, byDigest map[string]*sdk.Module, err error) {
	list, err := x.client.Modules(ctx, x.server.App)
	byRef, byDigest = map[string]*sdk.Module{}, map[string]*sdk.Module{}
	for _, m := range list {
		if m.GetCollectedAt() == nil {
			byRef[m.GetName()+"@"+m.GetVersion()], byDigest[m.GetDigest()] = m, m
		}
	}
	return byRef, byDigest, err
}

// findSecrets adds the secrets that the target lacks.
func (p *planning) findSecrets(ctx context.Context, plan *environment.Plan, definitions []*document.Document) error {
	names := environment.Secrets(definitions)
	if len(names) == 0 {
		return nil
	}
	list, err := p.target.client.Secrets(ctx, plan.App)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(list, func(s *sdk.Secret) bool { return s.GetName() == name }) {
			p.Note("warning: the secret %s is missing in app %s: set it with `wheelwork secret set %[1]s`", name, plan.App)
		}
	}
	return nil
}

// checkGates adds the gates that the plan does not pass.
func (p *planning) checkGates(ctx context.Context, plan *environment.Plan, definitions []*document.Document) error {
	refuse := func(format string, args ...any) { plan.Problems = append(plan.Problems, fmt.Sprintf(format, args...)) }
	if text, err := frozen(ctx, p.target.client, plan, time.Now()); err != nil {
		return err
	} else if text != "" {
		refuse("%s", text)
	}
	if p.source == nil {
		return nil
	}
	soak, _ := time.ParseDuration(plan.Gates.Soak) // it was checked
	updated := map[string]time.Time{}
	for _, d := range p.wanted {
		if job, ok := d.Spec.(*sdk.Job); ok {
			updated[d.Name] = job.GetUpdatedAt().AsTime()
		}
	}
	for _, d := range definitions {
		if d.Kind.Name != document.DefaultKind || soak == 0 && plan.Gates.LastGreen == 0 {
			continue
		}
		if age := time.Since(updated[d.Name]); age < soak {
			refuse("job %s was changed %v ago in %s, and the gate soak wants %v", d.Name, age.Round(time.Second), p.from, soak)
		}
		if err := p.lastGreen(ctx, plan, d.Name, refuse); err != nil {
			return p.source.server.In(err)
		}
	}
	return nil
}

// lastGreen checks the last runs of a job in the source.
func (p *planning) lastGreen(ctx context.Context, plan *environment.Plan, job string, refuse func(string, ...any)) error {
	if plan.Gates.LastGreen == 0 {
		return nil
	}
	n := 0
	for run, err := range p.source.client.Runs(ctx, sdk.RunQuery{App: p.source.server.App, Job: job, State: "ended", Limit: plan.Gates.LastGreen}) {
		if err != nil {
			return err
		}
		if run.GetState() != "succeeded" {
			refuse("run %s of job %s in %s is %s, and the gate last_green wants the last %d to have succeeded", run.GetId(), job, p.from, run.GetState(), plan.Gates.LastGreen)
			return nil
		}
		n++
	}
	if n < plan.Gates.LastGreen {
		refuse("job %s has %s in %s, and the gate last_green wants %d that succeeded", job, command.Count(n, "ended run"), p.from, plan.Gates.LastGreen)
	}
	return nil
}

// frozen returns why the calendar of the gate freeze refuses a time, "" if it does not. Its dates are in UTC.
func frozen(ctx context.Context, client *sdk.Client, plan *environment.Plan, now time.Time) (string, error) {
	if plan.Gates.Freeze == "" {
		return "", nil
	}
	calendar, err := client.Calendar(ctx, plan.App, plan.Gates.Freeze)
	if errors.Is(err, sdk.ErrNotFound) {
		return fmt.Sprintf("the gate freeze names the calendar %s, which app %s does not have", plan.Gates.Freeze, plan.App), nil
	}
	if err != nil {
		return "", err
	}
	compiled := compiled(proto.CloneOf(calendar))[calendar.GetName()]
	if compiled == nil {
		return "", fmt.Errorf("the calendar %s cannot be read", calendar.GetName())
	}
	if y, m, d := now.UTC().Date(); compiled.Has(y, m, d) {
		return fmt.Sprintf("the gate freeze: %s is in the calendar %s", now.UTC().Format(time.DateOnly), calendar.GetName()), nil
	}
	return "", nil
}

// readPlan reads a saved plan.
func readPlan(in io.Reader, file string) (*environment.Plan, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the plan: %w", err)
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	plan, err := environment.Read(in)
	if err != nil {
		return nil, command.Fail("failed", "%s: %v", file, err)
	}
	return plan, nil
}
