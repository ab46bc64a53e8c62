// Package balance decides which server owns which partition, which apps are spread over
// several partitions, and which hosts work for which. It is pure: a decision is a function
// of a state and a time. A simulation can therefore try it on installations larger than
// any that exists.
//
// A partition goes to the server with the smallest schedule count. The count is the sum of
// the rates of the partitions of a server, divided by its weight. Owned partitions move
// only when servers differ by more than the tolerance, and then until they differ by less
// than half of it; noise therefore moves nothing. A decision depends on the state alone,
// so a lost decision is made again.
package balance

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Config holds the limits of a decision. A zero value means the default.
type Config struct {
	MaxHosts   int           // of an app in one partition: with more it is spread; default 100
	HotShare   float64       // share of the load of one server when even: an app with more is hot; default 0.4
	LeastRate  float64       // schedules a second; below this no app is hot; default 50
	Tolerance  float64       // distance from the even count that a server may have, as a share of it; default 0.15
	Settle     time.Duration // minimum dwell time: a moved partition stays for so long; default 20 s
	Lasts      time.Duration // time for which an app must be hot before its slots are spread; default 5 s
	Merge      time.Duration // time for which a spread app must be small before it returns to one partition; default 10 min
	MaxMoves   int           // moves of one decision, without those from lost servers; default 4, and one for each 20 servers
	HostCost   float64       // load of a host for its server, in schedules a second; default 0.1
	OwnCost    float64       // load of a partition by itself, in schedules a second; default 0.2
	FarCost    float64       // extra cost, as a share, of a server in another zone than the hosts of the partition; default 0.1
	HalfWeight time.Duration // round trip at which a server has half of its weight; default 50 ms
}

