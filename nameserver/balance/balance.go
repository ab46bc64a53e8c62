// Package balance decides which server owns which sub-app. It is pure: a decision is a
// function of a state and a time. A simulation can therefore try it on installations
// larger than any that exists.
//
// A sub-app goes to the server with the smallest schedule count. The count is the sum of
// the decaying rates of the sub-apps of a server, divided by its weight. Owned sub-apps
// move only when servers differ by more than the tolerance, and then until they differ by
// less than half of it; noise therefore moves nothing. A decision depends on the state
// alone, so a lost decision is made again.
package balance

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Slots is the number of slots of an app.
const Slots = 16

// Config holds the limits of a decision. A zero value means the default.
type Config struct {
	MaxHosts    int           // of a sub-app: with more it is split; default 100
	MaxRate     float64       // of a sub-app, in schedules a second: the capacity of one server; default 10 000
	HotShare    float64       // share of the load of one server when even: a sub-app with more is split; default 0.4
	LeastRate   float64       // schedules a second; below this no sub-app is hot; default 50
	Tolerance   float64       // distance from the even count that a server may have, as a share of it; default 0.15
	Settle      time.Duration // minimum dwell time: a moved sub-app stays for so long; default 20 s
	Lasts       time.Duration // time for which an app must be hot before its slots are spread; default 5 s
	Merge       time.Duration // time for which halves must be small before they are merged; default 10 min
	MaxMoves    int           // moves and splits of one decision, without those from lost servers; default 4, and one for each 20 servers
	HostCost    float64       // load of a host for its server, in schedules a second; default 0.1
	SubCost     float64       // load of a sub-app by itself, in schedules a second; default 0.2
	FarCost     float64       // extra cost, as a share, of a server in another zone than the hosts of the sub-app; default 0.1
	HalfWeight  time.Duration // round trip at which a server has half of its weight; default 50 ms
	RateHalfway time.Duration // half-life of rates; default 30 s
}

func (c Config) withDefaults(servers int) Config {
	c.MaxHosts, c.MaxRate = cmp.Or(c.MaxHosts, 100), cmp.Or(c.MaxRate, 10_000)
	c.HotShare, c.LeastRate, c.Tolerance = cmp.Or(c.HotShare, 0.4), cmp.Or(c.LeastRate, 50), cmp.Or(c.Tolerance, 0.15)
	c.Settle, c.Lasts, c.Merge = cmp.Or(c.Settle, 20*time.Second), cmp.Or(c.Lasts, 5*time.Second), cmp.Or(c.Merge, 10*time.Minute)
	c.MaxMoves = cmp.Or(c.MaxMoves, 4+servers/20)
	c.HostCost, c.SubCost, c.FarCost = cmp.Or(c.HostCost, 0.1), cmp.Or(c.SubCost, 0.2), cmp.Or(c.FarCost, 0.1)
	c.HalfWeight, c.RateHalfway = cmp.Or(c.HalfWeight, 50*time.Millisecond), cmp.Or(c.RateHalfway, 30*time.Second)
	return c
}

// Server is a live server.
type Server struct {
	ID       string
	Zone     string        // "": unknown
	Capacity float64       // weight relative to other servers; 0 means 1
	Trip     time.Duration // measured round trip to the server; 0: unknown
	Draining bool          // the server must own nothing
}

// SubApp is a set of an app's slots with some of the app's hosts.
type SubApp struct {
	App   string
	ID    string // unique over all apps
	Slots uint16 // one bit each
	Owner string // id of a server; "", or the id of a lost server, means none
	// To is the server that the sub-app is moving to, "" without a move. A moving sub-app
	// is left alone until it has arrived or that server is lost.
	To    string
	Hosts int
	Zone  string // zone of most of its hosts; "": unknown
	// Rates are the schedules a second of each slot, measured at At.
	Rates [Slots]float64
	At    time.Time
	Since time.Time // time of the last change of its slots or its owner
}

// State is the input of a decision. The order of its slices does not matter.
type State struct {
	Servers []Server
	Subs    []SubApp
}

// Move gives a sub-app to a server. From is "" if the sub-app has no owner.
type Move struct{ Sub, From, To string }

// Split takes slots and the same share of the hosts from a sub-app. They become a new
// sub-app, which To owns.
type Split struct {
	Sub   string
	Slots uint16 // the slots that leave
	To    string
}

// Merge adds the slots and hosts of a sub-app to another one of the same app.
type Merge struct{ Sub, Into string }

// Decision lists the changes, in the order in which they have to be made.
type Decision struct {
	Moves  []Move
	Splits []Split
	Merges []Merge

	work int // number of steps that the decision took
}

