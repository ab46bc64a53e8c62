package audit

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
)

var update = flag.Bool("update", false, "write the table of docs/audit.md")

// entry is an entry with its time.
type entry struct {
	e    *apiv1.Audited
	atMs int64
}

// chainOf returns entries with 1 to 3 events each.
func chainOf(t *testing.T, n int) (all []entry) {
	t.Helper()
	var c Chain
	for i := range n {
		var b Builder
		for k := range i%3 + 1 {
			b.Add(&apiv1.Attribution{Author: fmt.Sprint("actor ", k%2)}, Row{Code: "job.changed", App: "shop", Object: fmt.Sprint("job ", i)})
		}
		events, _, count := b.Finish()
		all = append(all, entry{c.Add(int64(1000+i), events, count), int64(1000 + i)})
	}
	return all
}

// follow returns the sequence of the first entry that does not fit; 0: all fit.
func follow(all []entry) uint64 {
	var c Chain
	for i, x := range all {
		if err := c.Follow(x.e, x.atMs, i == 0 && x.e.First > 1); err != nil {
			if !errors.Is(err, ErrBroken) {
				panic(err)
			}
			return x.e.First
		}
	}
	return 0
}

// TestChain checks that each change of an entry is found where it is: of its events, its time, its
// sequence and its hash, and that a missing, doubled or moved one is found.
func TestChain(t *testing.T) {
	all := chainOf(t, 30)
	if at := follow(all); at != 0 {
		t.Fatalf("a whole chain is broken at %d", at)
	}
	if at := follow(all[7:]); at != 0 {
		t.Errorf("a chain whose beginning was removed is broken at %d", at)
	}
	const n = 12
	first, after := all[n].e.First, all[n+1].e.First
	for what, tt := range map[string]struct {
		change func([]entry) []entry
		want   uint64
	}{
		"another event":  {func(x []entry) []entry { x[n].e.Events[len(x[n].e.Events)-1] ^= 1; return x }, first},
		"another time":   {func(x []entry) []entry { x[n].atMs++; return x }, first},
		"another hash":   {func(x []entry) []entry { x[n].e.Head[3] ^= 1; return x }, first},
		"another number": {func(x []entry) []entry { x[n].e.First++; return x }, first + 1},
		"a missing one":  {func(x []entry) []entry { return slices.Delete(x, n, n+1) }, after},
		"a doubled one":  {func(x []entry) []entry { return slices.Insert(x, n, x[n-1]) }, x(all, n-1)},
		"a moved one":    {func(x []entry) []entry { x[n], x[n+1] = x[n+1], x[n]; return x }, after},
		"no beginning":   {func(x []entry) []entry { x[0].e.First = 5; return x[:1] }, 0},
	} {
		if at := follow(tt.change(clone(all))); at != tt.want {
			t.Errorf("%s: broken at %d, want %d", what, at, tt.want)
		}
	}
	var c Chain
	if err := c.Follow(all[3].e, all[3].atMs, false); !errors.Is(err, ErrBroken) {
		t.Errorf("a chain that does not begin with the first event: %v", err)
	}
}

func x(all []entry, n int) uint64 { return all[n].e.First }

func clone(all []entry) []entry {
	var c []entry
	for _, x := range all {
		c = append(c, entry{proto.CloneOf(x.e), x.atMs})
	}
	return c
}

