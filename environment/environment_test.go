package environment_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/environment"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

func parse(t testing.TB, text string) []*document.Document {
	t.Helper()
	all, err := document.Parse(strings.NewReader(text), document.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		d.SetApp("a")
	}
	return all
}

func overlay(t testing.TB, text string) *environment.Overlay {
	t.Helper()
	o, err := environment.ReadOverlay(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func plan(t testing.TB, in environment.Input) *environment.Plan {
	t.Helper()
	in.Now, in.Base = now, func(proto.Message) string { return "base" }
	p, err := environment.New(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	return p
}

func text(t testing.TB, all []*document.Document) string {
	t.Helper()
	b, err := document.Marshal(all...)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func random(r *rand.Rand, jobs int) string {
	one := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	var b strings.Builder
	fmt.Fprintf(&b, "kind: Calendar\nname: c\ndates: [%s]\n", one("2026-12-24", "2026-12-25"))
	for i := range jobs {
		fmt.Fprintf(&b, "---\nname: j%d\nhandler: {name: 'native:x'}\n%s%s%s%s%s%s", i,
			one("", "schedule: {cron: '0 1 * * *', zone: Europe/Paris, exclude: [c]}\n", "schedule: {every: 1h}\n", "schedule: {daily: {}}\n"),
			one("", "labels: {stage: test}\n", "labels: {team: x}\n"), one("", "timeout: 5s\n"), one("", "input: i\n", "input_bytes: /w==\n"),
			one("", "limits: {fuel: 5}\n", "limits: {memory_bytes: 65536}\n"), one("", "paused: true\n"))
	}
	return b.String()
}

func randomOverlay(r *rand.Rand) string {
	one := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	var b strings.Builder
	b.WriteString("jobs:\n")
	for range 3 {
		fmt.Fprintf(&b, "- labels: %s\n  names: %s\n  set: {%s%s%s%s%s%s}\n", one("{}", "{}", "{stage: test}", "{team: x}"), one("[]", "[j1*]", "['j?']"), one("", "zone: Asia/Tokyo, "), one("", "timeout: 99s, "), one("", "input: overlay, "),
			one("", "fuel: 77, ", "memory_bytes: 131072, "), one("", "labels: {stage: prod, more: y}, "), one("", "paused: true", "paused: false"))
	}
	return b.String()
}

// TestOverlayStaysInItsEnvironment checks with random apps and overlays that an application of a plan makes the next one empty, that it
// leaves the wanted definitions alone, and that a promotion back changes nothing.
func TestOverlayStaysInItsEnvironment(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	for range 500 {
		base := parse(t, random(r, 12))
		before := text(t, base)
		o := overlay(t, randomOverlay(r))
		p := plan(t, environment.Input{Wanted: base, Overlay: o})
		there := applied(t, nil, p)
		if again := plan(t, environment.Input{Target: there, Wanted: environment.For("a", base, there, nil), Overlay: o}); len(again.Changes) > 0 {
			t.Fatalf("after it was applied: %+v", again.Changes[0])
		}
		if got := text(t, base); got != before {
			t.Fatalf("the base has changed:\n%s\nwant:\n%s", got, before)
		}
		if back := plan(t, environment.Input{Target: base, Wanted: environment.For("a", there, base, o)}); len(back.Changes) > 0 {
			t.Fatalf("the overlay reaches the base: %+v\nof\n%s", back.Changes[0], before)
		}
		for _, d := range environment.For("a", there, nil, o) { // into an empty environment
			if job, ok := d.Spec.(*apiv1.Job); ok && (job.Timeout == "99s" || job.Input == "overlay" || job.GetLabels()["more"] != "" || job.GetLimits().GetFuel() == 77) {
				t.Fatalf("the overlay reaches another environment: %v", job)
			}
		}
	}
}

// applied returns the definitions of a target after a plan.
func applied(t testing.TB, target []*document.Document, p *environment.Plan) []*document.Document {
	t.Helper()
	gone := map[string]bool{}
	var next []*document.Document
	for i := range p.Changes {
		c := &p.Changes[i]
		gone[c.String()] = true
		m, err := c.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if m != nil {
			k, err := document.Find(c.Kind)
			if err != nil {
				t.Fatal(err)
			}
			next = append(next, document.Of(k, m))
		}
	}
	target = slices.DeleteFunc(slices.Clone(target), func(d *document.Document) bool { return gone[d.String()] })
	next = append(next, target...)
	slices.SortStableFunc(next, document.Compare)
	return next
}

// TestPlan checks the changes of a plan.
func TestPlan(t *testing.T) {
	target := parse(t, "kind: Calendar\nname: c\ndates: [2026-12-02]\n---\nname: a\nhandler: {name: 'native:x'}\nschedule: {cron: '0 1 * * *', exclude: [c]}\n---\nname: b\nhandler: {name: 'native:x'}\n---\nname: same\nhandler: {name: 'native:x'}\n---\nname: paused\nhandler: {name: 'native:x'}\npaused: true\n")
	target[1].Spec.(*apiv1.Job).Stats = &apiv1.JobStats{Live: 3}
	wanted := parse(t, "kind: Calendar\nname: c\ndates: [2026-12-03, 2026-12-04]\n---\nname: a\nhandler: {name: 'native:x'}\nschedule: {cron: '0 3 * * *', exclude: [c]}\n---\nname: new\nhandler: {name: 'native:x'}\n---\nname: same\nhandler: {name: 'native:x'}\ntimeout: ''\n---\nname: paused\nhandler: {name: 'native:x'}\n")
	p := plan(t, environment.Input{Target: target, Wanted: wanted})
	var got []string
	for _, c := range p.Changes {
		line := fmt.Sprint(c, c.Result, c.Base)
		if c.Fires != nil {
			line += fmt.Sprint(" ", c.Fires.Moved, c.Fires.Next.Format(" 2T15:04"))
		}
		got = append(got, line)
	}
	if len(p.Changes) != 3 || p.Changes[0].String() != "calendar c" || p.Changes[0].Fires.Moved != 2 || p.Changes[1].Live != 3 || p.Changes[1].Fires.Moved != 6 || p.Changes[1].Base != "base" || p.Changes[2].Base != "none" {
		t.Errorf("the plan: %v", got)
	}
	if len(p.Kept) != 1 || p.Kept[0].String() != "job b" {
		t.Errorf("only there: %v", p.Kept)
	}
	if p = plan(t, environment.Input{Target: target, Wanted: wanted, Prune: true}); len(p.Kept) > 0 || p.Count(environment.Deleted) != 1 {
		t.Errorf("with prune: %v, %v", p.Changes, p.Kept)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	if again, err := environment.Read(bytes.NewReader(b.Bytes())); err != nil || again.Hash != p.Hash || len(again.Changes) != len(p.Changes) {
		t.Errorf("read again: %v", err)
	}
	for old, next := range map[string]string{`"0 3 * * *"`: `"0 4 * * *"`, `"base"`: `"bose"`, `"format": 1`: `"format": 2`, `"problems": []`: `"problems": [], "more": 1`, `"result": "deleted"`: `"result": "updated"`} {
		if edited := strings.Replace(b.String(), old, next, 1); edited == b.String() {
			t.Errorf("%s is not in the plan", old)
		} else if _, err := environment.Read(strings.NewReader(edited)); err == nil {
			t.Errorf("with %s for %s the plan is accepted", next, old)
		}
	}
}

// TestSelect checks what goes with a job.
func TestSelect(t *testing.T) {
	all := parse(t, `
kind: Calendar
name: c
---
kind: Calendar
name: other
---
kind: Alias
module: m
name: prod
version: 1
---
kind: Grant
module: m
grants: {secrets: [s]}
---
name: a
handler: {module: m@prod}
schedule: {daily: {}, exclude: [c]}
dependency: {jobs: [up]}
---
name: up
handler: {module: n@2}
---
name: rest
handler: {module: n@3}
---
kind: AlertChannel
name: ops
slack: {url: 'https://hooks.example/x'}
---
kind: AlertRule
name: r
events: [failed]
select: {jobs: [a]}
channels: [ops]
---
kind: AlertRule
name: all
events: [failed]
channels: [ops]
`)
	got, err := environment.Select(all, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range got {
		names = append(names, d.String())
	}
	slices.Sort(names)
	if want := "alertchannel ops, alertrule r, alias m@prod, calendar c, grant m, job a, job up"; strings.Join(names, ", ") != want {
		t.Errorf("%v, want %s", names, want)
	}
	if v := environment.Versions(got); !slices.Equal(v, []string{"m@1", "n@2"}) {
		t.Errorf("versions: %v", v)
	}
	if s := environment.Secrets(got); !slices.Equal(s, []string{"s"}) {
		t.Errorf("secrets: %v", s)
	}
	others := parse(t, "kind: EventSource\nname: shop\nsecret: {secret: key}\n---\nkind: AlertChannel\nname: hook\nwebhook: {url: 'https://hooks.example/x', secret: {secret: signing}}\n")
	if s := environment.Secrets(others); !slices.Equal(s, []string{"key", "signing"}) {
		t.Errorf("secrets of other kinds: %v", s)
	}
	if _, err := environment.Select(all, []string{"none"}); err == nil {
		t.Error("a job that does not exist is selected")
	}
}

// TestCapabilities checks what is new in a version.
func TestCapabilities(t *testing.T) {
	old := &apiv1.Module{Imports: []string{"a.x"}, Requests: &apiv1.Grants{Secrets: []string{"s"}, Kv: []*apiv1.BucketGrant{{Name: "b"}}}}
	next := &apiv1.Module{Imports: []string{"a.x", "b.y"}, Requests: &apiv1.Grants{Secrets: []string{"s", "t"}, Kv: []*apiv1.BucketGrant{{Name: "b", Write: true}}, Http: []*apiv1.HttpGrant{{Host: "example.com"}}}}
	if got, want := environment.Capabilities(next, []*apiv1.Module{old}), []string{"b.y", "http example.com", "kv b write", "secret t"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := environment.Capabilities(old, []*apiv1.Module{next, old}); len(got) > 0 {
		t.Errorf("the same: %v", got)
	}
}

// TestReadOverlay checks that mistakes are refused.
func TestReadOverlay(t *testing.T) {
	for _, bad := range []string{"job: []", "jobs: [{names: ['[']}]", "jobs: [{set: {zone: Nowhere/Land}}]", "jobs: [{set: {time: 5s}}]", "alerts: [{names: [x]}]", "gates: {soak: day}", "gates: {last_green: 1000}", "gates: {soak: -1h}"} {
		if _, err := environment.ReadOverlay(strings.NewReader(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	if o := overlay(t, ""); o == nil || len(o.Jobs) > 0 {
		t.Errorf("an empty file: %v", o)
	}
}
