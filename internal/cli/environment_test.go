package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// environments runs command lines with contexts for servers.
type environments struct {
	t    testing.TB
	home string
}

func newEnvironments(t testing.TB, servers map[string]node.Ready) *environments {
	t.Helper()
	e := &environments{t, t.TempDir()}
	for name, ready := range servers {
		token := writeFile(t, e.home, name+".token", ready.Token)
		if err := os.Chmod(token, 0o600); err != nil {
			t.Fatal(err)
		}
		e.run(exitOK, "context", "set", name, "--url", ready.URL, "--token-file", token, "--app", "made")
	}
	return e
}

// run runs a command line and returns both outputs. The variables name another server: commands about
// environments must ignore them.
func (e *environments) run(want int, args ...string) (out, errOut string) {
	e.t.Helper()
	var o, n strings.Builder
	getenv := func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": e.home, "HOME": e.home, "WHEELWORK_URL": "http://127.0.0.1:1", "WHEELWORK_TOKEN": "wrong", "WHEELWORK_APP": "other"}[name]
	}
	if args[0] == "export" {
		env := getenv
		getenv = func(name string) string {
			if strings.HasPrefix(name, "WHEELWORK_") {
				return ""
			}
			return env(name)
		}
	}
	if code := execute(context.Background(), args, strings.NewReader(""), &o, &n, getenv); code != want {
		e.t.Fatalf("wheelwork %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, o.String(), n.String())
	}
	return o.String(), n.String()
}

func (e *environments) export(name string) string {
	e.t.Helper()
	out, _ := e.run(exitOK, "export", "--context", name)
	return out
}

// changeOf returns the id of the change that a command has noted.
func changeOf(t testing.TB, note string) string {
	t.Helper()
	_, rest, ok := strings.Cut(note, "\nchange ")
	id, _, _ := strings.Cut(rest, ":")
	if !ok || id == "" {
		t.Fatalf("there is no change in %q", note)
	}
	return id
}

// TestPromote promotes generated apps into an empty app and into one that differs in every kind, with modules that are
// missing: a plan afterwards has no change, the target has the definitions of the source, and the
// roll-back makes its export what it was, byte for byte, in each case.
func TestPromote(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 74))
	test, prod := startDev(t, t.TempDir()), startDev(t, t.TempDir())
	load(t, test, generated(r, 60))
	e := newEnvironments(t, map[string]node.Ready{"test": test, "prod": prod})
	empty := e.export("prod")

	out, _ := e.run(exitDiffers, "plan", "--from", "test", "--to", "prod")
	if !strings.Contains(out, "module greet@1") || !strings.Contains(out, "job job-00007") {
		t.Errorf("the plan:\n%s", out)
	}
	if got := e.export("prod"); got != empty {
		t.Error("a plan has changed something")
	}
	_, note := e.run(exitOK, "promote", "--from", "test", "--to", "prod", "--yes", "--note", "release 1")
	first := changeOf(t, note)
	e.run(exitOK, "plan", "--from", "test", "--to", "prod")
	promoted := e.export("prod")
	if promoted != e.export("test") {
		t.Errorf("the exports differ: %v", differingLine(promoted, e.export("test")))
	}
	e.run(exitFail, "rollback", "--change", first, "--in", "test", "--yes") // it was in prod

	// The source changes in every kind, and the target has objects of its own.
	dir := t.TempDir()
	changed := generated(r, 50)
	e.run(exitOK, "apply", "-f", writeFile(t, dir, "next.yaml", changed), "--context", "test", "--url", test.URL, "--token", test.Token, "--app", "made", "--partial")
	e.run(exitOK, "apply", "-f", writeFile(t, dir, "own.yaml", "name: only-there\nhandler: {module: greet@1}\n"), "--url", prod.URL, "--token", prod.Token, "--app", "made")
	before := e.export("prod")
	_, note = e.run(exitOK, "promote", "--from", "test", "--to", "prod", "--yes")
	second := changeOf(t, note)
	out, note = e.run(exitOK, "plan", "--from", "test", "--to", "prod")
	if !strings.Contains(out, "only-there") || !strings.Contains(note, "nothing to change, 1 only there") {
		t.Errorf("after the promotion: %s%s", out, note)
	}
	_, note = e.run(exitOK, "rollback", "--change", second, "--in", "prod", "--yes")
	if got := e.export("prod"); got != before {
		t.Errorf("after the roll-back: %v", differingLine(got, before))
	}
	third := changeOf(t, note)
	e.run(exitFail, "rollback", "--change", second, "--in", "prod", "--yes") // its objects were changed by the roll-back
	e.run(exitOK, "rollback", "--change", third, "--in", "prod", "--yes")
	e.run(exitOK, "plan", "--from", "test", "--to", "prod")

	// With --prune.
	_, note = e.run(exitOK, "promote", "--from", "test", "--to", "prod", "--yes", "--prune")
	if strings.Contains(e.export("prod"), "only-there") {
		t.Error("--prune has left a job there")
	}
	e.run(exitOK, "rollback", "--change", changeOf(t, note), "--in", "prod", "--yes")
	if !strings.Contains(e.export("prod"), "only-there") {
		t.Error("the roll-back of a deletion has not created the job again")
	}
}