// Empty reports whether no change is necessary.
func (d *Decision) Empty() bool { return len(d.Moves)+len(d.Splits)+len(d.Merges) == 0 }

// slotPlacement is a server during a decision.
type serverState struct {
	*Server
	weight float64
	load   float64
	subs   []*subState // its sub-apps, heaviest first; those that this decision adds follow
	at     int         // index in the heap, -1: not in it
}

func (s *serverState) count() float64 { return s.load / s.weight }

// seated is a sub-app during a decision.
type subState struct {
	*SubApp
	rate, load float64
	on         *serverState // nil: none
	fixed      bool         // the decision must not move it
}

type decider struct {
	Config
	now     time.Time
	servers []*serverState // by id
	byID    map[string]*serverState
	subs    []*subState // by id
	even    float64     // load for a weight of 1, if it were spread evenly
	budget  int
	out     Decision
	heap    []*serverState // servers that may own sub-apps, smallest count first
}

// Decide returns the changes that the state needs now.
func Decide(cfg Config, s State, now time.Time) Decision {
	d := &decider{Config: cfg.withDefaults(len(s.Servers)), now: now, byID: make(map[string]*serverState, len(s.Servers))}
	d.budget = d.MaxMoves
	d.serversOf(s.Servers)
	if len(d.heap) == 0 {
		return d.out // no server may own sub-apps
	}
	d.subsOf(s.Subs)
	d.homeless()
	d.drain()
	d.split()
	d.level()
	d.merge()
	return d.out
}

// weight returns the capacity of a server, reduced by its round trip.
func (d *decider) weight(s *Server) float64 {
	w := s.Capacity
	if !(w > 0) || math.IsInf(w, 0) { // true for NaN as well
		w = 1
	}
	return w / (1 + float64(max(s.Trip, 0))/float64(d.HalfWeight))
}

func (d *decider) serversOf(servers []Server) {
	for i := range servers {
		s := &serverState{Server: &servers[i], at: -1}
		s.weight = d.weight(s.Server)
		if d.byID[s.ID] != nil {
			continue
		}
		d.byID[s.ID] = s
		d.servers = append(d.servers, s)
	}
	slices.SortFunc(d.servers, func(a, b *serverState) int { return cmp.Compare(a.ID, b.ID) })
	for _, s := range d.servers {
		if !s.Draining {
			s.at = len(d.heap)
			d.heap = append(d.heap, s)
		}
	}
}

// rate returns the sum of the rates of a sub-app, decayed to now.
func (d *decider) rate(s *SubApp) float64 {
	sum := 0.0
	for i, r := range s.Rates {
		if s.Slots>>i&1 == 1 && r > 0 && !math.IsInf(r, 0) {
			sum += r
		}
	}
	return Decay(sum, now0(d.now.Sub(s.At)), d.RateHalfway)
}

func now0(d time.Duration) time.Duration { return max(d, 0) }

// Decay returns a rate that was measured some time ago, halved for each half-life since.
func Decay(rate float64, after, half time.Duration) float64 {
	return rate * math.Exp2(-float64(after)/float64(half))
}

func (d *decider) subsOf(subs []SubApp) {
	total, weights := 0.0, 0.0
	for i := range subs {
		s := &subState{SubApp: &subs[i]}
		s.rate = d.rate(s.SubApp)
		s.load = s.rate + d.HostCost*float64(max(s.Hosts, 0)) + d.SubCost
		total += s.load
		if to := d.byID[s.To]; to != nil {
			s.on, s.fixed = to, true
		} else {
			s.on = d.byID[s.Owner]
			s.fixed = s.on != nil && d.now.Sub(s.Since) < d.Settle
		}
		d.subs = append(d.subs, s)
	}
	slices.SortFunc(d.subs, func(a, b *subState) int { return cmp.Compare(a.ID, b.ID) })
	for _, s := range d.subs {
		if s.on != nil {
			s.on.load += s.load
			s.on.subs = append(s.on.subs, s)
		}
	}
	for _, s := range d.servers {
		slices.SortStableFunc(s.subs, heaviest)
		if !s.Draining {
			weights += s.weight
		}
	}
	d.even = total / weights
	for i := len(d.heap)/2 - 1; i >= 0; i-- {
		d.down(i)
	}
}

func heaviest(a, b *subState) int {
	return cmp.Or(-cmp.Compare(a.load, b.load), cmp.Compare(a.ID, b.ID))
}

