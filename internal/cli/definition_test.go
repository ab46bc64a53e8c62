package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// generated is the source of a random app with definitions of every kind.
func generated(r *rand.Rand, jobs int) string {
	var b strings.Builder
	one := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	fmt.Fprintf(&b, "kind: App\nname: made\ndescription: %q\n%s", one("", "two\nlines", "ü: #"), one("", "rate: {max: 100}\n", "weight: 3\n", "retain_runs: 2160h\n"))
	fmt.Fprintf(&b, "enqueue_from: [billing]\n")
	for i := range 5 {
		fmt.Fprintf(&b, "---\nkind: Calendar\nname: c%d\n%s%s", i, one("dates: [2027-01-01, 2026-12-24/2026-12-26]\n", "yearly: ['05-01']\n"), one("", "days: [sat, sun]\n"))
	}
	fmt.Fprintf(&b, "---\nkind: Grant\nmodule: greet\ngrants: {secrets: [api-token], http: [{host: api.example.com%s}], kv: [{name: state, write: %s}]}\n", one("", ", methods: [POST]"), one("true", "false"))
	fmt.Fprintf(&b, "---\nkind: Alias\nmodule: greet\nname: prod\nversion: 1\n%s", one("", "canary: {version: 2, percent: 5}\n"))
	for i := range jobs {
		fmt.Fprintf(&b, "---\nname: job-%05d\nhandler: {module: greet@%s}\n", i, one("1", "2", "prod"))
		for _, field := range []string{
			one("", "schedule: {cron: '30 2 * * *', zone: Europe/Berlin, exclude: [c1]}\n", "schedule: {every: 1h}\n", "schedule: {daily: {}}\n", "schedule: {daily: {from: '09:00', every: 30m}, include: [c0, c2]}\n"),
			one("", "labels: {team: data, n: 1}\n"),
			one("", "retry: {max: 3, first: 1s, backoff: exponential}\n", "retry: {max: 1, backoff: fixed}\n"),
			one("", "overlap: {policy: discard}\n"),
			one("", "input: \"a\\nb \\n\"\n", "input: 007\n", "input_bytes: /wA=\n"),
			one("", "paused: true\n", "paused: false\n"),
			one("", "timeout: 30s\n"),
			one("", "priority: 5\n"),
		} {
			b.WriteString(field)
		}
		if i > 0 && r.IntN(10) == 0 {
			fmt.Fprintf(&b, "dependency: {jobs: [job-%05d]}\n", r.IntN(i))
		}
	}
	return b.String()
}

