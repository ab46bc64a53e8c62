// Package balance decides which server owns which sub-app. It is pure: a
// decision is a function of what is seen and of the time, so that a simulation
// can try it on installations that nobody has.
//
// A sub-app goes to the server with the smallest schedule count: the sum of the
// decaying rates of what the server owns, divided by its weight. What is owned
// is moved only when servers differ by more than the tolerance, and then until
// they differ by less than half of it, so that noise moves nothing. Every
// decision is made from the state alone: one that got lost is made again.
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
	MaxHosts    int           // of a sub-app: more split it; default 100
	MaxRate     float64       // of a sub-app, in schedules a second: what one server takes; default 10 000
	HotShare    float64       // of what one server should have: a sub-app with more is split; default 0.4
	LeastRate   float64       // below this no sub-app is hot; default 50
	Tolerance   float64       // how far from even a server may be; default 0.15
	Settle      time.Duration // how long what was moved stays where it is; default 20 s
	Lasts       time.Duration // how long an app is to be hot before its slots are spread; default 5 s
	Merge       time.Duration // how long halves are to be small before they are merged; default 10 min
	MaxMoves    int           // of one decision, besides those of servers that are lost; default 4, and one for each 20 servers
	HostCost    float64       // what a host costs its server, in schedules a second; default 0.1
	SubCost     float64       // what a sub-app does; default 0.2
	FarCost     float64       // by how much a server in another zone than a sub-app's hosts is dearer; default 0.1
	HalfWeight  time.Duration // the round trip at which a server counts half; default 50 ms
	RateHalfway time.Duration // the half-life of rates; default 30 s
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

// Server is a server that lives.
type Server struct {
	ID       string
	Zone     string        // "": unknown
	Capacity float64       // beside others; 0: 1
	Trip     time.Duration // the measured round trip to it; 0: unknown
	Draining bool          // it is to own nothing
}

// SubApp is a group of an app's slots with a group of its hosts.
type SubApp struct {
	App   string
	ID    string // unique over all apps
	Slots uint16 // one bit each
	Owner string // the id of a server; "" or one that does not live: it has none
	// To is the server that it is on its way to, "" when it stays: nothing else
	// is decided about it until it has arrived or that server is lost.
	To    string
	Hosts int
	Zone  string // of most of its hosts; "": unknown
	// Rates are the schedules a second of each slot, as measured At.
	Rates [Slots]float64
	At    time.Time
	Since time.Time // it became what it is, where it is
}

// State is what is seen. Neither order matters.
type State struct {
	Servers []Server
	Subs    []SubApp
}

// Move brings a sub-app to a server. From is "" when it has no owner.
type Move struct{ Sub, From, To string }

// Split takes slots from a sub-app, with as large a share of its hosts, and
// makes another one of them, which To owns.
type Split struct {
	Sub   string
	Slots uint16 // that leave
	To    string
}

// Merge adds the slots and hosts of a sub-app to another one of the same app.
type Merge struct{ Sub, Into string }

// Decision is what is to be done, in this order.
type Decision struct {
	Moves  []Move
	Splits []Split
	Merges []Merge

	work int // steps that the decision took
}

// Empty says that everything is as it should be.
func (d *Decision) Empty() bool { return len(d.Moves)+len(d.Splits)+len(d.Merges) == 0 }

// seat is a server while a decision is made.
type seat struct {
	*Server
	weight float64
	load   float64
	subs   []*seated // that may be moved away, the heaviest first
	at     int       // its place in the heap
}

func (s *seat) count() float64 { return s.load / s.weight }

// seated is a sub-app while a decision is made.
type seated struct {
	*SubApp
	rate, load float64
	seat       *seat // nil: none
	fixed      bool  // it is not to be touched
}

type decider struct {
	Config
	now    time.Time
	seats  []*seat // by id
	byID   map[string]*seat
	subs   []*seated // by id
	even   float64   // load for a weight of 1, if it were spread evenly
	budget int
	out    Decision
	heap   []*seat // those that may be given something, the smallest count first
}