// TestApplyPlan checks that a saved plan is applied once, and refused if an object has moved, the file was
// changed, or the server is another one: then nothing changes.
func TestApplyPlan(t *testing.T) {
	test, prod := startDev(t, t.TempDir()), startDev(t, t.TempDir())
	pushTo(t, test, "made")
	e := newEnvironments(t, map[string]node.Ready{"test": test, "prod": prod})
	dir := t.TempDir()
	job := func(name, cron string) string {
		return fmt.Sprintf("---\nname: %s\nhandler: {module: greet@1}\nschedule: {cron: '%s'}\n", name, cron)
	}
	docs := func(text string) { e.t.Helper(); writeFile(t, dir, "jobs.yaml", text) }
	plan := filepath.Join(t.TempDir(), "release.plan")

	docs(job("a", "0 1 * * *") + job("b", "0 1 * * *"))
	e.run(exitOK, "apply", "-f", dir, "--url", test.URL, "--token", test.Token, "--app", "made")
	e.run(exitDiffers, "plan", "--from", "test", "--to", "prod", "-o", plan)
	if info, err := os.Stat(plan); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the plan: %v, %v", info, err)
	}
	e.run(exitOK, "apply", plan)
	e.run(exitFail, "apply", plan) // what it creates exists
	e.run(exitOK, "plan", "--from", "test", "--to", "prod")

	// A base moves.
	docs(job("a", "0 2 * * *") + job("b", "0 2 * * *"))
	out, _ := e.run(exitDiffers, "plan", "-f", dir, "--to", "prod", "-o", plan)
	if !strings.Contains(out, "fires in 7 days") || !strings.Contains(out, "next at ") {
		t.Errorf("the plan:\n%s", out)
	}
	e.run(exitOK, "job", "pause", "b", "--url", prod.URL, "--token", prod.Token, "--app", "made")
	before := e.export("prod")
	if _, note := e.run(exitFail, "apply", plan); !strings.Contains(note, "job b was changed meanwhile") {
		t.Errorf("a moved base: %s", note)
	}
	if got := e.export("prod"); got != before {
		t.Errorf("a refused plan has changed something: %v", differingLine(got, before))
	}

	// The file is changed.
	e.run(exitDiffers, "plan", "-f", dir, "--to", "prod", "-o", plan)
	text, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plan, []byte(strings.ReplaceAll(string(text), "0 2 * * *", "0 3 * * *")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, note := e.run(exitFail, "apply", plan); !strings.Contains(note, "hash") {
		t.Errorf("a changed file: %s", note)
	}
	if err := os.WriteFile(plan, text, 0o600); err != nil {
		t.Fatal(err)
	}

	// The context names another server.
	e.run(exitOK, "context", "set", "prod", "--url", test.URL)
	if _, note := e.run(exitFail, "apply", plan); !strings.Contains(note, "make another plan") {
		t.Errorf("another server: %s", note)
	}
	e.run(exitOK, "context", "set", "prod", "--url", prod.URL)
	e.run(exitOK, "apply", plan)
	e.run(exitOK, "drift", "-f", dir, "--to", "prod")
	e.run(exitOK, "job", "delete", "a", "--url", prod.URL, "--token", prod.Token, "--app", "made")
	e.run(exitDiffers, "drift", "-f", dir, "--to", "prod")
	e.run(exitUsageOfComparison, "plan", "--to", "prod")
	e.run(exitUsageOfComparison, "plan", "-f", dir, "--to", "prod", "--app", "made")
}