// load puts a generated app on a server.
func load(t testing.TB, ready node.Ready, source string) {
	t.Helper()
	ctx := context.Background()
	client, err := sdk.Dial(ctx, ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	for _, version := range []string{"1", "2"} {
		if _, _, err := client.PushModule(ctx, sdk.Upload{App: "made", Name: "greet", Version: version, Code: greet.Module}); err != nil {
			t.Fatal(err)
		}
	}
	documents, err := document.Parse(strings.NewReader(source), document.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var last *sdk.Pending
	for _, d := range documents {
		if d.App == "" {
			d.SetApp("made")
		}
		switch x := d.Spec.(type) {
		case *sdk.App:
			_, err = client.PutApp(ctx, x)
		case *sdk.Calendar:
			_, err = client.PutCalendar(ctx, x)
		case *sdk.ModuleGrants:
			_, err = client.PutGrants(ctx, x)
		case *sdk.Alias:
			_, err = client.SetAlias(ctx, "made", d.Name, sdk.AliasChange{Version: x.GetVersion(), Canary: x.GetCanary()})
		case *sdk.Job:
			if len(x.GetDependency().GetJobs()) > 0 {
				_, err = client.Apply(ctx, x) // after the jobs before it
			} else {
				last = client.ApplyAsync(ctx, x)
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
	}
	if _, err := last.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// call runs a command line against a server and returns its output.
func call(t testing.TB, ready node.Ready, want int, args ...string) string {
	t.Helper()
	var out, errOut strings.Builder
	getenv := func(name string) string {
		return map[string]string{"WHEELWORK_URL": ready.URL, "WHEELWORK_TOKEN": ready.Token, "WHEELWORK_APP": "made"}[name]
	}
	if code := execute(context.Background(), args, strings.NewReader(""), &out, &errOut, getenv); code != want {
		t.Fatalf("wheelwork %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errOut.String())
	}
	return out.String()
}

// TestExport exports a generated app with definitions of every kind: twice the same bytes, and
// its documents have the same canonical form as their sources.
func TestExport(t *testing.T) {
	ready := startDev(t, t.TempDir())
	seed := testkit.Seed(t)
	source := generated(rand.New(rand.NewPCG(seed, 25)), 200)
	load(t, ready, source)
	first, second := call(t, ready, exitOK, "export"), call(t, ready, exitOK, "export", "-o", "yaml")
	if first != second {
		t.Error("two exports differ")
	}
	if got, want := canonicalOf(t, first), canonicalOf(t, source); got != want {
		dir := t.TempDir()
		t.Errorf("the export has another meaning than its source: %v", cmp.Or(
			os.WriteFile(filepath.Join(dir, "got"), []byte(got), 0o600), os.WriteFile(filepath.Join(dir, "want"), []byte(want), 0o600), differingLine(got, want)))
	}
	if parsed := canonicalOf(t, first); parsed != withoutDigests(first) {
		t.Errorf("an export is not canonical: %v", differingLine(parsed, withoutDigests(first)))
	}
	if !strings.Contains(first, "module: greet@1 # sha256:") {
		t.Error("no job has the digest of its module")
	}
	if jobs := call(t, ready, exitOK, "export", "job", "job-00001", "job-00000"); strings.Count(jobs, "---\n") != 1 || !strings.HasPrefix(jobs, "app: made\nname: job-00000\n") {
		t.Errorf("two jobs:\n%s", jobs)
	}
	dir := filepath.Join(t.TempDir(), "definitions")
	call(t, ready, exitOK, "export", "-d", dir)
	read, err := document.ReadFiles(nil, []string{dir}, document.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := document.Marshal(read...)
	if err != nil {
		t.Fatal(err)
	}
	if string(files) != withoutDigests(first) {
		t.Errorf("the files differ from the stream: %v", differingLine(string(files), withoutDigests(first)))
	}
}

// canonicalOf returns the canonical form of a source, in the generated app. Dates of calendars
// are sorted, as the server does.
func canonicalOf(t *testing.T, source string) string {
	t.Helper()
	source = strings.ReplaceAll(source, "[2027-01-01, 2026-12-24/2026-12-26]", "[2026-12-24/2026-12-26, 2027-01-01]")
	documents, err := document.Parse(strings.NewReader(source), document.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		if d.App == "" {
			d.SetApp("made")
		}
	}
	text, err := document.Marshal(documents...)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withoutDigests removes the comments of an export.
func withoutDigests(text string) string {
	var b bytes.Buffer
	for line := range strings.Lines(text) {
		line, _, commented := strings.Cut(line, " # sha256:")
		b.WriteString(line)
		if commented {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func differingLine(got, want string) error {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Errorf("line %d: %q, want %q, after\n%s", i+1, a[i], b[i], strings.Join(a[max(0, i-12):i], "\n"))
		}
	}
	return fmt.Errorf("%d lines, want %d", len(a), len(b))
}

// TestDiffOfDocuments compares documents with a server, and checks each exit code.
func TestDiffOfDocuments(t *testing.T) {
	ready := startDev(t, t.TempDir())
	load(t, ready, generated(rand.New(rand.NewPCG(testkit.Seed(t), 26)), 80))
	dir := t.TempDir()
	all := filepath.Join(dir, "all.yaml")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("all.yaml", call(t, ready, exitOK, "export"))
	if out := call(t, ready, exitOK, "diff", "-f", all, "-o", "json"); out != "[]\n" {
		t.Errorf("an export differs from its server: %s", out)
	}
	plain := write("plain.yaml", "name: plain\nhandler: {module: greet@1}\nschedule: {cron: '30 2 * * *', zone: Europe/Berlin}\nretry: {max: 3}\n")
	if out := call(t, ready, exitDiffers, "diff", "-f", plain, "-o", "jsonl"); out != `{"kind":"Job","app":"made","name":"plain","result":"created","changes":[]}`+"\n" {
		t.Errorf("a new job: %s", out)
	}
	call(t, ready, exitOK, "job", "apply", "-f", plain)
	// Defaults that are written out and another order are no difference, nor is a calendar whose
	// dates are not sorted.
	same := write("same.json", `[{"retry":{"backoff":"exponential","max":3},"app":"made","schedule":{"zone":"Europe/Berlin","cron":"30 2 * * *"},"handler":{"module":"greet@1"},"name":"plain"}]`)
	call(t, ready, exitOK, "diff", "-f", same)
	calendar := write("calendar.yaml", "kind: Calendar\nname: new\ndates: [2027-01-01, 2026-12-24]\n")
	call(t, ready, exitDiffers, "diff", "-f", calendar)
	call(t, ready, exitOK, "calendar", "put", write("plain-calendar.yaml", "name: new\ndates: [2027-01-01, 2026-12-24]\n"))
	call(t, ready, exitOK, "diff", "-f", calendar)
	changed := write("changed.yaml", "name: plain\nhandler: {module: greet@1}\nschedule: {cron: '0 3 * * *', zone: Europe/Berlin}\n")
	table := call(t, ready, exitDiffers, "diff", "-f", changed, "-f", calendar, "--color", "never")
	for _, want := range []string{"schedule.cron", "30 2 * * *", "0 3 * * *", "in words", "next times", "T02:30:00+0", "T03:00:00+0", "retry.max", "3"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
	if data := call(t, ready, exitDiffers, "diff", "-f", changed, "-o", "jsonl"); !strings.Contains(data, `{"field":"schedule.cron","old":"30 2 * * *","new":"0 3 * * *"}`) || !strings.Contains(data, `"schedule":{"old":{"words":"`) {
		t.Errorf("as JSON: %s", data)
	}
	// A calendar moves the times of the jobs that name it, also of those without a document.
	named := "name: named\nhandler: {module: greet@1}\nschedule: {daily: {from: '12:00'}, exclude: [new]}\n"
	call(t, ready, exitOK, "job", "apply", "-f", write("named.yaml", named))
	day := time.Now().UTC().AddDate(0, 0, 2).Format(time.DateOnly)
	moving := write("moving.yaml", "kind: Calendar\nname: new\ndates: ["+day+"]\n")
	for _, files := range [][]string{{"-f", moving}, {"-f", moving, "-f", filepath.Join(dir, "named.yaml")}} {
		data := call(t, ready, exitDiffers, append([]string{"diff", "-o", "jsonl"}, files...)...)
		if strings.Count(data, "\n") != 1 || !strings.Contains(data, `"moves":[{"job":"named","old":["`) || !strings.Contains(data, day+"T12:00:00Z") || !strings.Contains(data, `"moves_in_all":1`) {
			t.Errorf("%v: %s", files, data)
		}
	}
	if table := call(t, ready, exitDiffers, "diff", "-f", moving); !strings.Contains(table, "moves job named") {
		t.Errorf("the table:\n%s", table)
	}
	both := write("both.yaml", "kind: Calendar\nname: new\ndates: ["+day+"]\n---\n"+strings.Replace(named, "12:00", "13:00", 1))
	if data := call(t, ready, exitDiffers, "diff", "-o", "jsonl", "-f", both); strings.Contains(data, "moves") || !strings.Contains(data, "T13:00:00Z") {
		t.Errorf("a job that is moved by its own schedule: %s", data)
	}
	call(t, ready, exitFail, "diff", "-f", write("wrong.yaml", "name: a\nnosuch: 1\n"))
	call(t, ready, exitFail, "diff", "-f", filepath.Join(dir, "missing.yaml"))
	call(t, ready, exitFail, "diff", "-f", write("twice.yaml", "name: a\n---\nname: a\napp: made\n"))
	call(t, ready, exitFail, "diff", "-f", write("other.yaml", "name: a\napp: other\n"), "--app", "made")
	call(t, ready, exitFail, "diff", "-f", write("empty.yaml", ""))
	for _, args := range [][]string{{"diff"}, {"diff", "-f", all, "job"}, {"diff", "-f", all, "--rev", "1"}, {"diff", "-f"}, {"diff", "xyzzy", "a", "--rev", "1"}, {"diff", "job"}} {
		call(t, ready, exitUsageOfComparison, args...)
	}
}

// BenchmarkDefinitions exports 20 000 jobs, and compares the export with the server.
func BenchmarkDefinitions(b *testing.B) {
	ready := startDev(b, b.TempDir())
	load(b, ready, generated(rand.New(rand.NewPCG(1, 2)), 20_000))
	file := filepath.Join(b.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(call(b, ready, exitOK, "export")), 0o600); err != nil {
		b.Fatal(err)
	}
	b.Run("export", func(b *testing.B) {
		for b.Loop() {
			call(b, ready, exitOK, "export")
		}
	})
	b.Run("folder", func(b *testing.B) {
		for b.Loop() {
			call(b, ready, exitOK, "export", "-d", filepath.Join(b.TempDir(), "out"))
		}
	})
	b.Run("diff", func(b *testing.B) {
		for b.Loop() {
			call(b, ready, exitOK, "diff", "-f", file)
		}
	})
}

// TestEdit changes definitions with scripts for editors.
func TestEdit(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		testkit.Lacks(t, "no /bin/sh for the editor: %v", err)
	}
	ready := startDev(t, t.TempDir())
	load(t, ready, generated(rand.New(rand.NewPCG(testkit.Seed(t), 27)), 1))
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	call(t, ready, exitOK, "job", "apply", "-f", writeFile(t, dir, "job.yaml", "name: plain\nhandler: {module: greet@1}\ntimeout: 30s\npaused: true\n"))
	call(t, ready, exitOK, "calendar", "put", writeFile(t, dir, "calendar.yaml", "name: cal\ndays: [sat]\n"))
	edit := func(script string, want int, args ...string) string {
		t.Helper()
		editor := writeFile(t, dir, "editor.sh", "#!/bin/sh\nset -e\n"+script)
		var out, errOut strings.Builder
		getenv := func(name string) string {
			return map[string]string{"WHEELWORK_URL": ready.URL, "WHEELWORK_TOKEN": ready.Token, "WHEELWORK_APP": "made", "VISUAL": "/bin/sh " + editor, "EDITOR": "false"}[name]
		}
		if code := execute(t.Context(), append([]string{"edit"}, args...), strings.NewReader(""), &out, &errOut, getenv); code != want {
			t.Fatalf("edit %v: exit code %d, want %d: %s", args, code, want, errOut.String())
		}
		return errOut.String()
	}
	left := func() int {
		drafts, err := filepath.Glob(filepath.Join(dir, "wheelwork-edit-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(drafts)
	}
	replace := func(old, next string) string {
		return fmt.Sprintf("sed 's/%s/%s/' \"$1\" > \"$1.new\"\ncat \"$1.new\" > \"$1\"\n", old, next)
	}

	if said := edit(replace("30s", "45s"), exitOK, "job", "plain", "--note", "more time"); !strings.Contains(said, "job plain: updated") {
		t.Errorf("an edit: %s", said)
	}
	if got := call(t, ready, exitOK, "export", "job", "plain"); !strings.Contains(got, "timeout: 45s") || !strings.Contains(got, "paused: true") {
		t.Errorf("after the edit:\n%s", got)
	}
	if history := call(t, ready, exitOK, "history", "job", "plain"); !strings.Contains(history, "more time") {
		t.Errorf("the note is not in the history:\n%s", history)
	}
	for what, script := range map[string]string{"unchanged": "true\n", "emptied": ": > \"$1\"\n", "only a comment": "echo '# x' >> \"$1\"\n"} {
		if said := edit(script, exitOK, "job", "plain"); !strings.Contains(said, "nothing was changed") {
			t.Errorf("%s: %s", what, said)
		}
	}
	edit("sed '/^paused/d' \"$1\" > \"$1.new\"\ncat \"$1.new\" > \"$1\"\n", exitOK, "job", "plain")
	if got := call(t, ready, exitOK, "export", "job", "plain"); strings.Contains(got, "paused") {
		t.Errorf("a pause that the editor removed stays:\n%s", got)
	}
	// The first round makes a mistake, the second one sees it in a comment and corrects it.
	edit("if grep -q '^#! .*unknown field \"timeuot\"' \"$1\"; then "+strings.ReplaceAll(replace("timeuot: 45s", "timeout: 50s"), "\n", "; ")+" else "+strings.ReplaceAll(replace("timeout: 45s", "timeuot: 45s"), "\n", "; ")+" fi\n", exitOK, "job", "plain")
	if got := call(t, ready, exitOK, "export", "job", "plain"); !strings.Contains(got, "timeout: 50s") {
		t.Errorf("after the correction:\n%s", got)
	}
	edit(replace("sat", "sun"), exitOK, "calendar", "cal")
	if got := call(t, ready, exitOK, "export", "calendar", "cal"); !strings.Contains(got, "sun") {
		t.Errorf("the calendar:\n%s", got)
	}
	if left() != 0 {
		t.Errorf("%d drafts are left after edits that succeeded", left())
	}
	// Another caller changes the definition while the editor is open.
	meanwhile := fmt.Sprintf("WHEELWORK_URL=%s WHEELWORK_TOKEN=%s WHEELWORK_APP=made wheelwork ", ready.URL, ready.Token)
	job := writeFile(t, dir, "other.yaml", "name: plain\nhandler: {module: greet@1}\ntimeout: 1m\n")
	said := edit(meanwhile+"job apply -f "+job+" > /dev/null\n"+replace("50s", "55s"), exitFail, "job", "plain")
	if got := call(t, ready, exitOK, "export", "job", "plain"); !strings.Contains(got, "timeout: 1m") || !strings.Contains(said, "the text is in "+dir) {
		t.Errorf("a job that changed meanwhile: %s\n%s", said, got)
	}
	calendar := writeFile(t, dir, "calendar.yaml", "name: cal\ndays: [mon]\n")
	edit(meanwhile+"calendar put "+calendar+" > /dev/null\n"+replace("sun", "tue"), exitFail, "calendar", "cal")
	if got := call(t, ready, exitOK, "export", "calendar", "cal"); !strings.Contains(got, "mon") {
		t.Errorf("a calendar that changed meanwhile:\n%s", got)
	}
	if said := edit(replace("name: plain", "name: other"), exitFail, "job", "plain"); !strings.Contains(said, "still has mistakes") {
		t.Errorf("a renamed job: %s", said)
	}
	edit("exit 3\n", exitFail, "job", "plain")
	edit("true\n", exitFail, "job", "nosuch")
	edit("true\n", exitUsage, "xyzzy", "plain")
}

func writeFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