// TestPages merges the pages of random partitions until the end: each event comes once, and those of a
// partition in their order, also if a clock was set back.
func TestPages(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		var partitions []string
		logs := map[string][]*apiv1.AuditEvent{} // the newest first
		total := 0
		for p := range 1 + r.IntN(4) {
			name := fmt.Sprint("main.", p)
			partitions = append(partitions, name)
			at := time.Unix(1000, 0)
			for n := range r.IntN(30) {
				at = at.Add(time.Duration(r.IntN(5)-1) * time.Second)
				logs[name] = slices.Insert(logs[name], 0, &apiv1.AuditEvent{Time: timestamppb.New(at), Partition: name, Sequence: uint64(n + 1), Position: int64(n * 100)})
				total++
			}
		}
		size := 1 + r.IntN(12)
		seen, last := 0, map[string]uint64{}
		for token, n := "", 0; ; n++ {
			asked, err := ParseTokens(token)
			if err != nil {
				t.Fatal(err)
			}
			var pages []*apiv1.ListAuditEventsResponse
			for _, name := range partitions {
				page := &apiv1.ListAuditEventsResponse{}
				for _, e := range logs[name] {
					if before := asked[name]; before != (Mark{}) && (before == NoMore || e.Sequence >= before.Sequence) {
						continue
					}
					if len(page.Events) == size {
						page.NextPageToken = Tokens{name: MarkOf(page.Events[size-1])}.String()
						break
					}
					page.Events = append(page.Events, e)
				}
				pages = append(pages, page)
			}
			all, err := MergePages(asked, partitions, pages, size)
			if err != nil || len(all.Events) > size || n > 200 {
				t.Fatalf("round %d: page %d of %d events, %v", round, n, len(all.Events), err)
			}
			for _, e := range all.Events {
				if l := last[e.Partition]; l != 0 && e.Sequence != l-1 {
					t.Fatalf("round %d: %s has the event %d after %d", round, e.Partition, e.Sequence, l)
				}
				last[e.Partition] = e.Sequence
				seen++
			}
			if token = all.NextPageToken; token == "" {
				break
			}
		}
		if seen != total {
			t.Fatalf("round %d: %d events of %d", round, seen, total)
		}
	}
	for _, bad := range []string{"x", "=1@1", "main=", "main=0@1", "main=-1@1", "main=1", "main=1@-1", "main=1@2,", ","} {
		if _, err := ParseTokens(bad); err == nil {
			t.Errorf("the token %q was read", bad)
		}
	}
}

// TestOldestPages follows the logs of random partitions, which grow and lose their oldest events
// meanwhile: each event comes once, in the order of its partition, or is in a gap. The partitions are
// spread over two servers, each of which merges its own.
func TestOldestPages(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		var servers [2][]string
		logs := map[string][]*apiv1.AuditEvent{} // the oldest first
		next := map[string]uint64{}
		for p := range 1 + r.IntN(4) {
			name := fmt.Sprint("main.", p)
			servers[p%2] = append(servers[p%2], name)
			next[name] = 1
		}
		size := 1 + r.IntN(12)
		at := time.Unix(1000, 0)
		last, token := map[string]uint64{}, ""
		for step := 0; ; step++ {
			for _, name := range slices.Concat(servers[0], servers[1]) {
				for range r.IntN(10) {
					if step > 20 {
						break
					}
					at = at.Add(time.Duration(r.IntN(5)-1) * time.Second)
					logs[name] = append(logs[name], &apiv1.AuditEvent{Time: timestamppb.New(at), Partition: name, Sequence: next[name], Position: int64(next[name] * 100)})
					next[name]++
				}
				if r.IntN(8) == 0 && len(logs[name]) > 0 {
					logs[name] = logs[name][r.IntN(len(logs[name])):]
				}
			}
			asked, err := ParseTokens(token)
			if err != nil {
				t.Fatal(err)
			}
			var answers []*apiv1.ListAuditEventsResponse
			for _, own := range servers {
				var pages []*apiv1.ListAuditEventsResponse
				for _, name := range own {
					pages = append(pages, oldestPage(name, logs[name], asked[name], size))
				}
				answer, err := MergeOldest(asked, pages, size)
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, answer)
			}
			all, err := MergeOldest(asked, answers, size)
			if err != nil || len(all.Events) > size || step > 500 {
				t.Fatalf("round %d: page %d of %d events, %v", round, step, len(all.Events), err)
			}
			gaps := map[string]*apiv1.AuditGap{}
			for _, g := range all.Gaps {
				if g.First != last[g.Partition]+1 || gaps[g.Partition] != nil {
					t.Fatalf("round %d: %v after %d", round, g, last[g.Partition])
				}
				gaps[g.Partition], last[g.Partition] = g, g.Last
			}
			for _, e := range all.Events {
				if e.Sequence != last[e.Partition]+1 {
					t.Fatalf("round %d: %s has the event %d after %d", round, e.Partition, e.Sequence, last[e.Partition])
				}
				last[e.Partition] = e.Sequence
			}
			if token = all.NextPageToken; !all.More && step > 21 {
				break
			}
		}
		for name, n := range next {
			if last[name] != n-1 {
				t.Fatalf("round %d: %s ends at %d of %d", round, name, last[name], n-1)
			}
		}
	}
}

