package sdk_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func TestReadJobs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "orders.csv", "a,1\nb,2\n")
	write(t, dir, "raw.bin", "\xff\x00")
	totals := func(change func(*sdk.Job)) *sdk.Job {
		job := &sdk.Job{Name: "totals", Handler: &sdk.Handler{Module: "totals@1"}}
		change(job)
		return job
	}
	tests := map[string]struct {
		source string
		want   []*sdk.Job
	}{
		"nothing":         {"", nil},
		"empty documents": {"---\n---\n# only a comment\n", nil},
		"every field": {
			`app: shop
name: totals
description: adds up
handler: {module: totals@1, name: main, args: [-v, 3], env: {DEBUG: true, RATE: 1.50}}
schedule: {cron: "0 */5 * * * *", zone: Asia/Shanghai}
input: "…"
timeout: 30s
retry: {max: 3, backoff: exponential, first: 1s, limit: 1m}
paused: true
labels: {team: money}
`,
			[]*sdk.Job{{
				App: "shop", Name: "totals", Description: "adds up",
				Handler:  &sdk.Handler{Module: "totals@1", Name: "main", Args: []string{"-v", "3"}, Env: map[string]string{"DEBUG": "true", "RATE": "1.50"}},
				Schedule: &sdk.Schedule{Cron: "0 */5 * * * *", Zone: "Asia/Shanghai"},
				Input:    "…", Timeout: "30s",
				Retry:  &sdk.Retry{Max: 3, Backoff: "exponential", First: "1s", Limit: "1m"},
				Paused: new(true), Labels: map[string]string{"team": "money"},
			}},
		},
		"every policy": {
			`name: totals
schedule:
  daily: {from: 09:00, until: "17:30", every: 15m, days: [mon, fri]}
  zone: Europe/Berlin
  from: 2026-01-01T00:00:00Z
  until: "2027-01-01T00:00:00Z"
  maxRuns: 9007199254740993
  jitter: 5m
  include: [workdays]
  exclude: [holidays, audits]
retry: {max: 3, jitter: 0.25}
misfire: {policy: fire_all, max: 10, window: 6h, threshold: 1m}
overlap: {policy: queue, limit: 5}
deadline: 10m
priority: -3
rate: {max: 2, per: 1s}
routing:
  strategy: hash
  key: input
  hosts: [h1]
  labels: [zone=eu, "gpu"]
  max_hosts: 2
  min_free_cpu: .5
  max_memory_bytes: 18446744073709551615
  min_free_slots: 1
fanout: {mode: shards, shards: 8}
limits: {memory_bytes: 67108864, fuel: "9007199254740993"}
dependency: {jobs: [a, b], on: end, need: any, pass_output: true}
`,
			[]*sdk.Job{{
				Name: "totals",
				Schedule: &sdk.Schedule{
					Daily: &sdk.Daily{From: "09:00", Until: "17:30", Every: "15m", Days: []string{"mon", "fri"}},
					Zone:  "Europe/Berlin", From: "2026-01-01T00:00:00Z", Until: "2027-01-01T00:00:00Z", MaxRuns: 9007199254740993,
					Jitter: "5m", Include: []string{"workdays"}, Exclude: []string{"holidays", "audits"},
				},
				Retry:    &sdk.Retry{Max: 3, Jitter: 0.25},
				Misfire:  &sdk.Misfire{Policy: "fire_all", Max: 10, Window: "6h", Threshold: "1m"},
				Overlap:  &sdk.Overlap{Policy: "queue", Limit: 5},
				Deadline: "10m", Priority: -3,
				Rate: &sdk.Rate{Max: 2, Per: "1s"},
				Routing: &sdk.Routing{
					Strategy: "hash", Key: "input", Hosts: []string{"h1"}, Labels: []string{"zone=eu", "gpu"},
					MaxHosts: 2, MinFreeCpu: 0.5, MaxMemoryBytes: 1<<64 - 1, MinFreeSlots: 1,
				},
				Fanout:     &sdk.Fanout{Mode: "shards", Shards: 8},
				Limits:     &sdk.Limits{MemoryBytes: 64 << 20, Fuel: 9007199254740993},
				Dependency: &sdk.Dependency{Jobs: []string{"a", "b"}, On: "end", Need: "any", PassOutput: true},
			}},
		},
		"dates and numbers stay as written": {
			"name: 007\nschedule: {at: 2026-01-02T03:04:05Z}\ntimeout: 30\n",
			[]*sdk.Job{{Name: "007", Schedule: &sdk.Schedule{At: "2026-01-02T03:04:05Z"}, Timeout: "30"}},
		},
		"many documents": {
			"name: a\n---\nname: b\n---\n- name: c\n- name: d\n",
			[]*sdk.Job{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}},
		},
		"JSON stream": {
			"{\"name\":\"a\",\"input\":\"\\ud83d\\ude00\"}\n\t{\"name\":\"b\"} [{\"name\":\"c\"}]",
			[]*sdk.Job{{Name: "a", Input: "😀"}, {Name: "b"}, {Name: "c"}},
		},
		"YAML that begins like JSON": {
			"{name: a}\n---\nname: b\n",
			[]*sdk.Job{{Name: "a"}, {Name: "b"}},
		},
		"what the server sets is ignored": {
			`{"name":"a","revision":"7","created_at":"2026-01-01T00:00:00Z","next_at":null,"stats":{"live":"1"},"schedule":null}`,
			[]*sdk.Job{{Name: "a"}},
		},
		"the etag is what the document was made from": {
			"name: a\netag: 00c0ffee00c0ffee\n",
			[]*sdk.Job{{Name: "a", Etag: "00c0ffee00c0ffee"}},
		},
		"input from a file": {
			"name: totals\nhandler: {module: totals@1}\ninputFile: orders.csv\n",
			[]*sdk.Job{totals(func(j *sdk.Job) { j.Input = "a,1\nb,2\n" })},
		},
		"input from a file that is no text": {
			"name: totals\nhandler: {module: totals@1}\ninputFile: raw.bin\n",
			[]*sdk.Job{totals(func(j *sdk.Job) { j.InputBytes = []byte("\xff\x00") })},
		},
		"input by an absolute path": {
			"name: totals\nhandler: {module: totals@1}\ninput_file: " + filepath.Join(dir, "orders.csv") + "\n",
			[]*sdk.Job{totals(func(j *sdk.Job) { j.Input = "a,1\nb,2\n" })},
		},
		"bytes": {
			"name: totals\nhandler: {module: totals@1}\ninput: !!binary /wA=\n",
			[]*sdk.Job{totals(func(j *sdk.Job) { j.InputBytes = []byte("\xff\x00") })},
		},
		"bytes in JSON and camel case": {
			`{"name":"totals","handler":{"module":"totals@1"},"inputBytes":"/wA="}`,
			[]*sdk.Job{totals(func(j *sdk.Job) { j.InputBytes = []byte("\xff\x00") })},
		},
		"the kind": {
			"kind: Job\nname: a\n---\nkind: job\nname: b\n",
			[]*sdk.Job{{Name: "a"}, {Name: "b"}},
		},
		"an alias": {
			"- name: a\n  labels: &l {team: money}\n- name: b\n  labels: *l\n",
			[]*sdk.Job{
				{Name: "a", Labels: map[string]string{"team": "money"}},
				{Name: "b", Labels: map[string]string{"team": "money"}},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := sdk.ReadJobs(strings.NewReader(test.source), dir)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadJobsErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "large.bin", strings.Repeat("x", 64<<10+1))
	tests := map[string]struct{ source, want string }{
		"unknown field":        {"name: a\n---\nname: b\nscedule: {every: 1s}\n", `read jobs: document 2, line 4: unknown field "scedule": did you mean "schedule"?`},
		"another kind":         {"kind: Job\nname: a\n---\nkind: Calendar\nname: b\n", "document 2, line 4: kind is Calendar: want documents of the kind Job only"},
		"unknown inner field":  {"name: a\nretry:\n  tries: 3\n", `document 1, line 3: unknown field "retry.tries": want one of backoff, first, jitter, limit, max`},
		"unknown JSON field":   {"{\"name\":\"a\"}\n{\"name\":\"b\",\n \"handler\":{\"modul\":1}}", `document 2, line 3: unknown field "handler.modul": did you mean "module"?`},
		"merge key":            {"name: a\n<<: {app: b}\n", `line 2: unknown field "<<": merge keys are not supported`},
		"twice":                {"name: a\nname: b\n", "line 2: name is set twice"},
		"twice, two spellings": {"input_bytes: aa==\ninputBytes: aa==\n", "line 2: inputBytes is set twice"},
		"label twice":          {"labels: {a: 1, a: 2}\n", "labels.a is set twice"},
		"text wanted":          {"name: {a: b}\n", "line 1: name: want a text, found fields"},
		"number wanted":        {"name: a\nretry: {max: many}\n", `line 2: retry.max: want a whole number, found "many"`},
		"number too large":     {"retry: {max: 4294967296}\n", "retry.max: want a whole number"},
		"no negative number":   {"routing: {max_memory_bytes: -1}\n", `routing.max_memory_bytes: want a whole number, 0 or more, found "-1"`},
		"no number":            {"retry: {jitter: NaN}\n", `retry.jitter: want a number, found "NaN"`},
		"boolean wanted":       {"paused: 1\n", `paused: want true or false, found "1"`},
		"list wanted":          {"handler: {args: -v}\n", `handler.args: want a list, found "-v"`},
		"fields wanted":        {"handler: totals@1\n", `line 1: handler: want fields, as in {module: totals@1}, found "totals@1"`},
		"labels wanted":        {"labels: [a]\n", "labels: want names with values, found a list"},
		"not a job":            {"just text\n", `document 1, line 1: want a job with fields, found "just text"`},
		"not YAML":             {"name: a\n---\nname: [\n", "document 2 is not YAML: "},
		"not JSON":             {"{\"name\":\"a\"}\n{\"name\":", "document 2 is not JSON: line 2: unexpected EOF"},
		"deep JSON":            {strings.Repeat("[", 200), "nested too deeply"},
		"not base64":           {"input_bytes: '***'\n", `input_bytes: want base64, found "***"`},
		"binary elsewhere":     {"name: !!binary /wA=\n", "line 1: name is not valid UTF-8"},
		"binary in a list":     {"handler: {args: [!!binary /wA=]}\n", "handler.args[0] is not valid UTF-8"},
		"input twice":          {"input: a\ninputFile: large.bin\n", "line 2: inputFile and input are both set"},
		"no such file":         {"inputFile: missing.csv\n", "line 1: inputFile: open "},
		"large file":           {"inputFile: large.bin\n", "large.bin is larger than the 64 KiB"},
		"file twice":           {"inputFile: a\ninput_file: b\n", "line 2: input_file is set twice"},
		"no name":              {"name: a\n---\n# the second\nhandler: {module: m@1}\n", "document 2, line 4: name is missing"},
		"job twice":            {"name: a\n---\nname: b\n---\nname: a\npaused: true\n", "document 3, line 5: job a is defined twice, first on line 1: keep one of the two"},
		"job twice in a list":  {"[{\"name\":\"a\"},\n{\"name\":\"a\"}]", "document 1, line 2: job a is defined twice"},
		"Latin-1":              {"name: a\ndescription: caf\xe9\n", "line 2 is not valid UTF-8: save the file in that encoding"},
		"Latin-1 in JSON":      {"{\"name\": \"caf\xe9\"}", "line 1 is not valid UTF-8"},
		"misspelt inputFile":   {"inptuFile: a\n", `unknown field "inptuFile": did you mean "inputFile"?`},
		"every field":          {"xyzzy: a\n", "input, inputFile, input_bytes"},
		"file without a name":  {"inputFile: []\n", "inputFile: want the path of a file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := sdk.ReadJobs(strings.NewReader(test.source), dir)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// FuzzReadJobs checks that no file crashes the reader, and that accepted jobs are written
// in a form that reads back as the same jobs.
func FuzzReadJobs(f *testing.F) {
	for _, seed := range []string{
		"", "name: a\n---\nname: b\n", `{"name":"a"}[{"name":"b"}]`, "- &a {name: a, labels: {x: y}}\n- *a\n",
		"name: a\nhandler: {module: m@1, args: [a, 'b c', \"\\t\"], env: {A: ''}}\nschedule: {cron: '* * * * *', zone: UTC}\nretry: {max: 1}\n",
		"name: a\nschedule: {daily: {days: [mon]}, max_runs: 3, include: [c]}\nrouting: {min_free_cpu: 1e-3, max_memory_bytes: 1}\nretry: {jitter: -0}\n",
		"input: |\n  two\n  lines\n", "input: !!binary /wA=\n", "input: \"\\u0085\\u2028 \\n x\"\n", "a: *a", "&a [*a]", "name: a\npaused: true\n", "{", "\xff", "\xff\xfen\x00",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, source []byte) {
		jobs, err := sdk.ReadJobs(bytes.NewReader(source), dir)
		if err != nil {
			return
		}
		var written bytes.Buffer
		if err := sdk.WriteJobs(&written, jobs...); err != nil {
			t.Fatal(err)
		}
		again, err := sdk.ReadJobs(bytes.NewReader(written.Bytes()), dir)
		if err != nil {
			t.Fatalf("%v\n%s", err, written.Bytes())
		}
		for _, job := range jobs {
			job.Etag = "" // the etag identifies the definition that a document was made from, and is not written
		}
		if diff := cmp.Diff(jobs, again, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); diff != "" {
			t.Errorf("jobs (-read +reread):\n%s\n%s", diff, written.Bytes())
		}
	})
}

func TestWriteJobs(t *testing.T) {
	var got strings.Builder
	err := sdk.WriteJobs(&got,
		&sdk.Job{
			App: "default", Name: "totals", Revision: 3, Etag: "x", Digest: "sha256:00", Stats: &sdk.JobStats{Live: 1},
			Handler:  &sdk.Handler{Module: "totals@1", Args: []string{"-v", "3"}, Env: map[string]string{"B": "true", "A": "1"}},
			Schedule: &sdk.Schedule{Cron: "0 */5 * * * *"}, Input: "a,1\nb,2\n", Retry: &sdk.Retry{Max: 3},
		},
		&sdk.Job{Name: "second", Paused: new(true), InputBytes: []byte("\xff\x00"), Schedule: &sdk.Schedule{At: "2026-01-02T03:04:05Z"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	const want = `app: default
name: totals
handler:
  module: totals@1
  args:
    - -v
    - "3"
  env:
    A: "1"
    B: "true"
schedule:
  cron: 0 */5 * * * *
input: |
  a,1
  b,2
retry:
  max: 3
---
name: second
schedule:
  at: "2026-01-02T03:04:05Z"
input_bytes: /wA=
paused: true
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCalendarDocuments(t *testing.T) {
	source := `name: holidays
dates: [2026-12-25, "2026-12-24/2026-12-26"]
days: [sat, sun]
updated_at: 2026-01-01T00:00:00Z
---
[{"name": "audits", "yearly": ["03-31"], "ics": "BEGIN:VCALENDAR\r\n"}]
`
	want := []*sdk.Calendar{
		{Name: "holidays", Dates: []string{"2026-12-25", "2026-12-24/2026-12-26"}, Days: []string{"sat", "sun"}},
		{Name: "audits", Yearly: []string{"03-31"}, Ics: "BEGIN:VCALENDAR\r\n"},
	}
	got, err := sdk.ReadCalendars(strings.NewReader(source))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("calendars (-want +got):\n%s", diff)
	}
	var written bytes.Buffer
	if err := sdk.WriteCalendars(&written, got...); err != nil {
		t.Fatal(err)
	}
	if got, err = sdk.ReadCalendars(&written); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("calendars that were written (-want +got):\n%s", diff)
	}
	for source, want := range map[string]string{
		"just text\n":              `read calendars: document 1, line 1: want a calendar with fields, found "just text"`,
		"name: a\ndate: [1]\n":     `line 2: unknown field "date": did you mean "dates"?`,
		"name: a\nholidays: [1]\n": `unknown field "holidays": want one of app, dates, days, description, ics, labels, name, yearly`,
	} {
		if _, err := sdk.ReadCalendars(strings.NewReader(source)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
}

// FuzzReadCalendars is [FuzzReadJobs] for calendars.
func FuzzReadCalendars(f *testing.F) {
	for _, seed := range []string{"", "name: a\ndates: [2026-12-25]\n---\nname: b\ndays: [sat]\n", `{"name":"a","ics":"BEGIN:VCALENDAR\r\n"}`, "- &a {name: a}\n- *a\n", "a: *a", "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		calendars, err := sdk.ReadCalendars(bytes.NewReader(source))
		if err != nil {
			return
		}
		var written bytes.Buffer
		if err := sdk.WriteCalendars(&written, calendars...); err != nil {
			t.Fatal(err)
		}
		again, err := sdk.ReadCalendars(bytes.NewReader(written.Bytes()))
		if err != nil {
			t.Fatalf("%v\n%s", err, written.Bytes())
		}
		if diff := cmp.Diff(calendars, again, protocmp.Transform()); diff != "" {
			t.Errorf("what was written reads back otherwise (-want +got):\n%s\n%s", diff, written.Bytes())
		}
	})
}
