package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// old is a time so long ago that no dwell time applies.
var old = t0.Add(-time.Hour)

// part returns a partition with a rate.
func part(name, owner string, rate float64, hosts int) Partition {
	return Partition{Name: name, Owner: owner, Hosts: hosts, Rate: rate, Since: old}
}

func servers(ids ...string) (s []Server) {
	for _, id := range ids {
		s = append(s, Server{ID: id})
	}
	return s
}

func moves(d Decision) string { return fmt.Sprint(d.Moves) }

func TestDecide(t *testing.T) {
	busy := func(owner string, n int, rate float64) (s []Partition) {
		for i := range n {
			s = append(s, part(fmt.Sprintf("%s%02d", owner, i), owner, rate, 0))
		}
		return s
	}
	far := part("x", "", 10, 5)
	far.Zone = "z2"
	settling := busy("a", 4, 10)
	for i := range settling {
		settling[i].Since = t0.Add(-time.Second)
	}
	moving := part("x", "a", 10, 1)
	moving.To = "b"
	toLost := moving
	toLost.To = "gone"
	broken := []Partition{part("x", "a", math.NaN(), -5), part("y", "a", math.Inf(1), 0), part("z", "a", -7, 0)}
	for _, c := range []struct {
		name    string
		servers []Server
		parts   []Partition
		want    string
	}{
		{"nobody", nil, busy("a", 2, 1), "[]"},
		{"nothing", servers("a", "b"), nil, "[]"},
		{"a new one goes to the one with the smallest count", servers("a", "b"), append(busy("a", 1, 10), part("x", "", 1, 0)), "[x:  -> b]"},
		{"by name among equals", servers("b", "a"), []Partition{part("x", "", 1, 0)}, "[x:  -> a]"},
		{"the heaviest first, to different ones", servers("a", "b"), []Partition{part("x", "", 1, 0), part("y", "", 5, 0), part("z", "", 3, 0)}, "[y:  -> a z:  -> b x:  -> b]"},
		{"what a lost server owned", servers("a"), busy("lost", 2, 1), "[lost00:  -> a lost01:  -> a]"},
		{"by weight", []Server{{ID: "a", Capacity: 1}, {ID: "b", Capacity: 4}}, append(append(busy("a", 1, 10), busy("b", 3, 10)...), part("x", "", 1, 0)), "[x:  -> b]"},
		{"by round trip", []Server{{ID: "a", Trip: 200 * time.Millisecond}, {ID: "b"}}, []Partition{part("x", "", 1, 0)}, "[x:  -> b]"},
		{"by zone", []Server{{ID: "a", Zone: "z1"}, {ID: "b", Zone: "z2"}}, []Partition{far}, "[x:  -> b]"},
		{"a weight that is none", []Server{{ID: "a", Capacity: math.NaN(), Trip: -5}, {ID: "b", Capacity: math.Inf(1)}}, []Partition{part("x", "", 1, 0)}, "[x:  -> a]"},
		{"an idle newcomer is used at once", servers("a", "b"), busy("a", 4, 10), "[a00: a -> b a01: a -> b]"},
		{"what has just arrived stays", servers("a", "b"), settling, "[]"},
		{"within the tolerance nothing moves", servers("a", "b"), append(busy("a", 8, 10), busy("b", 7, 10)...), "[]"},
		{"a move under way is not made again", servers("a", "b"), []Partition{moving}, "[]"},
		{"unless its end is lost", servers("a", "b"), []Partition{toLost, part("y", "b", 10, 1)}, "[]"},
		{"drain", []Server{{ID: "a", Draining: true}, {ID: "b"}, {ID: "c"}}, append(busy("a", 2, 10), busy("b", 1, 5)...), "[a00: a -> c a01: a -> b]"},
		{"drain of what has just arrived", []Server{{ID: "a", Draining: true}, {ID: "b"}}, settling[:1], "[a00: a -> b]"},
		{"drain of the last one", []Server{{ID: "a", Draining: true}}, busy("a", 2, 10), "[]"},
		{"rates that are none", servers("a", "b"), append(broken, part("v", "b", 0.1, 0), part("w", "b", 0.1, 0)), "[]"},
	} {
		if got := moves(Decide(Config{}, State{c.servers, c.parts}, t0)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// world applies decisions to a state, as servers do.
type world struct {
	State
	rng     *rand.Rand
	now     time.Time
	moved   int
	movedAt map[string]time.Time
}

func (w *world) index() map[string]int {
	m := make(map[string]int, len(w.Partitions))
	for i := range w.Partitions {
		m[w.Partitions[i].Name] = i
	}
	return m
}

func (w *world) apply(t *testing.T, d Decision, settle time.Duration) {
	t.Helper()
	if d.Empty() {
		return
	}
	at := w.index()
	draining := map[string]bool{}
	for _, s := range w.Servers {
		draining[s.ID] = s.Draining
	}
	for _, m := range d.Moves {
		s := &w.Partitions[at[m.Partition]]
		if m.From == m.To || m.From != "" && s.Owner != m.From {
			t.Fatalf("%v, which is owned by %q", m, s.Owner)
		}
		if last, ok := w.movedAt[m.Partition]; ok && w.now.Sub(last) < settle && !draining[m.From] && slices.ContainsFunc(w.Servers, func(s Server) bool { return s.ID == m.From }) {
			t.Fatalf("%v was moved %v ago", m, w.now.Sub(last))
		}
		s.Owner, s.Since, w.movedAt[m.Partition] = m.To, w.now, w.now
		w.moved++
	}
}

// counts returns the largest and the smallest count of a server, as shares of the even
// count.
func (w *world) counts() (most, least float64) {
	d := &decider{Config: Config{}.withDefaults(len(w.Servers)), now: w.now, byID: map[string]*serverState{}}
	d.serversOf(w.Servers)
	d.partitionsOf(w.Partitions)
	least = math.Inf(1)
	for _, s := range d.heap {
		most, least = max(most, s.count()/d.even), min(least, s.count()/d.even)
	}
	return most, least
}

func (w *world) hosts() (n int) {
	for i := range w.Partitions {
		n += w.Partitions[i].Hosts
	}
	return n
}

// large returns an installation of n servers and a thousand times as many hosts, with
// skew: a few partitions have many of the hosts and schedules.
func large(seed uint64, n int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: t0, movedAt: map[string]time.Time{}}
	for i := range n {
		w.Servers = append(w.Servers, Server{ID: fmt.Sprintf("s%04d", i), Zone: fmt.Sprint("z", i%3), Capacity: []float64{1, 1, 1, 2}[i%4]})
	}
	want := n * 1000
	for i := 0; want > 0; i++ {
		hosts := min(want, max(1, int(float64(n)*0.3/math.Pow(float64(i%2000+1), 0.4))))
		if i >= 2000 {
			hosts = min(want, 50+w.rng.IntN(100))
		}
		want -= hosts
		s := Partition{Name: fmt.Sprint("p", i), Hosts: hosts, Zone: fmt.Sprint("z", i%3), Rate: float64(hosts) * (0.5 + w.rng.Float64()), Since: old}
		w.Partitions = append(w.Partitions, s)
	}
	return w
}

// settle decides every second until nothing is left to change.
func (w *world) settle(t *testing.T, most int) (rounds int) {
	t.Helper()
	quiet := 0
	for ; rounds < most; rounds++ {
		w.fresh(0)
		d := Decide(Config{}, w.State, w.now)
		if w.apply(t, d, 20*time.Second); !d.Empty() {
			quiet = 0
			w.now = w.now.Add(time.Second)
			continue
		}
		if quiet++; quiet == 2 {
			return rounds
		}
		w.now = w.now.Add(21 * time.Second) // check that nothing waits for its dwell time
	}
	return rounds
}

// fresh sets new reports of all rates, with some noise.
func (w *world) fresh(noise float64) {
	for i := range w.Partitions {
		w.Partitions[i].Rate *= 1 + noise*(2*w.rng.Float64()-1)
	}
}

func (w *world) owned(t *testing.T) {
	t.Helper()
	up := map[string]bool{}
	for _, s := range w.Servers {
		up[s.ID] = !s.Draining
	}
	for _, s := range w.Partitions {
		if !up[s.Owner] {
			t.Fatalf("%s is owned by %q", s.Name, s.Owner)
		}
	}
}

func (w *world) even(t *testing.T, when string) {
	t.Helper()
	most, least := w.counts()
	t.Logf("%s: %d partitions, from %.2f to %.2f of even, %d moved so far", when, len(w.Partitions), least, most, w.moved)
	if most > 1.25 || least < 0.75 {
		t.Errorf("%s: from %.2f to %.2f of even", when, least, most)
	}
}

// TestSimulation: a thousand servers, a million hosts, churn and skew.
func TestSimulation(t *testing.T) {
	w := large(7, 1000)
	if w.hosts() != 1_000_000 {
		t.Fatalf("%d hosts", w.hosts())
	}
	first := Decide(Config{}, w.State, w.now)
	w.apply(t, first, 0)
	w.owned(t)
	if limit := 40 * (len(w.Partitions) + len(w.Servers)) * 10; first.work > limit {
		t.Errorf("the first decision took %d steps, more than %d", first.work, limit)
	}
	rounds := w.settle(t, 600)
	t.Logf("settled after %d seconds", rounds)
	w.owned(t)
	w.even(t, "settled")

	// Noise moves little.
	before := w.moved
	for range 30 {
		w.now = w.now.Add(time.Second)
		w.fresh(0.01)
		d := Decide(Config{}, w.State, w.now)
		w.apply(t, d, 20*time.Second)
	}
	if n := w.moved - before; n > 60 {
		t.Errorf("noise moved %d partitions", n)
	}
	w.settle(t, 300)

	// Ten servers are lost. Their partitions get owners at once, and few others move.
	gone := map[string]bool{}
	for range 10 {
		i := w.rng.IntN(len(w.Servers))
		gone[w.Servers[i].ID] = true
		w.Servers = slices.Delete(w.Servers, i, i+1)
	}
	lost := 0
	for _, s := range w.Partitions {
		if gone[s.Owner] {
			lost++
		}
	}
	before = w.moved
	w.fresh(0)
	d := Decide(Config{}, w.State, w.now)
	if bound := lost + 4 + len(w.Servers)/20; len(d.Moves) > bound {
		t.Errorf("%d moves for %d partitions without an owner", len(d.Moves), lost)
	}
	w.apply(t, d, 20*time.Second)
	w.owned(t)
	w.settle(t, 300)
	w.even(t, "after ten were lost")
	if n := w.moved - before; n > 3*lost+100 {
		t.Errorf("%d moves after %d partitions lost their owner", n, lost)
	}

	// Twenty idle servers join. They are used at once and get their share and no more.
	for i := range 20 {
		w.Servers = append(w.Servers, Server{ID: fmt.Sprint("new", i), Zone: fmt.Sprint("z", i%3)})
	}
	before = w.moved
	w.fresh(0)
	d = Decide(Config{}, w.State, w.now)
	used := map[string]bool{}
	for _, m := range d.Moves {
		used[m.To] = true
	}
	for i := range 20 {
		if !used[fmt.Sprint("new", i)] {
			t.Errorf("new%d is not used at once", i)
		}
	}
	w.apply(t, d, 20*time.Second)
	w.settle(t, 300)
	w.even(t, "after twenty were added")
	share := len(w.Partitions) * 20 / len(w.Servers)
	if n := w.moved - before; n > 3*share {
		t.Errorf("%d moves to give twenty servers their share, about %d", n, share)
	}

	// Five are drained.
	for i := range 5 {
		w.Servers[i*7].Draining = true
	}
	w.settle(t, 300)
	w.owned(t)
	w.even(t, "after five were drained")

	// Some partitions become hot.
	for i := range 30 {
		w.Partitions[2000+i*40].Rate *= 4
	}
	w.settle(t, 600)
	w.owned(t)
	w.even(t, "with hot partitions")
}

// TestThirdServer joins a third, idle server: it owns its share within 30 s, and when it is
// gone the others own all.
func TestThirdServer(t *testing.T) {
	w := &world{State: State{Servers: servers("a", "b")}, now: t0, movedAt: map[string]time.Time{}, rng: rand.New(rand.NewPCG(1, 1))}
	for i := range 10 {
		w.Partitions = append(w.Partitions, part(fmt.Sprint("app", i), []string{"a", "b"}[i%2], 100, 4))
	}
	w.settle(t, 200)
	w.even(t, "two")
	w.Servers = servers("a", "b", "c")
	for range 30 {
		w.fresh(0)
		w.apply(t, Decide(Config{}, w.State, w.now), 20*time.Second)
		w.now = w.now.Add(time.Second)
	}
	w.even(t, "three, after 30 s")
	w.settle(t, 200)
	w.Servers = servers("a", "b")
	w.settle(t, 200)
	w.owned(t)
	w.even(t, "two again")
}

// TestOrderDoesNotMatter: a decision does not depend on the order of the slices in the
// state.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(20) {
		w := large(seed, 12)
		if seed%2 == 0 {
			w.apply(t, Decide(Config{}, w.State, w.now), 0)
			w.now = w.now.Add(time.Minute)
			w.Servers = w.Servers[2:]
		}
		want := moves(Decide(Config{}, w.State, w.now))
		for range 5 {
			w.rng.Shuffle(len(w.Partitions), func(i, j int) { w.Partitions[i], w.Partitions[j] = w.Partitions[j], w.Partitions[i] })
			w.rng.Shuffle(len(w.Servers), func(i, j int) { w.Servers[i], w.Servers[j] = w.Servers[j], w.Servers[i] })
			if got := moves(Decide(Config{}, w.State, w.now)); got != want {
				t.Fatalf("seed %d: %.300s\nand %.300s", seed, got, want)
			}
		}
	}
}