// oldestPage is the page of one partition.
func oldestPage(name string, log []*apiv1.AuditEvent, mark Mark, size int) *apiv1.ListAuditEventsResponse {
	page := &apiv1.ListAuditEventsResponse{}
	for _, e := range log {
		if e.Sequence <= mark.Sequence {
			continue
		}
		if len(page.Events) == size {
			page.More = true
			break
		}
		if e.Sequence > mark.Sequence+1 {
			page.Gaps = append(page.Gaps, &apiv1.AuditGap{Partition: name, First: mark.Sequence + 1, Last: e.Sequence - 1})
		}
		page.Events, mark = append(page.Events, e), MarkOf(e)
	}
	page.NextPageToken = Tokens{name: mark}.String()
	return page
}

// TestRefusals counts refusals by caller, and bounds how many kinds of them it holds.
func TestRefusals(t *testing.T) {
	var r Refusals
	add := func(address, actor, code string) {
		r.Add(&apiv1.Attribution{Address: address, Author: actor}, Row{Code: code, Message: strings.Repeat("ü", 300)})
	}
	for range 5 {
		add("10.0.0.1", "ci", "call.denied")
		add("10.0.0.1", "", "call.unauthenticated")
	}
	add("10.0.0.2", "ci", "call.denied")
	all := r.Take(time.Unix(1000, 0))
	if len(all) != 3 || all[0].Count != 5 || all[1].Count != 5 || all[2].Count != 1 || all[2].By.Address != "10.0.0.2" {
		t.Errorf("%v", all)
	}
	if m := all[0].Message; len(m) > maxMessage+4 || !strings.HasSuffix(m, "ü…") {
		t.Errorf("the message is %q", m)
	}
	if r.Take(time.Unix(1000, 0)) != nil {
		t.Error("refusals were taken twice")
	}
	for n := range 3 * maxRefusals {
		add(fmt.Sprint("10.0.", n/256, ".", n%256), "", "call.unauthenticated")
	}
	sum := int64(0)
	all = r.Take(time.Unix(1000, 0))
	for _, e := range all {
		sum += e.Count
	}
	if len(all) != maxRefusals+1 || sum != 3*maxRefusals || all[0].By.Address != "" || all[0].Count != 2*maxRefusals {
		t.Errorf("%d events of %d refusals", len(all), sum)
	}
}

// TestRefusalBytes makes refusals from very many addresses for a day. Beyond the limit they become one
// event a minute, and the next day begins anew.
func TestRefusalBytes(t *testing.T) {
	var r Refusals
	begin := time.Unix(1_000_000, 0)
	events, refusals, bytes := 0, int64(0), 0
	for minute := range 24 * 60 {
		for n := range 300 {
			r.Add(&apiv1.Attribution{Address: fmt.Sprint("10.", minute%256, ".", n/256, ".", n%256)}, Row{Code: "call.unauthenticated", Object: "Jobs/GetJob", Message: "the token was refused"})
		}
		for _, e := range r.Take(begin.Add(time.Duration(minute) * time.Minute)) {
			events++
			refusals += e.Count
			var b Builder
			b.Add(e.By, e.Row)
			text, _, _ := b.Finish()
			bytes += len(text)
		}
	}
	if refusals != 24*60*300 || bytes > 2*maxRefusalBytes || events < 10_000 || events > 60_000 {
		t.Errorf("%d events with %d bytes of %d refusals", events, bytes, refusals)
	}
	r.Add(&apiv1.Attribution{Address: "10.0.0.1"}, Row{Code: "call.denied"})
	if all := r.Take(begin.Add(25 * time.Hour)); len(all) != 1 || all[0].By.Address != "10.0.0.1" {
		t.Errorf("on the next day: %v", all)
	}
}