// homeless gives every sub-app without an owner to a server. It ignores the budget,
// because the jobs of such a sub-app do not run.
func (d *decider) homeless() {
	var lost []*subState
	for _, s := range d.subs {
		if s.on == nil {
			lost = append(lost, s)
		}
	}
	slices.SortStableFunc(lost, heaviest)
	for _, s := range lost {
		d.give(s, d.best(s))
	}
}

// drain moves sub-apps away from draining servers.
func (d *decider) drain() {
	for _, from := range d.servers {
		if !from.Draining {
			continue
		}
		for _, s := range slices.Clone(from.subs) {
			if s.To == "" && d.budget > 0 { // even if it arrived a short time ago
				d.budget--
				d.give(s, d.best(s))
			}
		}
	}
}

// best returns the server that a sub-app should move to. It looks at the first few
// servers of the heap and prefers one in the zone of the hosts.
func (d *decider) best(s *subState) *serverState {
	const looked = 8 // entries at the top of the heap, which are near the smallest count
	var best *serverState
	var least float64
	for _, x := range d.heap[:min(looked, len(d.heap))] {
		d.out.work++
		count := (x.load + s.load) / x.weight
		if s.Zone != "" && x.Zone != s.Zone {
			count *= 1 + d.FarCost
		}
		if best == nil || count < least || count == least && x.ID < best.ID {
			best, least = x, count
		}
	}
	return best
}

// give moves a sub-app to a server and records the move.
func (d *decider) give(s *subState, to *serverState) {
	from := ""
	if s.on != nil {
		from = s.on.ID
		d.take(s)
	}
	d.out.Moves = append(d.out.Moves, Move{s.ID, from, to.ID})
	s.fixed = true
	d.put(s, to)
}

func (d *decider) take(s *subState) {
	s.on.load -= s.load
	s.on.subs = slices.DeleteFunc(s.on.subs, func(x *subState) bool { return x == s })
	d.fix(s.on)
}

func (d *decider) put(s *subState, to *serverState) {
	s.on = to
	to.load += s.load
	to.subs = append(to.subs, s) // it is fixed, so the order by weight does not matter
	d.fix(to)
}

// split divides sub-apps with too many hosts or too much load.
func (d *decider) split() {
	for _, s := range d.subs {
		if s.fixed || bits.OnesCount16(s.Slots) < 2 || !d.tooLarge(s.Hosts, s.rate, s.load, 1) || d.budget == 0 {
			continue
		}
		leave, share := half(s.SubApp)
		d.budget--
		// The new sub-app goes to the server that one without an owner would get, unless
		// that server would be no less loaded than the present one.
		part := &subState{
			SubApp: &SubApp{ID: s.ID, Zone: s.Zone, Hosts: s.Hosts / 2},
			rate:   s.rate * share, fixed: true,
		}
		part.load = part.rate + d.HostCost*float64(part.Hosts) + d.SubCost
		s.on.load -= s.load
		s.rate -= part.rate
		s.load -= part.load - d.SubCost
		s.fixed = true
		s.on.load += s.load
		d.fix(s.on)
		to := d.best(part)
		if (to.load+part.load)/to.weight >= (s.on.load+part.load)/s.on.weight && !s.on.Draining {
			to = s.on
		}
		d.out.Splits = append(d.out.Splits, Split{s.ID, leave, to.ID})
		d.put(part, to)
	}
}

// tooLarge reports whether a sub-app exceeds a limit, or the given part of a limit.
func (d *decider) tooLarge(hosts int, rate, load, part float64) bool {
	return float64(hosts) > part*float64(d.MaxHosts) || rate > part*d.MaxRate ||
		rate > part*d.LeastRate && load > part*d.HotShare*d.even && len(d.heap) > 1
}

// half divides the slots of a sub-app in two with rates as equal as a greedy choice makes
// them. Without rates it makes their numbers equal. It returns the slots that leave and
// their share of the rate.
func half(s *SubApp) (leave uint16, share float64) {
	var order []int
	for i := range Slots {
		if s.Slots>>i&1 == 1 {
			order = append(order, i)
		}
	}
	rate := func(i int) float64 {
		if r := s.Rates[i]; r > 0 && !math.IsInf(r, 0) {
			return r
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b int) int { return -cmp.Compare(rate(a), rate(b)) })
	var sum [2]float64
	var n [2]int
	for k, i := range order {
		side := 0
		if sum[1] < sum[0] || sum[1] == sum[0] && n[1] < n[0] {
			side = 1
		}
		if k == len(order)-1 && n[1] == 0 { // neither side may be empty
			side = 1
		}
		sum[side] += rate(i)
		n[side]++
		if side == 1 {
			leave |= 1 << i
		}
	}
	if all := sum[0] + sum[1]; all > 0 {
		return leave, sum[1] / all
	}
	return leave, float64(n[1]) / float64(len(order))
}

