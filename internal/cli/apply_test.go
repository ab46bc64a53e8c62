package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// said is call with the output on standard error as well.
func said(t testing.TB, ready node.Ready, stdin string, want int, args ...string) (out, errOut string) {
	t.Helper()
	var o, e strings.Builder
	getenv := func(name string) string {
		return map[string]string{"WHEELWORK_URL": ready.URL, "WHEELWORK_TOKEN": ready.Token, "WHEELWORK_APP": "made"}[name]
	}
	if code := execute(context.Background(), args, strings.NewReader(stdin), &o, &e, getenv); code != want {
		t.Fatalf("wheelwork %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, o.String(), e.String())
	}
	return o.String(), e.String()
}

// pushTo pushes the versions that generated documents name.
func pushTo(t testing.TB, ready node.Ready, app string) {
	t.Helper()
	client, err := sdk.Dial(context.Background(), ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	for _, version := range []string{"1", "2"} {
		if _, _, err := client.PushModule(context.Background(), sdk.Upload{App: app, Name: "greet", Version: version, Code: greet.Module}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestApplyIsIdentity applies a generated app to an empty server and to the server that it was
// exported from: both exports are equal, and a second apply changes nothing and makes no
// revision. A roll-back of a roll-back gives the same export, and no change of parameters fires a
// job.
func TestApplyIsIdentity(t *testing.T) {
	source := generated(rand.New(rand.NewPCG(testkit.Seed(t), 31)), 300)
	first := startDev(t, t.TempDir())
	load(t, first, source)
	dir := t.TempDir()
	text := call(t, first, exitOK, "export")
	file := writeFile(t, dir, "all.yaml", text)
	if out, note := said(t, first, "", exitOK, "apply", "-f", file); strings.Count(out, "\n") > 1 || !strings.HasPrefix(note, "app made: 308 unchanged") {
		t.Errorf("an export applied to its server: %s%s", out, note)
	}
	if history := call(t, first, exitOK, "history", "job", "job-00001", "-o", "jsonl"); strings.Count(history, "\n") != 1 {
		t.Errorf("the export made a revision:\n%s", history)
	}

	second := startDev(t, t.TempDir())
	pushTo(t, second, "made")
	if _, note := said(t, second, "", exitOK, "apply", "-f", file, "--note", "moved"); !strings.HasPrefix(note, "app made: 308 created") {
		t.Errorf("on an empty server: %s", note)
	}
	if got := call(t, second, exitOK, "export"); got != text {
		t.Errorf("the exports differ: %v", differingLine(got, text))
	}
	call(t, second, exitOK, "diff", "-f", file)
	if history := call(t, second, exitOK, "history", "job", "job-00001", "-o", "jsonl"); !strings.Contains(history, `"note":"moved"`) || !strings.Contains(history, `"cause":"cli"`) {
		t.Errorf("the history:\n%s", history)
	}
	changed := writeFile(t, dir, "changed.yaml", strings.ReplaceAll(strings.ReplaceAll(text, "priority: 5", "priority: 6"), "days:\n", "labels:\n  x: y\ndays:\n"))
	_, note := said(t, second, "", exitOK, "apply", "-f", changed)
	if !strings.Contains(note, " updated") {
		t.Errorf("a change: %s", note)
	}
	name, _, _ := strings.Cut(text[strings.LastIndex(text[:strings.Index(text, "priority: 5")], "name: ")+len("name: "):], "\n")
	before := call(t, second, exitOK, "export")
	call(t, second, exitOK, "rollback", "job", name, "--to", "1")
	call(t, second, exitOK, "rollback", "job", name, "--to", "2")
	if got := call(t, second, exitOK, "export"); got != before {
		t.Errorf("a roll-back of a roll-back: %v", differingLine(got, before))
	}
	if runs := call(t, second, exitOK, "run", "list", "--trigger", "schedule", "-o", "jsonl"); strings.Contains(runs, name) {
		t.Errorf("the changes fired %s:\n%s", name, runs)
	}
}

// TestApply applies documents with each flag, and checks the exit codes and the positions of
// errors.
func TestApply(t *testing.T) {
	ready := startDev(t, t.TempDir())
	pushTo(t, ready, "made")
	dir := t.TempDir()
	write := func(name, text string) string { return writeFile(t, dir, name, text) }
	team := write("team.yaml", `kind: Calendar
name: holidays
dates: [2030-01-01]
---
kind: Alias
module: greet
name: prod
version: 1
---
kind: Grant
module: greet
grants: {secrets: [s]}
---
name: last
handler: {module: greet@prod}
dependency: {jobs: [first]}
---
name: first
handler: {module: greet@1}
schedule: {cron: '0 0 1 1 *', exclude: [holidays]}
`)
	if out := call(t, ready, exitDiffers, "apply", "-f", team, "--dry-run", "-o", "jsonl"); strings.Count(out, `"result":"created"`) != 5 {
		t.Errorf("a dry run: %s", out)
	}
	if out, note := said(t, ready, "", exitOK, "apply", "-f", team, "--owner", "team"); strings.Count(out, " created") != 5 || note != "app made: 5 created\n" {
		t.Errorf("apply: %s%s", out, note)
	}
	call(t, ready, exitOK, "apply", "-f", team, "--owner", "team", "--dry-run")
	call(t, ready, exitOK, "diff", "-f", team, "--owner", "team", "--prune")
	call(t, ready, exitDiffers, "diff", "-f", team) // the label is no part of the file
	if out := call(t, ready, exitOK, "export"); strings.Count(out, "wheelwork/owner: team") != 5 {
		t.Errorf("the owner's labels:\n%s", out)
	}

	// What is refused changes nothing, and is named with its position.
	bad := write("bad.yaml", "name: fine\nhandler: {module: greet@1}\n---\nname: wrong\nhandler: {module: greet@7}\n---\nname: lost\nhandler: {module: greet@1}\ndependency: {jobs: [nowhere]}\n")
	for _, args := range [][]string{{"apply", "-f", bad}, {"apply", "-f", bad, "--dry-run"}} {
		_, note := said(t, ready, "", exitFail, args...)
		for _, want := range []string{"bad.yaml:4:1: job wrong: there is no module greet@7", "bad.yaml:7:1: job lost: it depends on job \"nowhere\""} {
			if !strings.Contains(note, want) {
				t.Errorf("%v: no %q in\n%s", args, want, note)
			}
		}
	}
	call(t, ready, exitFail, "export", "job", "fine")
	out, note := said(t, ready, "", exitFail, "apply", "-f", bad, "--partial", "-o", "jsonl")
	if strings.Count(out, `"result":"created"`) != 1 || strings.Count(out, `"result":"refused"`) != 2 || !strings.Contains(note, "app made: 1 created, 2 refused") {
		t.Errorf("partial: %s%s", out, note)
	}
	call(t, ready, exitOK, "export", "job", "fine")

	// An owner's definitions that left the files.
	less := write("less.yaml", "name: first\nhandler: {module: greet@1}\nlabels: {wheelwork/owner: team}\n")
	if out := call(t, ready, exitDiffers, "diff", "-f", less, "--owner", "team", "--prune", "-o", "jsonl"); strings.Count(out, `"result":"deleted"`) != 4 || strings.Contains(out, "fine") {
		t.Errorf("what prune would delete: %s", out)
	}
	if _, note := said(t, ready, "", exitFail, "apply", "-f", less, "--owner", "team", "--prune"); !strings.Contains(note, "Delete 4 definitions of app made (calendar holidays, grant greet, alias greet@prod, job last)? Type yes") {
		t.Errorf("the question: %s", note)
	}
	if _, note := said(t, ready, "", exitFail, "apply", "-f", less, "--owner", "other"); !strings.Contains(note, "less.yaml:3:10: job first has the label") {
		t.Errorf("another owner: %s", note)
	}
	if out, note := said(t, ready, "yes\n", exitOK, "apply", "-f", less, "--owner", "team", "--prune"); strings.Count(out, " deleted") != 4 || !strings.Contains(note, "app made: 1 updated, 4 deleted") {
		t.Errorf("prune: %s%s", out, note)
	}
	if out := call(t, ready, exitOK, "export"); strings.Count(out, "---\n") != 1 {
		t.Errorf("after prune:\n%s", out)
	}
	call(t, ready, exitOK, "apply", "-f", team, "--owner", "team", "--partial")
	if out, _ := said(t, ready, "", exitOK, "apply", "-f", less, "--owner", "team", "--prune", "--partial", "--yes"); strings.Count(out, " deleted") != 4 {
		t.Errorf("partial prune: %s", out)
	}

	// A grant that is changed by hand still belongs to its owner. Without any document all that an
	// owner has goes.
	call(t, ready, exitOK, "apply", "-f", team, "--owner", "team")
	call(t, ready, exitOK, "module", "grant", "greet", "--secret", "other")
	nothing := t.TempDir()
	call(t, ready, exitFail, "apply", "-f", nothing, "--owner", "team", "--prune", "--yes")
	if out := call(t, ready, exitDiffers, "diff", "-f", nothing, "--owner", "team", "--prune", "--app", "made", "-o", "jsonl"); strings.Count(out, `"result":"deleted"`) != 5 {
		t.Errorf("without a document: %s", out)
	}
	for _, want := range []string{"app made: 5 deleted\n", "app made: nothing to change\n"} {
		if _, note := said(t, ready, "", exitOK, "apply", "-f", nothing, "--owner", "team", "--prune", "--app", "made", "--yes"); note != want {
			t.Errorf("without a document: %s", note)
		}
	}

	// Apps.
	elsewhere := write("elsewhere.yaml", "kind: Calendar\napp: new\nname: c\ndays: [sat]\n")
	if _, note := said(t, ready, "", exitFail, "apply", "-f", elsewhere); !strings.Contains(note, "--create-app") {
		t.Errorf("an app that is not there: %s", note)
	}
	if _, note := said(t, ready, "", exitFail, "apply", "-f", less, "-f", elsewhere); !strings.Contains(note, "the documents of app made are applied, those of app new are not") {
		t.Errorf("the second of two apps: %s", note)
	}
	if out := call(t, ready, exitOK, "apply", "-f", elsewhere, "-f", write("again.yaml", "name: again\nhandler: {module: greet@1}\n"), "--create-app"); !strings.Contains(out, "calendar new/c ") || !strings.Contains(out, "job made/again ") {
		t.Errorf("two apps:\n%s", out)
	}
	call(t, ready, exitOK, "apply", "-f", write("settings.yaml", "kind: App\nname: third\nweight: 2\n---\nkind: Calendar\napp: third\nname: c\ndays: [sat]\n"))
	if out := call(t, ready, exitOK, "app", "list"); !strings.Contains(out, "new") || !strings.Contains(out, "third") {
		t.Errorf("the apps:\n%s", out)
	}
	call(t, ready, exitFail, "apply", "-f", write("twice.yaml", "name: a\nhandler: {module: greet@1}\n---\nname: a\nhandler: {module: greet@2}\n"))
	for _, args := range [][]string{{"apply"}, {"apply", "-f", team, "--prune"}, {"apply", "job", "-f", team}, {"apply", "-f", team, "--nosuch"}, {"diff", "--owner", "x"}} {
		call(t, ready, exitUsageOfComparison, args...)
	}
}

// TestApplyLarge applies more documents than the server applies in one step.
func TestApplyLarge(t *testing.T) {
	ready := startDev(t, t.TempDir())
	pushTo(t, ready, "made")
	file := writeFile(t, t.TempDir(), "all.yaml", generated(rand.New(rand.NewPCG(testkit.Seed(t), 32)), 2000))
	if _, note := said(t, ready, "", exitOK, "apply", "-f", file); note != "app made: 2008 created\n" {
		t.Errorf("apply: %s", note)
	}
	if _, note := said(t, ready, "", exitOK, "apply", "-f", file); note != "app made: 2008 unchanged\n" {
		t.Errorf("again: %s", note)
	}
}

// BenchmarkApply creates 20 000 jobs in a fresh app, and applies the same documents again.
func BenchmarkApply(b *testing.B) {
	ready := startDev(b, b.TempDir())
	_, source, _ := strings.Cut(generated(rand.New(rand.NewPCG(1, 2)), 20_000), "---\n") // without the settings of the app
	file := writeFile(b, b.TempDir(), "all.yaml", source)
	n := 0
	b.Run("create", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			n++
			app := fmt.Sprint("app-", n)
			pushTo(b, ready, app)
			b.StartTimer()
			call(b, ready, exitOK, "apply", "-f", file, "--app", app)
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			call(b, ready, exitOK, "apply", "-f", file, "--app", "app-1")
		}
	})
}