// TestLostDecision: a decision that was not carried out is made again.
func TestLostDecision(t *testing.T) {
	w := large(3, 12)
	asked := func(d Decision) (names []string) {
		for _, m := range d.Moves {
			names = append(names, m.Partition)
		}
		slices.Sort(names)
		return names
	}
	a, b := asked(Decide(Config{}, w.State, w.now)), asked(Decide(Config{}, w.State, w.now.Add(time.Second)))
	if len(a) != len(w.Partitions) || !slices.Equal(a, b) {
		t.Fatalf("%d of %d partitions got a server, then %d", len(a), len(w.Partitions), len(b))
	}
}

// TestBudget: a decision stays within its limit of moves, except for partitions without an
// owner.
func TestBudget(t *testing.T) {
	var parts []Partition
	for i := range 40 {
		parts = append(parts, part(fmt.Sprintf("x%02d", i), "a", 10, 0))
	}
	for name, c := range map[string]struct {
		servers []Server
		want    int
	}{
		"level":    {servers("a", "b"), 3},
		"drain":    {[]Server{{ID: "a", Draining: true}, {ID: "b"}}, 3},
		"homeless": {servers("b"), 40},
	} {
		if d := Decide(Config{MaxMoves: 3}, State{c.servers, parts}, t0); len(d.Moves) != c.want {
			t.Errorf("%s: %d moves, want %d", name, len(d.Moves), c.want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	w := large(7, 1000)
	run := func(name string, s State, now time.Time) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Decide(Config{}, s, now)
			}
		})
	}
	run("first", w.State, w.now)
	t := &testing.T{}
	w.apply(t, Decide(Config{}, w.State, w.now), 0)
	w.settle(t, 600)
	run("settled", w.State, w.now)
	w.Servers = w.Servers[50:]
	run("fifty lost", w.State, w.now)
}