// TestBuilder groups the events of one caller, and counts equal ones of a backfill.
func TestBuilder(t *testing.T) {
	a, b := &apiv1.Attribution{Author: "a", Note: "why"}, &apiv1.Attribution{Author: "b"}
	var x Builder
	if _, _, n := x.Finish(); n != 0 {
		t.Error("an empty builder has events")
	}
	for range 3 {
		x.Add(a, Row{Code: "job.backfilled", App: "shop", Object: "j"})
	}
	x.Add(a, Row{Code: "job.changed", App: "shop", Object: "j", Outcome: Failed, Message: strings.Repeat("long ", 100)})
	x.Add(a, Row{Code: "job.changed", App: "shop", Object: "i", Revision: 7})
	x.Add(b, Row{Code: "job.deleted", App: "shop", Object: "k", Revision: 3})
	text, names, n := x.Finish()
	m, err := Events(&apiv1.Audited{Events: text})
	if err != nil || n != 4 || Count(m) != 4 || len(m.Groups) != 3 || m.Groups[0].Events[0].Count != 3 {
		t.Fatalf("%d events: %v, %v", n, m, err)
	}
	if want := []string{"actor/a", "actor/b", "app/shop", "code/job.backfilled", "code/job.changed", "code/job.deleted"}; !slices.Equal(names, want) || !slices.Equal(Names(m), want) {
		t.Errorf("the names are %v and %v", names, Names(m))
	}
	if again, err := proto.Marshal(m); err != nil || len(again) != len(text) {
		t.Errorf("%d bytes, the library makes %d, %v", len(text), len(again), err)
	}
	events := Messages(7, 0, 1000, "main", m)
	if e := events[1]; e.Sequence != 8 || e.Outcome != Failed || e.Count != 1 || len(e.Message) != 500 || e.Partition != "main" {
		t.Errorf("%v", e)
	}
	if e := events[2]; e.Before != "revision 6" || e.After != "revision 7" || e.Message != "why" || e.Outcome != OK {
		t.Errorf("%v", e)
	}
	if e := events[3]; e.Before != "revision 2" || e.After != "" || e.Actor != "b" {
		t.Errorf("%v", e)
	}
}

// TestCut builds events with texts that are too long, or are no UTF-8. They can be read, are cut with a
// mark, and are found by the names that they have.
func TestCut(t *testing.T) {
	for _, tt := range []struct {
		text, name, message string
	}{
		{"shop", "shop", "shop"},
		{strings.Repeat("x", maxName), strings.Repeat("x", maxName), strings.Repeat("x", maxName)},
		{strings.Repeat("x", maxName+1), strings.Repeat("x", maxName) + "…", strings.Repeat("x", maxName+1)},
		{strings.Repeat("ü", maxText), strings.Repeat("ü", maxName/2) + "…", strings.Repeat("ü", maxText/2) + "…"},
		{"x" + strings.Repeat("ü", maxText), "x" + strings.Repeat("ü", maxName/2-1) + "…", "x" + strings.Repeat("ü", maxText/2-1) + "…"},
		{"a\xffb", "a\uFFFDb", "a\uFFFDb"},
	} {
		var b Builder
		b.Add(&apiv1.Attribution{Author: tt.text, Kind: tt.text, Token: tt.text, Address: tt.text, Note: tt.text}, Row{Code: tt.text, App: tt.text, Object: tt.text, Outcome: tt.text, Before: tt.text, After: tt.text, Message: tt.text})
		b.Add(&apiv1.Attribution{Note: tt.text}, Row{Code: "job.backfilled", Object: tt.text})
		text, names, n := b.Finish()
		m, err := Events(&apiv1.Audited{Events: text})
		if err != nil || n != 2 || Count(m) != 2 || !slices.Equal(names, Names(m)) {
			t.Fatalf("%.20q: %d events, %v", tt.text, n, err)
		}
		events := Messages(1, 0, 0, "main", m)
		e := events[0]
		for _, got := range []string{e.Code, e.Actor, e.Kind, e.Token, e.Address, e.App, e.Object, e.Outcome, e.Before, e.After, events[1].Object} {
			if got != tt.name {
				t.Errorf("%.20q: a text of %d bytes, want %d", tt.text, len(got), len(tt.name))
			}
		}
		if e.Message != tt.message || events[1].Message != tt.message {
			t.Errorf("%.20q: messages of %d and %d bytes, want %d", tt.text, len(e.Message), len(events[1].Message), len(tt.message))
		}
	}
	var r Refusals
	huge := strings.Repeat("x", 8<<20)
	r.Add(&apiv1.Attribution{}, Row{Code: "call.denied", App: huge, Object: huge, Message: huge})
	if all := r.Take(time.Unix(1000, 0)); len(all) != 1 || len(all[0].App) > 2*maxName || len(all[0].Object) > 2*maxName || len(all[0].Message) > 2*maxMessage {
		t.Error("a refusal holds what its caller sent")
	}
}