// TestOverlay checks that an overlay changes the definitions in its environment alone: not the documents, and not
// an environment that the definitions are promoted to from there.
func TestOverlay(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 75))
	test, prod := startDev(t, t.TempDir()), startDev(t, t.TempDir())
	load(t, test, generated(r, 40))
	e := newEnvironments(t, map[string]node.Ready{"test": test, "prod": prod})
	base := e.export("test")
	overlay := writeFile(t, t.TempDir(), "prod.yaml", `
jobs:
- set: {labels: {stage: prod-of-overlay}, timeout: 77s}
- names: [job-0000*]
  set: {paused: true, zone: Asia/Tokyo, memory_bytes: 1048576, input: input-of-overlay}
`)
	e.run(exitOK, "context", "set", "prod", "--overlay", overlay)
	out, _ := e.run(exitDiffers, "plan", "--from", "test", "--to", "prod")
	if !strings.Contains(out, "labels.stage (by overlay)") {
		t.Errorf("the plan:\n%s", out)
	}
	e.run(exitOK, "promote", "--from", "test", "--to", "prod", "--yes")
	e.run(exitOK, "plan", "--from", "test", "--to", "prod")
	if got := e.export("prod"); strings.Count(got, "prod-of-overlay") != 40 || !strings.Contains(got, "Asia/Tokyo") || !strings.Contains(got, "input-of-overlay") {
		t.Errorf("the overlay is not in the target:\n%s", got)
	}
	if got := e.export("test"); got != base {
		t.Errorf("the overlay has changed the source: %v", differingLine(got, base))
	}
	e.run(exitOK, "plan", "--from", "prod", "--to", "test")
	e.run(exitOK, "promote", "--from", "prod", "--to", "test", "--yes")
	if got := e.export("test"); got != base {
		t.Errorf("the overlay of the source has left it: %v", differingLine(got, base))
	}
}