// level moves sub-apps from servers with large counts to servers with small ones. It
// starts when one server is beyond the tolerance and stops when all are within half of
// it.
func (d *decider) level() {
	if d.even <= 0 || len(d.heap) < 2 {
		return
	}
	aim := d.even
	beyond := func(tolerance float64) bool {
		most, least := d.extremes()
		return most.count() > aim*(1+tolerance) || least.count() < aim*(1-tolerance)
	}
	if !beyond(d.Tolerance) {
		return
	}
	dead := map[*serverState]bool{} // servers without a sub-app whose move gains anything
	for d.budget > 0 {
		least := d.heap[0]
		var most *serverState
		for _, s := range d.servers {
			d.out.work++
			if !s.Draining && !dead[s] && (most == nil || s.count() > most.count()) {
				most = s
			}
		}
		if most == nil || most == least || most.count() <= aim*(1+d.Tolerance/2) && least.count() >= aim*(1-d.Tolerance/2) {
			return
		}
		s, to := d.movable(most, least)
		if s == nil {
			dead[most] = true
			continue
		}
		d.budget--
		d.give(s, to)
	}
}

// extremes returns the servers with the largest and the smallest count.
func (d *decider) extremes() (most, least *serverState) {
	least = d.heap[0]
	for _, s := range d.heap {
		d.out.work++
		if most == nil || s.count() > most.count() {
			most = s
		}
	}
	return most, least
}

// movable returns the heaviest sub-app that a server can give to another so that the
// receiver's count stays below the giver's old count. Such a move always lowers the
// larger count, so two servers cannot pass a sub-app back and forth.
func (d *decider) movable(from, to *serverState) (*subState, *serverState) {
	for _, s := range from.subs {
		d.out.work++
		if s.fixed || s.To != "" {
			continue
		}
		at := to
		if near := d.best(s); near != from && s.Zone != "" && near.Zone == s.Zone {
			at = near
		}
		if (at.load+s.load)/at.weight < from.count()-d.even*d.Tolerance/8 {
			return s, at
		}
	}
	return nil, nil
}

// merge joins small sub-apps of one app.
func (d *decider) merge() {
	byApp := map[string][]*subState{}
	var apps []string
	for _, s := range d.subs {
		if s.fixed || s.on == nil || d.now.Sub(s.Since) < d.Merge {
			continue
		}
		if byApp[s.App] == nil {
			apps = append(apps, s.App)
		}
		byApp[s.App] = append(byApp[s.App], s)
	}
	slices.Sort(apps)
	for _, app := range apps {
		parts := byApp[app]
		slices.SortStableFunc(parts, func(a, b *subState) int { return -heaviest(a, b) })
		if len(parts) < 2 || d.budget == 0 {
			continue
		}
		a, b := parts[0], parts[1] // the two smallest
		if d.tooLarge(a.Hosts+b.Hosts, a.rate+b.rate, a.load+b.load, 0.5) || a.on != b.on && b.on.count() > d.even*(1+d.Tolerance/2) {
			continue
		}
		if a.on != b.on {
			d.budget--
		}
		d.out.Merges = append(d.out.Merges, Merge{a.ID, b.ID})
	}
}

// The heap orders servers by count, then by id. The id makes the order of equal servers
// deterministic.

func (d *decider) less(i, j int) bool {
	a, b := d.heap[i], d.heap[j]
	d.out.work++
	return cmp.Or(cmp.Compare(a.count(), b.count()), cmp.Compare(a.ID, b.ID)) < 0
}

func (d *decider) swap(i, j int) {
	h := d.heap
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (d *decider) down(i int) {
	for {
		k := 2*i + 1
		if k >= len(d.heap) {
			return
		}
		if k+1 < len(d.heap) && d.less(k+1, k) {
			k++
		}
		if !d.less(k, i) {
			return
		}
		d.swap(i, k)
		i = k
	}
}

// fix restores the heap after the load of a server has changed.
func (d *decider) fix(s *serverState) {
	if s.at < 0 {
		return
	}
	for i := s.at; i > 0 && d.less(i, (i-1)/2); i = s.at {
		d.swap(i, (i-1)/2)
	}
	d.down(s.at)
}

func (m Move) String() string  { return fmt.Sprintf("%s: %s -> %s", m.Sub, m.From, m.To) }
func (s Split) String() string { return fmt.Sprintf("%s splits %016b to %s", s.Sub, s.Slots, s.To) }
func (m Merge) String() string { return fmt.Sprintf("%s joins %s", m.Sub, m.Into) }