func (c Config) withDefaults(servers int) Config {
	c.MaxHosts = cmp.Or(c.MaxHosts, 100)
	c.HotShare, c.LeastRate, c.Tolerance = cmp.Or(c.HotShare, 0.4), cmp.Or(c.LeastRate, 50), cmp.Or(c.Tolerance, 0.15)
	c.Settle, c.Lasts, c.Merge = cmp.Or(c.Settle, 20*time.Second), cmp.Or(c.Lasts, 5*time.Second), cmp.Or(c.Merge, 10*time.Minute)
	c.MaxMoves = cmp.Or(c.MaxMoves, 4+servers/20)
	c.HostCost, c.OwnCost, c.FarCost = cmp.Or(c.HostCost, 0.1), cmp.Or(c.OwnCost, 0.2), cmp.Or(c.FarCost, 0.1)
	c.HalfWeight = cmp.Or(c.HalfWeight, 50*time.Millisecond)
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

// Partition is a set of slots with one owner, which moves as a whole.
type Partition struct {
	Name  string
	Owner string // id of a server; "", or the id of a lost server, means none
	// To is the server that the partition is moving to, "" without a move. A moving
	// partition is left alone until it has arrived or that server is lost.
	To       string
	Draining bool      // its owner must own nothing; read by Spread and Choose
	Rate     float64   // schedules a second
	Hosts    int       // hosts that work for it
	Zone     string    // zone of most of its hosts; "": unknown
	Since    time.Time // time of the last change of its owner
}

// State is the input of a decision. The order of its slices does not matter.
type State struct {
	Servers    []Server
	Partitions []Partition
}

// Move gives a partition to a server. From is "" if the partition has no owner.
type Move struct{ Partition, From, To string }

// Decision lists the moves, in the order in which they have to be made.
type Decision struct {
	Moves []Move

	work int // number of steps that the decision took
}

// Empty reports whether no change is necessary.
func (d *Decision) Empty() bool { return len(d.Moves) == 0 }

// serverState is a server during a decision.
type serverState struct {
	*Server
	weight float64
	load   float64
	owns   []*partitionState // its partitions, heaviest first; those that this decision adds follow
	at     int               // index in the heap, -1: not in it
}

func (s *serverState) count() float64 { return s.load / s.weight }

// partitionState is a partition during a decision.
type partitionState struct {
	*Partition
	load  float64
	on    *serverState // nil: none
	fixed bool         // the decision must not move it
}

type decider struct {
	Config
	now        time.Time
	servers    []*serverState // by id
	byID       map[string]*serverState
	partitions []*partitionState // by name
	even       float64           // load for a weight of 1, if it were spread evenly
	budget     int
	out        Decision
	heap       []*serverState // servers that may own partitions, smallest count first
}

// Decide returns the changes that the state needs now.
func Decide(cfg Config, s State, now time.Time) Decision {
	d := &decider{Config: cfg.withDefaults(len(s.Servers)), now: now, byID: make(map[string]*serverState, len(s.Servers))}
	d.budget = d.MaxMoves
	d.serversOf(s.Servers)
	if len(d.heap) == 0 {
		return d.out // no server may own partitions
	}
	d.partitionsOf(s.Partitions)
	d.homeless()
	d.drain()
	d.level()
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

func (d *decider) partitionsOf(partitions []Partition) {
	total, weights := 0.0, 0.0
	for i := range partitions {
		s := &partitionState{Partition: &partitions[i]}
		s.load = d.HostCost*float64(max(s.Hosts, 0)) + d.OwnCost
		if s.Rate > 0 && !math.IsInf(s.Rate, 0) { // false for NaN as well
			s.load += s.Rate
		}
		total += s.load
		if to := d.byID[s.To]; to != nil {
			s.on, s.fixed = to, true
		} else {
			s.on = d.byID[s.Owner]
			s.fixed = s.on != nil && d.now.Sub(s.Since) < d.Settle
		}
		d.partitions = append(d.partitions, s)
	}
	slices.SortFunc(d.partitions, func(a, b *partitionState) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range d.partitions {
		if s.on != nil {
			s.on.load += s.load
			s.on.owns = append(s.on.owns, s)
		}
	}
	for _, s := range d.servers {
		slices.SortStableFunc(s.owns, heaviest)
		if !s.Draining {
			weights += s.weight
		}
	}
	d.even = total / weights
	for i := len(d.heap)/2 - 1; i >= 0; i-- {
		d.down(i)
	}
}

func heaviest(a, b *partitionState) int {
	return cmp.Or(-cmp.Compare(a.load, b.load), cmp.Compare(a.Name, b.Name))
}

// homeless gives every partition without an owner to a server. It ignores the budget,
// because the jobs of such a partition do not run.
func (d *decider) homeless() {
	var lost []*partitionState
	for _, s := range d.partitions {
		if s.on == nil {
			lost = append(lost, s)
		}
	}
	slices.SortStableFunc(lost, heaviest)
	for _, s := range lost {
		d.give(s, d.best(s))
	}
}

// drain moves partitions away from draining servers.
func (d *decider) drain() {
	for _, from := range d.servers {
		if !from.Draining {
			continue
		}
		for _, s := range slices.Clone(from.owns) {
			if s.To == "" && d.budget > 0 { // even if it arrived a short time ago
				d.budget--
				d.give(s, d.best(s))
			}
		}
	}
}

// best returns the server that a partition should move to. It looks at the first few
// servers of the heap and prefers one in the zone of the hosts.
func (d *decider) best(s *partitionState) *serverState {
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

// give moves a partition to a server and records the move.
func (d *decider) give(s *partitionState, to *serverState) {
	from := ""
	if s.on != nil {
		from = s.on.ID
		d.take(s)
	}
	d.out.Moves = append(d.out.Moves, Move{s.Name, from, to.ID})
	s.fixed = true
	d.put(s, to)
}

func (d *decider) take(s *partitionState) {
	s.on.load -= s.load
	s.on.owns = slices.DeleteFunc(s.on.owns, func(x *partitionState) bool { return x == s })
	d.fix(s.on)
}

func (d *decider) put(s *partitionState, to *serverState) {
	s.on = to
	to.load += s.load
	to.owns = append(to.owns, s) // it is fixed, so the order by weight does not matter
	d.fix(to)
}

// level moves partitions from servers with large counts to servers with small ones. It
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
	dead := map[*serverState]bool{} // servers without a partition whose move gains anything
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

// movable returns the heaviest partition that a server can give to another so that the
// receiver's count stays below the giver's old count. Such a move always lowers the
// larger count, so two servers cannot pass a partition back and forth.
func (d *decider) movable(from, to *serverState) (*partitionState, *serverState) {
	for _, s := range from.owns {
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

func (m Move) String() string { return fmt.Sprintf("%s: %s -> %s", m.Partition, m.From, m.To) }