// TestPlanOfOneServer plans documents for the server of the command line, with the token of a program that may not change
// grants: the plan names the permission, and without the grants it is applied.
func TestPlanOfOneServer(t *testing.T) {
	prod := startDev(t, t.TempDir())
	pushTo(t, prod, "made")
	client, err := sdk.Dial(t.Context(), prod.URL, sdk.Options{Token: prod.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	deployer, err := client.CreateToken(t.Context(), "deployer", "deployer", sdk.AppScope("made"), "1h")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	as := prod
	as.Token = deployer.GetToken()
	grants := writeFile(t, dir, "grants.yaml", "kind: Grant\nmodule: greet\ngrants: {secrets: [a]}\n---\nname: a\nhandler: {module: greet@1}\n")
	_, note := said(t, as, "", exitDiffers, "plan", "-f", grants)
	if !strings.Contains(note, "grants.write") || !strings.Contains(note, "the secret a is missing") {
		t.Errorf("the plan: %s", note)
	}
	file := filepath.Join(dir, "grants.plan")
	said(t, as, "", exitDiffers, "plan", "-f", grants, "-o", file)
	said(t, as, "", exitFail, "apply", file)
	missing := writeFile(t, dir, "missing.yaml", "name: a\nhandler: {module: greet@9}\nschedule: {daily: {}, exclude: [none]}\n")
	if _, note := said(t, as, "", exitDiffers, "plan", "-f", missing); !strings.Contains(note, "module greet@9 is missing") {
		t.Errorf("a missing module: %s", note)
	}
	job := writeFile(t, dir, "job.yaml", "name: a\nhandler: {module: greet@1}\n")
	said(t, as, "", exitDiffers, "plan", "-f", job, "-o", file)
	said(t, as, "", exitFail, "apply", file, "--app", "another")
	said(t, as, "", exitOK, "apply", file, "--note", "release")
	if history := call(t, prod, exitOK, "history", "job", "a"); !strings.Contains(history, ": release") || !strings.Contains(history, "deployer") {
		t.Errorf("the history: %s", history)
	}
	said(t, as, "", exitOK, "plan", "-f", job)
	out, _ := said(t, as, "", exitOK, "plan", "-f", job, "-o", "json")
	if !strings.Contains(out, `"changes": []`) {
		t.Errorf("as JSON: %s", out)
	}
	for _, args := range [][]string{{"plan", "-f", job, "x"}, {"plan", "-f", job, "-o", "yaml"}, {"plan", "-f", job, "--from", "x"}, {"apply", file, "--prune"}, {"apply", file, "-f", job}, {"drift"}, {"plan", "-f", job, "--soak", "1h"}} {
		said(t, as, "", exitUsageOfComparison, args...)
	}
	for _, args := range [][]string{{"promote", "--from", "x"}, {"rollback", "--change", "7"}, {"rollback", "job", "a", "--to", "1", "--yes"}, {"rollback", "job", "a", "--change", "7"}} {
		said(t, as, "", exitUsage, args...)
	}
}

// TestSync checks each mode of a round, and that a folder with a mistake changes nothing.
func TestSync(t *testing.T) {
	prod := startDev(t, t.TempDir())
	e := newEnvironments(t, map[string]node.Ready{"prod": prod})
	dir := t.TempDir()
	job := func(name string) string { return "---\nname: " + name + "\nhandler: {name: 'native:x'}\n" }
	round := func(want int, mode string) string {
		t.Helper()
		_, note := e.run(want, "sync", "--dir", dir, "--to", "prod", "--once", mode)
		return note
	}
	round(exitFail, "--prune") // there is no document
	writeFile(t, dir, "jobs.yaml", job("a")+job("b"))
	round(exitDiffers, "--report")
	if got := e.export("prod"); got != "" {
		t.Errorf("--report has changed something: %s", got)
	}
	round(exitOK, "--apply")
	round(exitOK, "--report")
	writeFile(t, dir, "jobs.yaml", job("a"))
	round(exitDiffers, "--report")
	round(exitOK, "--apply")
	if got := e.export("prod"); !strings.Contains(got, "name: b") {
		t.Errorf("--apply has deleted a job: %s", got)
	}
	writeFile(t, dir, "wrong.yaml", "name: c\nhandlers: {}\n")
	round(exitFail, "--prune")
	writeFile(t, dir, "wrong.yaml", "")
	round(exitOK, "--prune")
	if got := e.export("prod"); strings.Contains(got, "name: b") || !strings.Contains(got, "name: a") {
		t.Errorf("--prune: %s", got)
	}
	e.run(exitUsageOfComparison, "sync", "--dir", dir, "--to", "prod")

	// The loop follows the folder, and ends with its context.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	notes, w := io.Pipe()
	getenv := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": e.home, "HOME": e.home}[name] }
	go func() {
		ended <- execute(ctx, []string{"sync", "--dir", dir, "--to", "prod", "--apply", "--interval", "1s"}, strings.NewReader(""), io.Discard, w, getenv)
		w.Close() //nolint:errcheck // never fails
	}()
	lines := bufio.NewScanner(notes)
	if !lines.Scan() || !strings.Contains(lines.Text(), "nothing to change") {
		t.Errorf("the first round: %q", lines.Text())
	}
	writeFile(t, dir, "jobs.yaml", job("a")+job("later"))
	for lines.Scan() && !strings.Contains(lines.Text(), "1 created") { // of the next round
	}
	if !strings.Contains(e.export("prod"), "name: later") {
		t.Error("the loop has not applied the new job")
	}
	go io.Copy(io.Discard, notes) //nolint:errcheck // until the command ends
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("the loop ended with %d", code)
	}
}

// TestGates checks the gates of a promotion.
func TestGates(t *testing.T) {
	test, prod := startDev(t, t.TempDir()), startDev(t, t.TempDir())
	pushTo(t, test, "made")
	e := newEnvironments(t, map[string]node.Ready{"test": test, "prod": prod})
	dir := t.TempDir()
	e.run(exitOK, "apply", "-f", writeFile(t, dir, "a.yaml", "kind: Calendar\nname: frozen\ndays: [mon, tue, wed, thu, fri, sat, sun]\n---\nname: a\nhandler: {module: greet@1}\n"), "--url", test.URL, "--token", test.Token, "--app", "made")
	for _, tt := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--soak", "1h"}, "the gate soak wants 1h"},
		{[]string{"--last-green", "2"}, "the gate last_green wants 2"},
		{[]string{"--overlay", writeFile(t, dir, "gates", "gates: {approval: true}\n")}, "another person"},
	} {
		if _, note := e.run(exitFail, append([]string{"promote", "--from", "test", "--to", "prod", "--yes"}, tt.flags...)...); !strings.Contains(note, tt.want) {
			t.Errorf("%v: %s", tt.flags, note)
		}
	}
	e.run(exitOK, "promote", "--from", "test", "--to", "prod", "--yes", "--soak", "1ns")
	e.run(exitOK, "apply", "-f", writeFile(t, dir, "b.yaml", "name: b\nhandler: {module: greet@1}\n"), "--url", test.URL, "--token", test.Token, "--app", "made")
	plan := filepath.Join(dir, "release.plan")
	e.run(exitDiffers, "plan", "--from", "test", "--to", "prod", "b", "-o", plan)
	e.run(exitOK, "context", "set", "prod", "--overlay", writeFile(t, dir, "freeze", "gates: {freeze: frozen}\n"))
	if _, note := e.run(exitFail, "apply", plan); !strings.Contains(note, "is in the calendar frozen") {
		t.Errorf("on a date of the calendar: %s", note)
	}
	e.run(exitOK, "context", "set", "prod", "--overlay", writeFile(t, dir, "approval", "gates: {approval: true}\n"))
	if _, note := e.run(exitFail, "apply", plan); !strings.Contains(note, "another person") {
		t.Errorf("by the person who made it: %s", note)
	}
	client, err := sdk.Dial(t.Context(), prod.URL, sdk.Options{Token: prod.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	approver, err := client.CreateToken(t.Context(), "approver", "maintainer", sdk.AppScope("made"), "1h")
	if err != nil {
		t.Fatal(err)
	}
	token := writeFile(t, dir, "approver.token", approver.GetToken())
	if err := os.Chmod(token, 0o600); err != nil {
		t.Fatal(err)
	}
	e.run(exitOK, "context", "set", "prod", "--token-file", token)
	e.run(exitOK, "apply", plan)
}

// BenchmarkEnvironments measures a plan from one environment to an empty one, its application, a plan without a
// change and an export, with 20 000 jobs.
func BenchmarkEnvironments(b *testing.B) {
	const jobs = 20_000
	test := startDev(b, b.TempDir())
	load(b, test, generated(rand.New(rand.NewPCG(1, 2)), jobs))
	for b.Loop() {
		b.StopTimer()
		prod := startDev(b, b.TempDir())
		e := newEnvironments(b, map[string]node.Ready{"test": test, "prod": prod})
		file := filepath.Join(b.TempDir(), "release.plan")
		measure := func(name string, f func()) {
			start := time.Now()
			f()
			b.ReportMetric(time.Since(start).Seconds(), name+"-s/op")
		}
		b.StartTimer()
		measure("plan", func() { e.run(exitDiffers, "plan", "--from", "test", "--to", "prod", "-o", file) })
		measure("apply", func() { e.run(exitOK, "apply", file) })
		measure("nothing", func() { e.run(exitOK, "plan", "--from", "test", "--to", "prod") })
		measure("export", func() { e.export("prod") })
	}
}