// Decide returns what is to be done now.
func Decide(cfg Config, s State, now time.Time) Decision {
	d := &decider{Config: cfg.withDefaults(len(s.Servers)), now: now, byID: make(map[string]*seat, len(s.Servers))}
	d.budget = d.MaxMoves
	d.seatServers(s.Servers)
	if len(d.heap) == 0 {
		return d.out // nobody can be given anything
	}
	d.seatSubs(s.Subs)
	d.homeless()
	d.drain()
	d.split()
	d.level()
	d.merge()
	return d.out
}

// weight is what a server counts beside others.
func (d *decider) weight(s *Server) float64 {
	w := s.Capacity
	if !(w > 0) || math.IsInf(w, 0) { // also what is no number
		w = 1
	}
	return w / (1 + float64(max(s.Trip, 0))/float64(d.HalfWeight))
}

func (d *decider) seatServers(servers []Server) {
	for i := range servers {
		s := &seat{Server: &servers[i], at: -1}
		s.weight = d.weight(s.Server)
		if d.byID[s.ID] != nil {
			continue
		}
		d.byID[s.ID] = s
		d.seats = append(d.seats, s)
	}
	slices.SortFunc(d.seats, func(a, b *seat) int { return cmp.Compare(a.ID, b.ID) })
	for _, s := range d.seats {
		if !s.Draining {
			s.at = len(d.heap)
			d.heap = append(d.heap, s)
		}
	}
}

// rate is the sum of a sub-app's rates as of now.
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

// Decay is what is left of a rate after some time without news.
func Decay(rate float64, after, half time.Duration) float64 {
	return rate * math.Exp2(-float64(after)/float64(half))
}

