package route

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// fleet returns able hosts with 8 slots: h000, h001, …
func fleet(n int) []Candidate {
	cands := make([]Candidate, n)
	for i := range cands {
		id := fmt.Sprintf("h%03d", i)
		if n > 1000 {
			id = fmt.Sprintf("h%06d", i)
		}
		cands[i] = Candidate{ID: id, Name: "name-of-" + id, Connected: true, Serves: true, Credits: 16, Slots: 8}
	}
	return cands
}

func routeOf(t testing.TB, m *apiv1.Routing) *Route {
	t.Helper()
	r, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// given is the input of a run.
type given string

func (g given) Given() []byte { return []byte(g) }

// idOf returns the n-th of some different ids.
func idOf(n int) [16]byte {
	sum := sha256.Sum256(strconv.AppendInt(nil, int64(n), 10))
	return [16]byte(sum[:])
}

// runOf returns the n-th of some different runs without an attempt.
func runOf(n int) Run {
	return Run{ID: idOf(n), App: "a", Job: "j", Input: given("")}
}

// after returns a run after attempts that failed on these hosts.
func after(r Run, hosts ...string) Run {
	r.Attempt += int32(len(hosts))
	r.Failed = append(slices.Clone(r.Failed), hosts...)
	return r
}

func TestPick(t *testing.T) {
	uses := func(last string, seq int64, uses ...Use) *State {
		return &State{LastHost: last, Seq: seq, Uses: uses}
	}
	for _, c := range []struct {
		name     string
		strategy string
		change   func([]Candidate) // changes four able hosts, h000 to h003
		run      Run
		state    *State
		want     int
	}{
		{name: "least_loaded: the fewest tasks for each slot", change: func(h []Candidate) {
			h[0].Running, h[1].Running, h[2].Running, h[3].Running = 4, 3, 5, 6
			h[2].Slots = 16
		}, want: 2},
		{name: "least_loaded: a long queue counts", change: func(h []Candidate) {
			h[0].Running, h[1].Running, h[2].Running, h[3].Running = 100, 90, 80, 81
		}, want: 2},
		{name: "least_loaded: of equals the most credits", change: func(h []Candidate) { h[1].Credits, h[2].Credits = 17, 18 }, want: 2},
		{name: "least_loaded: a host without slots", change: func(h []Candidate) {
			for i := range h {
				h[i].Slots, h[i].Running = 0, int32(4-i)
			}
		}, want: 3},
		{name: "first", strategy: "first", want: 0},
		{name: "first that is able", strategy: "first", change: func(h []Candidate) { h[0].Draining = true }, want: 1},
		{name: "last", strategy: "last", want: 3},
		{name: "last that is able", strategy: "last", change: func(h []Candidate) { h[3].Credits = 0 }, want: 2},
		{name: "round_robin begins with the first", strategy: "round_robin", want: 0},
		{name: "round_robin: the next", strategy: "round_robin", state: uses("h001", 0), want: 2},
		{name: "round_robin: after the last the first", strategy: "round_robin", state: uses("h003", 0), want: 0},
		{name: "round_robin: the next of a host that is gone", strategy: "round_robin", state: uses("h001x", 0), want: 2},
		{name: "round_robin steps over", strategy: "round_robin", state: uses("h001", 0), change: func(h []Candidate) { h[2].Connected = false }, want: 3},
		{
			name: "lfu: the fewest", strategy: "lfu", want: 2,
			state: uses("h001", 20, Use{"h000", 7, 9}, Use{"h001", 6, 20}, Use{"h002", 3, 5}, Use{"h003", 4, 8}),
		},
		{
			name: "lfu: a host without uses", strategy: "lfu", want: 3,
			state: uses("h001", 20, Use{"h000", 7, 9}, Use{"h001", 6, 20}, Use{"h002", 3, 5}),
		},
		{
			name: "lfu: a debt counts up to its limit", strategy: "lfu", want: 2, // h000 and h003 are 16 behind as well, so it is h002's turn
			state: uses("h001", 99, Use{"h000", 1, 9}, Use{"h001", 100, 99}, Use{"h002", 84, 5}, Use{"h003", 80, 8}),
		},
		{name: "lfu: of equals the next", strategy: "lfu", state: uses("h001", 20), want: 2},
		{
			name: "lru: the longest not used", strategy: "lru", want: 0,
			state: uses("h001", 20, Use{"h000", 900, 3}, Use{"h001", 6, 20}, Use{"h002", 3, 5}, Use{"h003", 4, 8}),
		},
		{
			name: "lru: never used", strategy: "lru", want: 1,
			state: uses("h000", 20, Use{"h000", 7, 20}, Use{"h002", 3, 5}, Use{"h003", 4, 8}),
		},
		{name: "failover begins with the first", strategy: "failover", want: 0},
		{name: "failover: not where it failed", strategy: "failover", run: after(runOf(1), "h000", "h001"), want: 2},
		{
			name: "failover: from the start when it failed on all", strategy: "failover", want: 0,
			run: after(runOf(1), "h000", "h001", "h002", "h003"),
		},
		{
			name: "failover: the second time in order", strategy: "failover", want: 2,
			run: after(runOf(1), "h000", "h001", "h002", "h003", "h000", "h001"),
		},
		{name: "busy_transfer: the first with a free slot", strategy: "busy_transfer", change: func(h []Candidate) {
			h[0].Running, h[1].Running, h[2].Running = 8, 9, 7
		}, want: 2},
		{name: "busy_transfer: all busy", strategy: "busy_transfer", change: func(h []Candidate) {
			for i := range h {
				h[i].Running = 8
			}
			h[1].Credits, h[3].Credits = 20, 19
		}, want: 1},
		{name: "none is able", strategy: "first", change: func(h []Candidate) {
			for i := range h {
				h[i].Draining = true
			}
		}, want: -1},
	} {
		cands, run := fleet(4), c.run
		if c.change != nil {
			c.change(cands)
		}
		if run.Job == "" {
			run = runOf(1)
		}
		if got := routeOf(t, &apiv1.Routing{Strategy: c.strategy}).Pick(cands, run, c.state); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestPickAvoidsTheHostThatFailed(t *testing.T) {
	for _, s := range strategies {
		r := routeOf(t, &apiv1.Routing{Strategy: s})
		cands := fleet(3)
		at := r.Pick(cands, runOf(1), nil)
		run := after(runOf(1), cands[at].ID)
		run.Attempt = 0 // restore the attempt, on which random depends
		if got := r.Pick(cands, run, nil); got == at || got < 0 {
			t.Errorf("%s: after a failure on %d the run goes to %d", s, at, got)
		}
		alone := fleet(3)
		for i := range alone {
			alone[i].Draining = i != at
		}
		if got := r.Pick(alone, run, nil); got != at {
			t.Errorf("%s: the only able host is %d, the run goes to %d", s, at, got)
		}
	}
}

func TestAbleAndWhy(t *testing.T) {
	all := &apiv1.Routing{
		Hosts: []string{"name-of-h000", "h007"}, Labels: []string{"zone=a", "!old"}, MaxHosts: 2,
		MinFreeCpu: 0.25, MaxMemoryBytes: 300 << 20, MinFreeSlots: 3,
	}
	for _, c := range []struct {
		routing *apiv1.Routing
		change  func(*Candidate)
		hosts   int32
		want    string
	}{
		{nil, func(*Candidate) {}, 9, ""},
		{nil, func(c *Candidate) { c.Connected = false }, 0, "is not connected"},
		{nil, func(c *Candidate) { c.Draining = true }, 0, "is draining"},
		{nil, func(c *Candidate) { c.Cordoned, c.Name = true, "h1" }, 0, "is cordoned: `wheelwork host uncordon h1` ends that"},
		{nil, func(c *Candidate) { c.Serves = false }, 0, "does not serve app shop"},
		{nil, func(c *Candidate) { c.Credits, c.Running = 0, 8 }, 0, "has no free slot (8 of 8 busy) and its queue is full"},
		{nil, func(c *Candidate) { c.Credits, c.Running = 0, 80 }, 0, "has no free slot (8 of 8 busy) and its queue is full"},
		{nil, func(c *Candidate) { c.Credits, c.Running = 0, 5 }, 0, "takes no more tasks at the moment (5 of 8 slots busy)"},
		{nil, func(c *Candidate) { c.Running = 80 }, 0, ""},

		{all, func(*Candidate) {}, 1, ""},
		{all, func(c *Candidate) { c.ID, c.Name = "h007", "x" }, 1, ""},
		{all, func(c *Candidate) { c.ID, c.Name = "h008", "x" }, 0, "is not one of the designated hosts"},
		{all, func(c *Candidate) { c.Labels = map[string]string{"zone": "b"} }, 0, `has the label zone="b", the job wants zone=a`},
		{all, func(c *Candidate) { c.Labels = nil }, 0, "has no label zone, the job wants zone=a"},
		{all, func(c *Candidate) { c.Labels = map[string]string{"zone": "a", "old": "1"} }, 0, `has the label old="1", the job wants !old`},
		{all, func(*Candidate) {}, 2, "would be one host more: the job runs on 2 already, its max_hosts is 2"},
		{all, func(c *Candidate) { c.OfJob = 1 }, 2, ""},
		{all, func(c *Candidate) { c.Memory = 300<<20 - 1 }, 0, ""},
		{all, func(c *Candidate) { c.Memory = 300 << 20 }, 0, "uses 300 MiB of memory, the job wants less than 300 MiB"},
		{all, func(c *Candidate) { c.Memory = 400<<20 + 1<<19 }, 0, "uses 400.5 MiB of memory, the job wants less than 300 MiB"},
		{all, func(c *Candidate) { c.CPU = 0.75 }, 0, ""},
		{all, func(c *Candidate) { c.CPU = 0.9 }, 0, "leaves 10% of its processors idle, the job wants 25%"},
		{all, func(c *Candidate) { c.CPU = math.NaN() }, 0, "leaves NaN% of its processors idle, the job wants 25%"},
		{all, func(c *Candidate) { c.Running = 5 }, 0, ""},
		{all, func(c *Candidate) { c.Running = 6 }, 0, "has 2 free slots of 8, the job wants 3"},
		{all, func(c *Candidate) { c.Running = 60 }, 0, "has 0 free slots of 8, the job wants 3"},
		{all, func(c *Candidate) { c.Connected, c.Draining, c.Labels = false, true, nil }, 0, "is not connected"},
		{all, func(c *Candidate) { c.Labels, c.Memory = nil, 1<<40 }, 0, "has no label zone, the job wants zone=a"},
	} {
		cand := fleet(1)[0]
		cand.Labels = map[string]string{"zone": "a"}
		c.change(&cand)
		r := routeOf(t, c.routing)
		if got := r.Why("shop", &cand, c.hosts).Text(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if got := r.Able(&cand, c.hosts); got != (c.want == "") {
			t.Errorf("%q: able is %v", c.want, got)
		}
	}
}

func TestMaxHostsStaysOnTheHosts(t *testing.T) {
	cands := fleet(5)
	r := routeOf(t, &apiv1.Routing{MaxHosts: 2})
	for i := range 40 {
		at := r.Pick(cands, runOf(i), nil)
		if at < 0 {
			t.Fatalf("pick %d: none", i)
		}
		cands[at].OfJob++
		cands[at].Running++
	}
	for _, c := range cands {
		if n := HostsOfJob(cands); n != 2 || c.OfJob != 0 && c.OfJob != 20 {
			t.Errorf("40 runs went to %d hosts, want 20 each to 2: %+v", n, cands)
		}
	}
}

func TestRoutingErrors(t *testing.T) {
	for _, c := range []struct {
		m    *apiv1.Routing
		want string
	}{
		{&apiv1.Routing{Strategy: "fastest"}, `routing.strategy: "fastest" is not a strategy: use least_loaded, first, last, round_robin,`},
		{&apiv1.Routing{Key: "run"}, "routing.key goes with the strategy hash only"},
		{&apiv1.Routing{Strategy: "hash", Key: "day"}, `routing.key: "day" is neither job, input nor run`},
		{&apiv1.Routing{MaxHosts: -1}, "routing.max_hosts is negative"},
		{&apiv1.Routing{MinFreeSlots: -1}, "routing.min_free_slots is negative"},
		{&apiv1.Routing{MinFreeCpu: 1.5}, "routing.min_free_cpu is 1.5, it must be 0 to 1"},
		{&apiv1.Routing{MinFreeCpu: -0.1}, "routing.min_free_cpu is -0.1, it must be 0 to 1"},
		{&apiv1.Routing{MinFreeCpu: math.NaN()}, "routing.min_free_cpu is NaN, it must be 0 to 1"},
		{&apiv1.Routing{Hosts: []string{"a", ""}}, "routing.hosts: entry 2 is empty"},
		{&apiv1.Routing{Hosts: make([]string, 1001)}, "routing.hosts names 1001 hosts, the limit is 1000"},
		{&apiv1.Routing{Labels: make([]string, 65)}, "routing.labels has 65 conditions, the limit is 64"},
		{&apiv1.Routing{Labels: []string{"gpu", "zone="}}, `routing.labels: entry 2: "zone=", at character 6: a value is missing`},
	} {
		if _, err := New(c.m); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
}

func TestRoutingThatAsksForNothingIsNone(t *testing.T) {
	for _, m := range []*apiv1.Routing{nil, {}, {Strategy: "least_loaded"}} {
		if r := routeOf(t, m); r != nil {
			t.Errorf("%v: %+v", m, r)
		}
	}
	for _, m := range []*apiv1.Routing{
		{Strategy: "first"}, {Hosts: []string{"a"}}, {Labels: []string{"gpu"}}, {MaxHosts: 1}, {MinFreeCpu: 0.1}, {MaxMemoryBytes: 1}, {MinFreeSlots: 1},
	} {
		if routeOf(t, m) == nil {
			t.Errorf("%v is dropped", m)
		}
	}
}

// TestPickIsAble checks, for any hosts, routing and history, that the picked host is
// able, that -1 means that no host is able, that the result is deterministic, and that
// Pick modifies no argument.
func TestPickIsAble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cands := fleet(rapid.IntRange(0, 12).Draw(t, "hosts"))
		for i := range cands {
			c := &cands[i]
			c.Connected, c.Draining = rapid.IntRange(0, 5).Draw(t, "connected") > 0, rapid.IntRange(0, 5).Draw(t, "draining") == 0
			c.Serves = rapid.IntRange(0, 5).Draw(t, "serves") > 0
			c.Credits, c.Slots = rapid.Int64Range(0, 3).Draw(t, "credits"), rapid.Int32Range(0, 4).Draw(t, "slots")
			c.Running, c.OfJob = rapid.Int32Range(0, 6).Draw(t, "running"), rapid.Int32Range(0, 1).Draw(t, "of job")
			c.CPU, c.Memory = rapid.Float64Range(0, 1).Draw(t, "cpu"), rapid.Uint64Range(0, 9).Draw(t, "memory")
			c.Labels = map[string]string{"zone": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")}
		}
		m := &apiv1.Routing{
			Strategy:   rapid.SampledFrom(strategies[:]).Draw(t, "strategy"),
			MaxHosts:   rapid.Int32Range(0, 3).Draw(t, "max hosts"),
			MinFreeCpu: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "min free cpu"), MinFreeSlots: rapid.Int32Range(0, 1).Draw(t, "min free slots"),
			MaxMemoryBytes: rapid.Uint64Range(0, 9).Draw(t, "max memory"),
		}
		if rapid.Bool().Draw(t, "labelled") {
			m.Labels = []string{"zone=a"}
		}
		if rapid.IntRange(0, 3).Draw(t, "designated") == 0 {
			m.Hosts = []string{"h001", "name-of-h003", "h005"}
		}
		r, err := New(m)
		if err != nil {
			t.Fatal(err)
		}
		var state *State
		host := rapid.SampledFrom([]string{"h000", "h002", "h004", "h004x", "h011"})
		for range rapid.IntRange(0, 9).Draw(t, "starts") {
			state = r.Note(state, host.Draw(t, "start"))
		}
		run := runOf(rapid.IntRange(0, 99).Draw(t, "run"))
		for range rapid.IntRange(0, 4).Draw(t, "attempts") {
			run = after(run, host.Draw(t, "tried"))
		}
		before, remembered := slices.Clone(cands), fmt.Sprintf("%+v", state)

		at := r.Pick(cands, run, state)
		var able []int
		for i := range cands {
			if r.Able(&cands[i], HostsOfJob(cands)) {
				able = append(able, i)
			}
		}
		if at < 0 && len(able) > 0 || at >= 0 && !slices.Contains(able, at) {
			t.Fatalf("picked %d, able are %v", at, able)
		}
		if n := len(run.Failed); n > 0 && at >= 0 && cands[at].ID == run.Failed[n-1] && len(able) > 1 {
			t.Fatalf("picked %d, where the last attempt failed; able are %v", at, able)
		}
		if again := r.Pick(cands, run, state); again != at {
			t.Fatalf("picked %d, then %d", at, again)
		}
		if !reflect.DeepEqual(before, cands) || fmt.Sprintf("%+v", state) != remembered {
			t.Fatal("the pick changed what it was given")
		}
	})
}

// where returns the host of each key under a strategy that hashes.
func where(r *Route, cands []Candidate, keys int) map[int]string {
	m := map[int]string{}
	for k := range keys {
		m[k] = cands[r.Pick(cands, runOf(k), nil)].ID
	}
	return m
}

func TestHashMovesOnlyItsShare(t *testing.T) {
	const n, keys = 20, 10_000
	r := routeOf(t, &apiv1.Routing{Strategy: "hash", Key: "run"})
	cands := fleet(n)
	old := where(r, cands, keys)
	counts := map[string]int{}
	for _, h := range old {
		counts[h]++
	}
	for h, c := range counts {
		if c < keys/n*8/10 || c > keys/n*12/10 {
			t.Errorf("%s has %d of %d keys, want about %d", h, c, keys, keys/n)
		}
	}
	gone := slices.Delete(slices.Clone(cands), 7, 8)
	moved := 0
	for k, h := range where(r, gone, keys) {
		if h != old[k] {
			moved++
			if old[k] != cands[7].ID {
				t.Fatalf("key %d moved from %s to %s as %s went", k, old[k], h, cands[7].ID)
			}
		}
	}
	if moved != counts[cands[7].ID] || moved > keys*3/(2*n) {
		t.Errorf("one of %d hosts went: %d of %d keys moved, it had %d", n, moved, keys, counts[cands[7].ID])
	}
	moved = 0
	more := append(slices.Clone(cands), Candidate{ID: "new", Connected: true, Serves: true, Credits: 1, Slots: 1})
	for k, h := range where(r, more, keys) {
		if h != old[k] {
			moved++
			if h != "new" {
				t.Fatalf("key %d moved from %s to %s as new came", k, old[k], h)
			}
		}
	}
	if moved == 0 || moved > keys*3/(2*(n+1)) {
		t.Errorf("one host came to %d: %d of %d keys moved", n, moved, keys)
	}
}

func TestHashKeys(t *testing.T) {
	cands := fleet(50)
	same := func(key string, change func(i int, r *Run)) bool {
		r := routeOf(t, &apiv1.Routing{Strategy: "hash", Key: key})
		first := -1
		for i := range 20 {
			run := runOf(1)
			run.Input = given("in")
			change(i, &run)
			if at := r.Pick(cands, run, nil); i == 0 {
				first = at
			} else if at != first {
				return false
			}
		}
		return true
	}
	id := func(i int, r *Run) { r.ID = idOf(i) }
	input := func(i int, r *Run) { r.Input = given(fmt.Sprint("input ", i)) }
	name := func(i int, r *Run) { r.Job = fmt.Sprint("job ", i) }
	app := func(i int, r *Run) { r.App = fmt.Sprint("app ", i) }
	for _, c := range []struct {
		key    string
		what   string
		change func(int, *Run)
		want   bool
	}{
		{"", "run", id, true},
		{"job", "run", id, true},
		{"job", "input", input, true},
		{"job", "job", name, false},
		{"job", "app", app, false},
		{"input", "run", id, true},
		{"input", "input", input, false},
		{"input", "job", name, false},
		{"run", "run", id, false},
		{"run", "input", input, true},
	} {
		if got := same(c.key, c.change); got != c.want {
			t.Errorf("key %q: runs that differ in their %s go to one host: %v, want %v", c.key, c.what, got, c.want)
		}
	}
}

// TestHashIsForEver pins values: another release must map keys to the same hosts.
func TestHashIsForEver(t *testing.T) {
	for text, want := range map[string]uint64{
		"":                           0xe11889a2cd6c94f3,
		"a":                          0xbcc050e2f3015e5f,
		"12345678":                   0xa5171869c6e712c7,
		"01JD3ZK4M6Q8T0V2X4Z6B8D0F2": 0x1722a326324f4ed8,
	} {
		if got := hash64(1, text); got != want || hash64(1, []byte(text)) != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
}

func TestRandomIsEvenAndReproducible(t *testing.T) {
	const n, runs = 10, 10_000
	r := routeOf(t, &apiv1.Routing{Strategy: "random"})
	cands := fleet(n)
	counts := make([]int, n)
	again := 0
	for i := range runs {
		run := runOf(i)
		at := r.Pick(cands, run, nil)
		if r.Pick(cands, runOf(i), nil) != at {
			t.Fatal("the same question had two answers")
		}
		counts[at]++
		run.Attempt = 1
		if r.Pick(cands, run, nil) == at {
			again++
		}
	}
	for i, c := range counts {
		if c < runs/n*9/10 || c > runs/n*11/10 {
			t.Errorf("host %d got %d of %d runs", i, c, runs)
		}
	}
	if again < runs/n*8/10 || again > runs/n*12/10 {
		t.Errorf("%d of %d second attempts went where the first did, want about one in %d", again, runs, n)
	}
}

// start picks a host and updates the state.
func start(t testing.TB, r *Route, cands []Candidate, n int, s *State) (int, *State) {
	t.Helper()
	at := r.Pick(cands, runOf(n), s)
	if at < 0 {
		t.Fatalf("pick %d: no host", n)
	}
	return at, r.Note(s, cands[at].ID)
}

// TestTurnsAreFair checks that of ten hosts, seven always connected ones get the same
// number of runs at any time, and three others that come and go get no run out of turn.
func TestTurnsAreFair(t *testing.T) {
	for _, strategy := range []string{"round_robin", "lru"} {
		r := routeOf(t, &apiv1.Routing{Strategy: strategy})
		var s *State
		counts := make([]int, 10)
		for i := range 10_000 {
			cands := fleet(10)
			cands[0].Connected = i%7 < 3
			cands[4].Draining = i%13 < 6
			cands[9].Credits = int64(i / 100 % 2)
			var at int
			at, s = start(t, r, cands, i, s)
			counts[at]++
			stay := slices.Concat(counts[1:4], counts[5:9])
			if slices.Max(stay)-slices.Min(stay) > 1 {
				t.Fatalf("%s, run %d: %v", strategy, i, counts)
			}
			if slices.Max(counts) > slices.Max(stay)+1 {
				t.Fatalf("%s, run %d: a host that comes and goes is before its turn: %v", strategy, i, counts)
			}
		}
		if slices.Min(counts) < 300 {
			t.Errorf("%s: a host that comes and goes is left out: %v", strategy, counts)
		}
	}
}

func TestLFUIsFairAndFloodsNone(t *testing.T) {
	r := routeOf(t, &apiv1.Routing{Strategy: "lfu"})
	cands := fleet(10)
	cands[3].Connected = false // connects later
	var s *State
	counts := make([]int, 10)
	for i := range 9000 {
		var at int
		at, s = start(t, r, cands, i, s)
		counts[at]++
	}
	for i, c := range counts {
		if want := 1000; i == 3 && c != 0 || i != 3 && c != want {
			t.Fatalf("host %d got %d runs, want %d: %v", i, c, want, counts)
		}
	}
	cands[3].Connected = true
	cands[5].Credits = 0 // unavailable for a while
	clear(counts)
	for i := range 1000 {
		var at int
		at, s = start(t, r, cands, i, s)
		counts[at]++
	}
	// Each of the other hosts may have been one run behind before, and one ahead now.
	if more := counts[3] - counts[0]; more > maxDebt+2 || more < maxDebt-2 {
		t.Errorf("a host that is new gets %d runs more than others, want about %d: %v", more, maxDebt, counts)
	}
	if counts[5] != 0 {
		t.Fatalf("a host without credits got %d runs", counts[5])
	}
	cands[5].Credits = 1
	clear(counts)
	for i := range 1000 {
		var at int
		at, s = start(t, r, cands, i, s)
		counts[at]++
	}
	if more := counts[5] - counts[0]; more > maxDebt+2 || more < maxDebt-2 {
		t.Errorf("a host that is back gets %d runs more than others, want about %d: %v", more, maxDebt, counts)
	}
}

// TestStateIsBounded checks that with more hosts than the limit, the state stays at its
// limit and sorted, and the runs are still spread evenly.
func TestStateIsBounded(t *testing.T) {
	const hosts, rounds = MaxUses + 100, 3
	for _, strategy := range []string{"round_robin", "lfu", "lru"} {
		r := routeOf(t, &apiv1.Routing{Strategy: strategy})
		cands := fleet(hosts)
		counts := make([]int, hosts)
		var s *State
		for i := range hosts * rounds {
			var at int
			at, s = start(t, r, cands, i, s)
			counts[at]++
		}
		if slices.Max(counts) != rounds || slices.Min(counts) != rounds {
			t.Errorf("%s: hosts got %d to %d runs, want %d each", strategy, slices.Min(counts), slices.Max(counts), rounds)
		}
		want := MaxUses
		if strategy == "round_robin" {
			want = 0
		}
		if len(s.Uses) != want || !slices.IsSortedFunc(s.Uses, func(a, b Use) int { return strings.Compare(a.Host, b.Host) }) {
			t.Errorf("%s: %d hosts are remembered, want %d, sorted", strategy, len(s.Uses), want)
		}
	}
}

func TestNote(t *testing.T) {
	note := func(s *State, strategy string, hosts ...string) *State {
		for _, h := range hosts {
			s = routeOf(t, &apiv1.Routing{Strategy: strategy}).Note(s, h)
		}
		return s
	}
	lfu := &State{LastHost: "b", Seq: 4, Uses: []Use{{"a", 1, 2}, {"b", 3, 4}}}
	for _, c := range []struct {
		name string
		got  *State
		want *State
	}{
		{"default", note(nil, "", "a"), nil},
		{"first", note(nil, "first", "a"), nil},
		{"round_robin", note(nil, "round_robin", "a", "b"), &State{LastHost: "b"}},
		{"lfu", note(nil, "lfu", "b", "a", "b", "b"), lfu},
		{"lru", note(nil, "lru", "b", "a", "b", "b"), lfu},
		{"from lfu to round_robin", note(note(nil, "lfu", "b", "a"), "round_robin", "c"), &State{LastHost: "c"}},
		{"from lfu to hash", note(note(nil, "lfu", "b", "a"), "hash", "c"), nil},
		{
			"lfu takes up a host that is behind near the others",
			note(&State{Seq: 99, Uses: []Use{{"a", 90, 99}, {"b", 2, 3}}}, "lfu", "b"),
			&State{LastHost: "b", Seq: 100, Uses: []Use{{"a", 90, 99}, {"b", 90 - maxDebt + 1, 100}}},
		},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
	for _, s := range strategies {
		r := routeOf(t, &apiv1.Routing{Strategy: s})
		if keeps := r.Note(nil, "a") != nil; keeps != r.Remembers() {
			t.Errorf("%s: remembers is %v, but a state is kept: %v", s, r.Remembers(), keeps)
		}
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	cands := fleet(16)
	run := runOf(1)
	for _, strategy := range strategies {
		r := routeOf(t, &apiv1.Routing{Strategy: strategy})
		_, s := start(t, r, cands, 1, nil)
		if n := testing.AllocsPerRun(100, func() { r.Pick(cands, run, s) }); n != 0 {
			t.Errorf("%s: %v allocations a pick", strategy, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{16, 1000} {
		cands := fleet(n)
		for i := range cands {
			c := &cands[i]
			c.ID = fmt.Sprintf("%026d", i) // as long as real ids, and sorted
			c.Labels = map[string]string{"zone": "a", "os": "linux", "arch": "amd64"}
			c.Running = int32(i % 8)
		}
		cands[n-1].Labels = map[string]string{"zone": "a", "rare": ""}
		routings := map[string]*apiv1.Routing{
			"labels":            {Labels: []string{"zone in (a, b)", "!old"}},
			"label of the last": {Labels: []string{"rare"}},
			"limits":            {MaxHosts: int32(n), MinFreeCpu: 0.1, MaxMemoryBytes: 1 << 30, MinFreeSlots: 1},
		}
		for _, s := range strategies {
			routings[s] = &apiv1.Routing{Strategy: s}
		}
		for _, name := range slices.Sorted(maps.Keys(routings)) {
			r := routeOf(b, routings[name])
			var s *State
			for i := range cands {
				s = r.Note(s, cands[i].ID)
			}
			run := runOf(1)
			b.Run(fmt.Sprintf("%s/hosts=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if r.Pick(cands, run, s) < 0 {
						b.Fatal("no host")
					}
				}
			})
		}
	}
}

func BenchmarkNote(b *testing.B) {
	r := routeOf(b, &apiv1.Routing{Strategy: "lfu"})
	cands := fleet(1000)
	var s *State
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s = r.Note(s, cands[i%len(cands)].ID)
	}
}

// TestEqualHostsShare checks that least_loaded gives idle hosts equal shares.
func TestEqualHostsShare(t *testing.T) {
	hosts := make([]Candidate, 4)
	for i := range hosts {
		hosts[i] = Candidate{ID: string(rune('a' + i)), Connected: true, Serves: true, Credits: 16, Slots: 4}
	}
	route, err := New(&apiv1.Routing{Strategy: "least_loaded", Hosts: []string{"a", "b", "c", "d"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Route{nil, route} {
		var got [4]int
		for i := range 4000 {
			got[r.Pick(hosts, runOf(i), nil)]++
		}
		for i, n := range got {
			if n < 900 || n > 1100 {
				t.Errorf("host %d got %d of 4000 runs", i, n)
			}
		}
	}
}