// TestCodesDocument: the table in docs/audit.md has all codes. `go test ./access/audit -run
// TestCodesDocument -update` writes it.
func TestCodesDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("| code | what happened | object |\n|---|---|---|\n")
	seen := map[string]bool{}
	for _, c := range Codes {
		if seen[c.Code] {
			t.Errorf("the code %s is there twice", c.Code)
		}
		seen[c.Code] = true
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Code, c.Text, c.Object)
	}
	for _, kind := range []string{"job", "calendar", "alias", "grants", "app", "alertrule", "alertchannel"} {
		for n, deleted := range []bool{false, false, true} {
			if e := OfRevision("a", kind, "x", int64(n+1), deleted); !seen[e.Code] {
				t.Errorf("the code %s is not in the table", e.Code)
			}
		}
	}
	file := filepath.Join("..", "..", "docs", "audit.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- the codes, written by a test -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	want := before + begin + b.String() + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the codes in %s are not those of this package: go test ./access/audit -run TestCodesDocument -update", file)
	}
}

// TestCallsHaveEvents checks that each method of a server, which no partition records, has an event if it
// changes something, and that the event names the object of the request.
func TestCallsHaveEvents(t *testing.T) {
	codes := map[string]bool{}
	for _, c := range Codes {
		codes[c.Code] = true
	}
	n := 0
	for method, m := range methods.All() {
		writes := strings.HasSuffix(m.Permission, ".operate") || strings.HasSuffix(m.Permission, ".write") || strings.HasSuffix(m.Permission, ".backup")
		e, ok := OfCall(method, nil)
		if want := writes && m.Route == apiv1.Route_ROUTE_SERVER; ok != want || ok && !codes[e.Code] {
			t.Errorf("%s has the event %q, want one: %t", method, e.Code, want)
		}
		if ok {
			n++
		}
	}
	if n < 9 {
		t.Errorf("%d methods have events", n)
	}
	for object, tt := range map[string]struct {
		method string
		req    any
	}{
		"srv-1":           {apiv1.Membership_DrainServer_FullMethodName, &apiv1.DrainServerRequest{Server: "srv-1"}},
		"main.2 to srv-1": {apiv1.Membership_MoveUnit_FullMethodName, &apiv1.MoveUnitRequest{Unit: "main.2", Server: "srv-1"}},
		"shop":            {apiv1.Membership_SplitApp_FullMethodName, &apiv1.SplitAppRequest{App: "shop"}},
		"7":               {apiv1.Queues_DropDeadLetters_FullMethodName, &apiv1.DropDeadLettersRequest{Ids: []string{"7"}}},
		"2 letters":       {apiv1.Queues_ReplayDeadLetters_FullMethodName, &apiv1.ReplayDeadLettersRequest{Ids: []string{"7", "8"}}},
		"by filter":       {apiv1.Queues_ReplayDeadLetters_FullMethodName, &apiv1.ReplayDeadLettersRequest{All: true}},
	} {
		if e, ok := OfCall(tt.method, tt.req); !ok || e.Object != object {
			t.Errorf("%s: %v, want %q", tt.method, e, object)
		}
	}
}

// TestUsesAreNoEvents checks that the notes of uses, which servers make, have no events.
func TestUsesAreNoEvents(t *testing.T) {
	for what, rec := range map[string]*apiv1.Record{
		"the use of a session": {Kind: &apiv1.Record_AccessPut{AccessPut: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Session{Session: &apiv1.SessionRow{Id: "ses-x"}}}}},
		"the use of a token":   {Kind: &apiv1.Record_AccessPut{AccessPut: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Use{Use: &apiv1.TokenUseRow{Id: "tok-x"}}}}},
		"its end":              {Kind: &apiv1.Record_AccessDelete{AccessDelete: &apiv1.AccessDelete{Kind: "use", Id: "tok-x"}}},
	} {
		if e, ok := OfRecord("", rec); ok {
			t.Errorf("%s has the event %v", what, e)
		}
	}
	if e, ok := OfRecord("", &apiv1.Record{Kind: &apiv1.Record_AccessDelete{AccessDelete: &apiv1.AccessDelete{Kind: "session", Id: "ses-x"}}}); !ok || e.Code != "session.ended" {
		t.Errorf("the end of a session has the event %v", e)
	}
}