func (d *decider) seatSubs(subs []SubApp) {
	total, weights := 0.0, 0.0
	for i := range subs {
		s := &seated{SubApp: &subs[i]}
		s.rate = d.rate(s.SubApp)
		s.load = s.rate + d.HostCost*float64(max(s.Hosts, 0)) + d.SubCost
		total += s.load
		if to := d.byID[s.To]; to != nil {
			s.seat, s.fixed = to, true
		} else {
			s.seat = d.byID[s.Owner]
			s.fixed = s.seat != nil && d.now.Sub(s.Since) < d.Settle
		}
		d.subs = append(d.subs, s)
	}
	slices.SortFunc(d.subs, func(a, b *seated) int { return cmp.Compare(a.ID, b.ID) })
	for _, s := range d.subs {
		if s.seat != nil {
			s.seat.load += s.load
			s.seat.subs = append(s.seat.subs, s)
		}
	}
	for _, s := range d.seats {
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

func heaviest(a, b *seated) int {
	return cmp.Or(-cmp.Compare(a.load, b.load), cmp.Compare(a.ID, b.ID))
}

// homeless finds owners for sub-apps that have none, at once and all of them:
// nothing of theirs is scheduled until then.
func (d *decider) homeless() {
	var lost []*seated
	for _, s := range d.subs {
		if s.seat == nil {
			lost = append(lost, s)
		}
	}
	slices.SortStableFunc(lost, heaviest)
	for _, s := range lost {
		d.give(s, d.best(s))
	}
}

// drain moves what servers own that are to own nothing.
func (d *decider) drain() {
	for _, from := range d.seats {
		if !from.Draining {
			continue
		}
		for _, s := range slices.Clone(from.subs) {
			if s.To == "" && d.budget > 0 { // also what came a short time ago
				d.budget--
				d.give(s, d.best(s))
			}
		}
	}
}

// best returns the server that a sub-app should go to. Of the few with the
// smallest counts it prefers one in the zone of the hosts.
func (d *decider) best(s *seated) *seat {
	const looked = 8 // the top of the heap: near the smallest
	var best *seat
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

// give moves a sub-app to a server.
func (d *decider) give(s *seated, to *seat) {
	from := ""
	if s.seat != nil {
		from = s.seat.ID
		d.take(s)
	}
	d.out.Moves = append(d.out.Moves, Move{s.ID, from, to.ID})
	s.fixed = true
	d.put(s, to)
}

func (d *decider) take(s *seated) {
	s.seat.load -= s.load
	s.seat.subs = slices.DeleteFunc(s.seat.subs, func(x *seated) bool { return x == s })
	d.fix(s.seat)
}

func (d *decider) put(s *seated, to *seat) {
	s.seat = to
	to.load += s.load
	to.subs = append(to.subs, s) // it is fixed: its place does not matter
	d.fix(to)
}

// split divides what has too many hosts or too much to do.
func (d *decider) split() {
	for _, s := range d.subs {
		if s.fixed || bits.OnesCount16(s.Slots) < 2 || !d.tooLarge(s.Hosts, s.rate, s.load, 1) || d.budget == 0 {
			continue
		}
		leave, share := half(s.SubApp)
		d.budget--
		// What leaves is a sub-app that goes where one without an owner would,
		// unless that is no better than to stay.
		part := &seated{
			SubApp: &SubApp{ID: s.ID, Zone: s.Zone, Hosts: s.Hosts / 2},
			rate:   s.rate * share, fixed: true,
		}
		part.load = part.rate + d.HostCost*float64(part.Hosts) + d.SubCost
		s.seat.load -= s.load
		s.rate -= part.rate
		s.load -= part.load - d.SubCost
		s.fixed = true
		s.seat.load += s.load
		d.fix(s.seat)
		to := d.best(part)
		if (to.load+part.load)/to.weight >= (s.seat.load+part.load)/s.seat.weight && !s.seat.Draining {
			to = s.seat
		}
		d.out.Splits = append(d.out.Splits, Split{s.ID, leave, to.ID})
		d.put(part, to)
	}
}

// tooLarge says whether a sub-app is beyond a limit, or beyond a part of each.
func (d *decider) tooLarge(hosts int, rate, load, part float64) bool {
	return float64(hosts) > part*float64(d.MaxHosts) || rate > part*d.MaxRate ||
		rate > part*d.LeastRate && load > part*d.HotShare*d.even && len(d.heap) > 1
}

// half divides the slots of a sub-app so that the rates of both sides are as
// near as can be had without trying all ways, and their numbers where there are
// no rates. It returns the slots that leave and their share of the rate.
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
		if k == len(order)-1 && n[1] == 0 { // no side is empty
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

// level moves sub-apps from servers with much to servers with little, while
// one is beyond the tolerance, until all are within half of it.
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
	dead := map[*seat]bool{} // have nothing that can be moved with a gain
	for d.budget > 0 {
		least := d.heap[0]
		var most *seat
		for _, s := range d.seats {
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
func (d *decider) extremes() (most, least *seat) {
	least = d.heap[0]
	for _, s := range d.heap {
		d.out.work++
		if most == nil || s.count() > most.count() {
			most = s
		}
	}
	return most, least
}

// movable returns the heaviest sub-app of a server that another one can take
// and still have less than the first has after it. Such a move makes the larger
// of the two counts smaller: no two servers can pass one to and fro.
func (d *decider) movable(from, to *seat) (*seated, *seat) {
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

// merge joins parts of an app that have become small.
func (d *decider) merge() {
	byApp := map[string][]*seated{}
	var apps []string
	for _, s := range d.subs {
		if s.fixed || s.seat == nil || d.now.Sub(s.Since) < d.Merge {
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
		slices.SortStableFunc(parts, func(a, b *seated) int { return -heaviest(a, b) })
		if len(parts) < 2 || d.budget == 0 {
			continue
		}
		a, b := parts[0], parts[1] // the smallest
		if d.tooLarge(a.Hosts+b.Hosts, a.rate+b.rate, a.load+b.load, 0.5) || a.seat != b.seat && b.seat.count() > d.even*(1+d.Tolerance/2) {
			continue
		}
		if a.seat != b.seat {
			d.budget--
		}
		d.out.Merges = append(d.out.Merges, Merge{a.ID, b.ID})
	}
}

// The heap of servers by count, then by id, so that equal ones are told apart
// the same way always.

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

// fix puts a server in its place after its load has changed.
func (d *decider) fix(s *seat) {
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
