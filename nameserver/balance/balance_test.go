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

func flat(rate float64) (r [Slots]float64) {
	for i := range r {
		r[i] = rate / Slots
	}
	return r
}

// sub returns an app in one piece with a rate.
func sub(id, owner string, rate float64, hosts int) SubApp {
	return SubApp{App: id, ID: id, Slots: 0xffff, Owner: owner, Hosts: hosts, Rates: flat(rate), At: t0, Since: old}
}

func servers(ids ...string) (s []Server) {
	for _, id := range ids {
		s = append(s, Server{ID: id})
	}
	return s
}

func moves(d Decision) string { return fmt.Sprint(d.Moves, d.Splits, d.Merges) }

func TestDecide(t *testing.T) {
	busy := func(owner string, n int, rate float64) (s []SubApp) {
		for i := range n {
			s = append(s, sub(fmt.Sprintf("%s%02d", owner, i), owner, rate, 0))
		}
		return s
	}
	far := sub("x", "", 10, 5)
	far.Zone = "z2"
	stale := busy("a", 4, 10)
	for i := range stale {
		stale[i].At = t0.Add(-10 * time.Minute) // measured long ago, so its rate has decayed to nothing
	}
	settling := busy("a", 4, 10)
	for i := range settling {
		settling[i].Since = t0.Add(-time.Second)
	}
	moving := sub("x", "a", 10, 1)
	moving.To = "b"
	toLost := moving
	toLost.To = "gone"
	many := sub("x", "a", 0, 101)
	hundred := sub("x", "a", 0, 100)
	whole := sub("x", "a", 0, 1000)
	whole.Slots = 1 << 3
	oneHot := sub("x", "a", 0, 200)
	oneHot.Rates = [Slots]float64{}
	oneHot.Rates[5] = 10
	broken := sub("x", "a", 0, -5)
	broken.Rates[0], broken.Rates[1], broken.Rates[2] = math.NaN(), math.Inf(1), -7
	halves := func(hosts int, since time.Time) []SubApp {
		l, r := sub("x.0", "a", 1, hosts), sub("x.1", "a", 1, hosts)
		l.App, r.App, l.Slots, r.Slots, l.Since, r.Since = "x", "x", 0x00ff, 0xff00, since, since
		return []SubApp{l, r}
	}
	for _, c := range []struct {
		name    string
		servers []Server
		subs    []SubApp
		want    string
	}{
		{"nobody", nil, busy("a", 2, 1), "[] [] []"},
		{"nothing", servers("a", "b"), nil, "[] [] []"},
		{"a new one goes to the one with the smallest count", servers("a", "b"), append(busy("a", 1, 10), sub("x", "", 1, 0)), "[x:  -> b] [] []"},
		{"by name among equals", servers("b", "a"), []SubApp{sub("x", "", 1, 0)}, "[x:  -> a] [] []"},
		{"the heaviest first, to different ones", servers("a", "b"), []SubApp{sub("x", "", 1, 0), sub("y", "", 5, 0), sub("z", "", 3, 0)}, "[y:  -> a z:  -> b x:  -> b] [] []"},
		{"what a lost server owned", servers("a"), busy("lost", 2, 1), "[lost00:  -> a lost01:  -> a] [] []"},
		{"by weight", []Server{{ID: "a", Capacity: 1}, {ID: "b", Capacity: 4}}, append(append(busy("a", 1, 10), busy("b", 3, 10)...), sub("x", "", 1, 0)), "[x:  -> b] [] []"},
		{"by round trip", []Server{{ID: "a", Trip: 200 * time.Millisecond}, {ID: "b"}}, []SubApp{sub("x", "", 1, 0)}, "[x:  -> b] [] []"},
		{"by zone", []Server{{ID: "a", Zone: "z1"}, {ID: "b", Zone: "z2"}}, []SubApp{far}, "[x:  -> b] [] []"},
		{"a weight that is none", []Server{{ID: "a", Capacity: math.NaN(), Trip: -5}, {ID: "b", Capacity: math.Inf(1)}}, []SubApp{sub("x", "", 1, 0)}, "[x:  -> a] [] []"},
		{"an idle newcomer is used at once", servers("a", "b"), busy("a", 4, 10), "[a00: a -> b a01: a -> b] [] []"},
		{"what has just arrived stays", servers("a", "b"), settling, "[] [] []"},
		{"within the tolerance nothing moves", servers("a", "b"), append(busy("a", 8, 10), busy("b", 7, 10)...), "[] [] []"},
		{"rates decay", servers("a", "b"), append(stale, busy("b", 3, 2)...), "[b00: b -> a] [] []"},
		{"a move under way is not made again", servers("a", "b"), []SubApp{moving}, "[] [] []"},
		{"unless its end is lost", servers("a", "b"), []SubApp{toLost, sub("y", "b", 10, 1)}, "[] [] []"},
		{"drain", []Server{{ID: "a", Draining: true}, {ID: "b"}, {ID: "c"}}, append(busy("a", 2, 10), busy("b", 1, 5)...), "[a00: a -> c a01: a -> b] [] []"},
		{"drain of what has just arrived", []Server{{ID: "a", Draining: true}, {ID: "b"}}, settling[:1], "[a00: a -> b] [] []"},
		{"drain of the last one", []Server{{ID: "a", Draining: true}}, busy("a", 2, 10), "[] [] []"},
		{"a split by hosts", servers("a", "b"), []SubApp{many}, "[] [x splits 1010101010101010 to b] []"},
		{"not at the limit", servers("a"), []SubApp{hundred}, "[] [] []"},
		{"on one server as well", servers("a"), []SubApp{many}, "[] [x splits 1010101010101010 to a] []"},
		{"one slot cannot be split", servers("a"), []SubApp{whole}, "[] [] []"},
		{"the hot slot alone", servers("a"), []SubApp{oneHot}, "[] [x splits 1111111111011111 to a] []"},
		{"a hot app", servers("a", "b", "c"), []SubApp{sub("x", "a", 1000, 3), sub("y", "b", 100, 3), sub("z", "c", 100, 3)}, "[y: b -> c] [x splits 1010101010101010 to b] []"},
		{"hot beside nothing", servers("a", "b", "c"), []SubApp{sub("x", "a", 40, 3)}, "[] [] []"},
		{"too much for one server", servers("a"), []SubApp{sub("x", "a", 10_001, 3)}, "[] [x splits 1010101010101010 to a] []"},
		{"rates that are none", servers("a"), []SubApp{broken}, "[] [] []"},
		{"small halves", servers("a"), halves(20, old), "[] [] [x.1 joins x.0]"},
		{"not yet", servers("a"), halves(20, t0.Add(-9*time.Minute)), "[] [] []"},
		{"not as small as that", servers("a"), halves(30, old), "[] [] []"},
	} {
		if got := moves(Decide(Config{}, State{c.servers, c.subs}, t0)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// world applies decisions to a state, as servers do.
type world struct {
	State
	rng     *rand.Rand
	now     time.Time
	names   int
	moved   int
	movedAt map[string]time.Time
}

func (w *world) find(id string) *SubApp {
	return &w.Subs[slices.IndexFunc(w.Subs, func(s SubApp) bool { return s.ID == id })]
}

func (w *world) index() map[string]int {
	m := make(map[string]int, len(w.Subs))
	for i := range w.Subs {
		m[w.Subs[i].ID] = i
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
		s := &w.Subs[at[m.Sub]]
		if m.From == m.To || m.From != "" && s.Owner != m.From {
			t.Fatalf("%v, which is owned by %q", m, s.Owner)
		}
		if last, ok := w.movedAt[m.Sub]; ok && w.now.Sub(last) < settle && !draining[m.From] && slices.ContainsFunc(w.Servers, func(s Server) bool { return s.ID == m.From }) {
			t.Fatalf("%v was moved %v ago", m, w.now.Sub(last))
		}
		s.Owner, s.Since, w.movedAt[m.Sub] = m.To, w.now, w.now
		w.moved++
	}
	for _, x := range d.Splits {
		s := &w.Subs[at[x.Sub]]
		if x.Slots == 0 || x.Slots&^s.Slots != 0 || x.Slots == s.Slots {
			t.Fatalf("%v, which has %016b", x, s.Slots)
		}
		part := *s
		w.names++
		part.ID = fmt.Sprintf("%s.%d", s.App, w.names)
		part.Slots, part.Owner, part.Hosts, part.Since = x.Slots, x.To, s.Hosts/2, w.now
		s.Slots &^= x.Slots
		s.Hosts -= part.Hosts
		s.Since = w.now
		w.Subs = append(w.Subs, part)
	}
	if len(d.Merges) == 0 {
		return
	}
	at = w.index()
	for _, m := range d.Merges {
		from, into := w.Subs[at[m.Sub]], &w.Subs[at[m.Into]]
		if from.App != into.App || from.Slots&into.Slots != 0 {
			t.Fatalf("%v: %s and %s", m, from.App, into.App)
		}
		for i := range Slots {
			if from.Slots>>i&1 == 1 {
				into.Rates[i] = from.Rates[i]
			}
		}
		into.Slots |= from.Slots
		into.Hosts += from.Hosts
		into.Since = w.now
		w.Subs = slices.Delete(w.Subs, at[m.Sub], at[m.Sub]+1)
		at = w.index()
	}
}

// counts returns the largest and the smallest count of a server, as shares of the even
// count.
func (w *world) counts() (most, least float64) {
	d := &decider{Config: Config{}.withDefaults(len(w.Servers)), now: w.now, byID: map[string]*serverState{}}
	d.serversOf(w.Servers)
	d.subsOf(w.Subs)
	least = math.Inf(1)
	for _, s := range d.heap {
		most, least = max(most, s.count()/d.even), min(least, s.count()/d.even)
	}
	return most, least
}

func (w *world) hosts() (n int) {
	for i := range w.Subs {
		n += w.Subs[i].Hosts
	}
	return n
}

// large returns an installation of n servers and a thousand times as many hosts, with
// skew: a few apps have very many of the hosts and most of the schedules.
func large(seed uint64, n int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: t0, movedAt: map[string]time.Time{}}
	for i := range n {
		w.Servers = append(w.Servers, Server{ID: fmt.Sprintf("s%04d", i), Zone: fmt.Sprint("z", i%3), Capacity: []float64{1, 1, 1, 2}[i%4]})
	}
	want := n * 1000
	for i := 0; want > 0; i++ {
		hosts := min(want, max(1, int(float64(n)*1.5/math.Pow(float64(i%2000+1), 0.7))))
		if i >= 2000 {
			hosts = min(want, 50+w.rng.IntN(100))
		}
		want -= hosts
		s := SubApp{App: fmt.Sprint("app", i), ID: fmt.Sprint("app", i, ".0"), Slots: 0xffff, Hosts: hosts, Zone: fmt.Sprint("z", i%3), At: w.now, Since: old}
		for k := range s.Rates {
			s.Rates[k] = float64(hosts) * w.rng.ExpFloat64() / 8
		}
		w.Subs = append(w.Subs, s)
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
	for i := range w.Subs {
		w.Subs[i].At = w.now
		for k := range w.Subs[i].Rates {
			w.Subs[i].Rates[k] *= 1 + noise*(2*w.rng.Float64()-1)
		}
	}
}

func (w *world) owned(t *testing.T) {
	t.Helper()
	up := map[string]bool{}
	for _, s := range w.Servers {
		up[s.ID] = !s.Draining
	}
	slots := map[string]uint16{}
	for _, s := range w.Subs {
		if !up[s.Owner] {
			t.Fatalf("%s is owned by %q", s.ID, s.Owner)
		}
		if slots[s.App]&s.Slots != 0 {
			t.Fatalf("slots of %s are in two sub-apps", s.App)
		}
		slots[s.App] |= s.Slots
	}
	for app, m := range slots {
		if m != 0xffff {
			t.Fatalf("%s has the slots %016b only", app, m)
		}
	}
}

func (w *world) even(t *testing.T, when string) {
	t.Helper()
	most, least := w.counts()
	t.Logf("%s: %d sub-apps, from %.2f to %.2f of even, %d moved so far", when, len(w.Subs), least, most, w.moved)
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
	if limit := 40 * (len(w.Subs) + len(w.Servers)) * 10; first.work > limit {
		t.Errorf("the first decision took %d steps, more than %d", first.work, limit)
	}
	rounds := w.settle(t, 600)
	t.Logf("settled after %d seconds", rounds)
	w.owned(t)
	w.even(t, "settled")
	for _, s := range w.Subs {
		if s.Hosts > 2*100 && s.Slots&(s.Slots-1) != 0 {
			t.Errorf("%s has %d hosts", s.ID, s.Hosts)
			break
		}
	}

	// Noise moves little.
	before := w.moved
	for range 30 {
		w.now = w.now.Add(time.Second)
		w.fresh(0.01)
		d := Decide(Config{}, w.State, w.now)
		w.apply(t, d, 20*time.Second)
	}
	if n := w.moved - before; n > 60 {
		t.Errorf("noise moved %d sub-apps", n)
	}
	w.settle(t, 300)

	// Ten servers are lost. Their sub-apps get owners at once, and few others move.
	gone := map[string]bool{}
	for range 10 {
		i := w.rng.IntN(len(w.Servers))
		gone[w.Servers[i].ID] = true
		w.Servers = slices.Delete(w.Servers, i, i+1)
	}
	lost := 0
	for _, s := range w.Subs {
		if gone[s.Owner] {
			lost++
		}
	}
	before = w.moved
	w.fresh(0)
	d := Decide(Config{}, w.State, w.now)
	if bound := lost + 4 + len(w.Servers)/20; len(d.Moves) > bound {
		t.Errorf("%d moves for %d sub-apps without an owner", len(d.Moves), lost)
	}
	w.apply(t, d, 20*time.Second)
	w.owned(t)
	w.settle(t, 300)
	w.even(t, "after ten were lost")
	if n := w.moved - before; n > 3*lost+100 {
		t.Errorf("%d moves after %d sub-apps lost their owner", n, lost)
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
	share := len(w.Subs) * 20 / len(w.Servers)
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

	// An app becomes ten times as hot as one server should be.
	hot := w.find("app0.0").App
	for i := range w.Subs {
		if w.Subs[i].App == hot {
			w.Subs[i].Rates = flat(Slots * 600)
		}
	}
	w.settle(t, 600)
	w.owned(t)
	w.even(t, "with a hot app")

	// The load falls. Split apps are merged, a few at a time.
	parts := len(w.Subs)
	for i := range w.Subs {
		w.Subs[i].Hosts, w.Subs[i].Rates = 1, flat(0.1)
	}
	for range 60 {
		w.now = w.now.Add(15 * time.Minute)
		w.fresh(0)
		w.apply(t, Decide(Config{}, w.State, w.now), 20*time.Second)
	}
	w.owned(t)
	if len(w.Subs) > parts-500 {
		t.Errorf("%d sub-apps of %d are left", len(w.Subs), parts)
	}
}

// TestThirdServer joins a third, idle server: it owns its share within 30 s. An app that
// is ten times hotter than the rest is spread over all three.
func TestThirdServer(t *testing.T) {
	w := &world{State: State{Servers: servers("a", "b")}, now: t0, movedAt: map[string]time.Time{}, rng: rand.New(rand.NewPCG(1, 1))}
	for i := range 10 {
		w.Subs = append(w.Subs, sub(fmt.Sprint("app", i), []string{"a", "b"}[i%2], 100, 4))
	}
	w.Subs[0].Rates = flat(1000)
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
	on := map[string]bool{}
	for _, s := range w.Subs {
		if s.App == "app0" {
			on[s.Owner] = true
		}
	}
	if len(on) != 3 {
		t.Errorf("the hot app is on %v", on)
	}
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
			w.rng.Shuffle(len(w.Subs), func(i, j int) { w.Subs[i], w.Subs[j] = w.Subs[j], w.Subs[i] })
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
	asked := func(d Decision) (subs []string) {
		for _, m := range d.Moves {
			subs = append(subs, m.Sub)
		}
		slices.Sort(subs)
		return subs
	}
	a, b := asked(Decide(Config{}, w.State, w.now)), asked(Decide(Config{}, w.State, w.now.Add(time.Second)))
	if len(a) != len(w.Subs) || !slices.Equal(a, b) {
		t.Fatalf("%d of %d sub-apps got a server, then %d", len(a), len(w.Subs), len(b))
	}
}

// TestBudget: a decision stays within its limit of moves, except for sub-apps without an
// owner.
func TestBudget(t *testing.T) {
	var subs []SubApp
	for i := range 40 {
		subs = append(subs, sub(fmt.Sprintf("x%02d", i), "a", 10, 0))
	}
	for name, c := range map[string]struct {
		servers []Server
		want    int
	}{
		"level":    {servers("a", "b"), 3},
		"drain":    {[]Server{{ID: "a", Draining: true}, {ID: "b"}}, 3},
		"homeless": {servers("b"), 40},
	} {
		if d := Decide(Config{MaxMoves: 3}, State{c.servers, subs}, t0); len(d.Moves) != c.want {
			t.Errorf("%s: %d moves, want %d", name, len(d.Moves), c.want)
		}
	}
	for i := range subs {
		subs[i].Hosts = 500
	}
	if d := Decide(Config{MaxMoves: 3}, State{servers("a"), subs}, t0); len(d.Splits) != 3 {
		t.Errorf("%d splits, want 3", len(d.Splits))
	}
}

// TestHalf: both sides have slots, no slot is lost, and the sides have similar rates.
func TestHalf(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		s := SubApp{Slots: uint16(rng.Uint32())}
		for s.Slots&(s.Slots-1) == 0 {
			s.Slots = uint16(rng.Uint32())
		}
		all, most := 0.0, 0.0
		for i := range s.Rates {
			s.Rates[i] = float64(rng.IntN(3)) * rng.ExpFloat64()
			if s.Slots>>i&1 == 1 {
				all, most = all+s.Rates[i], max(most, s.Rates[i])
			}
		}
		leave, share := half(&s)
		if leave == 0 || leave == s.Slots || leave&^s.Slots != 0 {
			t.Fatalf("%016b of %016b leave", leave, s.Slots)
		}
		if all > 0 && math.Abs(share-0.5)*all > most/2+1e-9 {
			t.Fatalf("%.2f of %v leave, %016b of %016b", share, s.Rates, leave, s.Slots)
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
