package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
)

const (
	// balanceEvery is how often the balancer decides if nothing changes.
	balanceEvery = 500 * time.Millisecond
	// balanceGathers is how long the balancer of a new cluster waits for other servers
	// before it assigns the partitions.
	balanceGathers = time.Second
	// balancePatience is how long a partition may be moving to a server that does not
	// take it, orphanPatience how long if it has no owner meanwhile.
	balancePatience = 30 * time.Second
	orphanPatience  = 3 * time.Second
	// PartitionSettles is the default of the minimum dwell time.
	PartitionSettles = 10 * time.Second
)

// Balancer spreads the ownership of partitions evenly. Every server
// runs one. The one that is elected decides, again and again and from the current state,
// the desired owner of each partition; the servers do the rest. A decision that was lost
// is made again. Two that contradict each other cost a move, never safety.
type Balancer struct {
	view   *View
	log    *slog.Logger
	cfg    balance.Config
	splits splits

	leads bool
	since map[string]tenure  // by partition
	moves map[string]passage // by partition: the moves in progress
	began time.Time          // when this server was elected
}

// tenure is since when a partition has its owner, as this balancer saw it.
type tenure struct {
	owner string
	at    time.Time // zero: since before it looked
}

// passage is since when a partition is moving to a server.
type passage struct {
	to string
	at time.Time
}

// BalancerConfig holds the limits of a balancer. A zero value means the default.
type BalancerConfig struct {
	Settle    time.Duration // minimum dwell time of a partition; default 10 s
	SplitRate float64       // schedules a second below which no app is spread; default 500
	MaxHosts  int           // hosts of an app in one partition; default 100
}

// NewBalancer returns the balancer of a server.
func NewBalancer(r *View, cfg BalancerConfig, log *slog.Logger) *Balancer {
	settle := cmp.Or(cfg.Settle, PartitionSettles)
	return &Balancer{
		view: r, log: log, cfg: balance.Config{Settle: settle}, splits: newSplits(cfg.SplitRate, cfg.MaxHosts, settle),
		since: map[string]tenure{}, moves: map[string]passage{},
	}
}

func (s *Balancer) work() string { return s.view.Group }

// Run decides again and again until ctx ends.
func (s *Balancer) Run(ctx context.Context) error {
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	for {
		changed := s.view.Change()
		s.look(ctx)
		// A change of the cluster view leads to a decision at once, but not until a
		// moment after the last one: reports alone change it often.
		if !wait.For(ctx, balanceEvery/10) {
			return nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Balancer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	leads, _, err := s.view.Etcd.Elect(ctx, s.work())
	if err != nil || !leads {
		s.leads = false
		return
	}
	if !s.leads {
		s.leads, s.began = true, time.Now()
		clear(s.since)
		clear(s.moves)
		s.log.Info("this server is the balancer of the cluster now", "group", s.view.Group)
	}
	v := s.view.Snapshot()
	now := time.Now()
	if !v.received || len(v.Wants) == 0 && now.Sub(s.began) < balanceGathers {
		return
	}
	for partition, to := range s.decide(v, now) {
		if err := s.view.Etcd.Note(ctx, s.view.Group, RowWant+partition, to, false); err != nil {
			s.log.Warn("a decision could not be written", "partition", partition, "to", to, "error", err)
			return
		}
	}
	s.spread(ctx, &v, now)
	s.divide(ctx, &v, now)
}

// decide returns the new desired owners, by partition.
func (s *Balancer) decide(v Snapshot, now time.Time) map[string]string {
	v.Draining = v.withheld()
	wants := map[string]string{}
	state := balance.State{Partitions: s.partitions(v, now, wants)}
	state.Servers = serversOf(v)
	d := balance.Decide(s.cfg, state, now)
	for _, m := range d.Moves {
		if m.From == "" {
			m.To = fit(v, m.Partition, m.To)
		}
		wants[m.Partition] = m.To
		if v.Wants[m.Partition] != m.To {
			s.log.Info("a partition moves", "partition", m.Partition, "from", m.From, "to", m.To)
		}
	}
	for partition, to := range wants {
		if v.Wants[partition] == to {
			delete(wants, partition)
		}
	}
	return wants
}

// tripNoise is by how much round trips differ although no server is far away.
const tripNoise = 10 * time.Millisecond

// serversOf returns the servers as the balancer's algorithm takes them. While a server does
// not report its capacity, as those of older versions, all have the same. Only the time
// that a round trip takes longer than the quickest one counts: the time of etcd itself is
// in all of them.
func serversOf(v Snapshot) (all []balance.Server) {
	told, quickest := true, int64(math.MaxInt64)
	for _, p := range v.Servers {
		told = told && p.Capacity > 0
		if p.TripUs > 0 {
			quickest = min(quickest, p.TripUs)
		}
	}
	for id, p := range v.Servers {
		s := balance.Server{ID: id, Zone: p.Zone, Draining: v.Draining[id]}
		if p.TripUs > 0 {
			s.Trip = max(0, time.Duration(p.TripUs-quickest)*time.Microsecond-tripNoise)
		}
		if told {
			s.Capacity = p.Capacity
		}
		all = append(all, s)
	}
	return all
}

// hostsZone returns the zone in which most partitions have most of their hosts. It is
// used for a partition without an owner: hosts serve all partitions.
func hostsZone(v Snapshot) string {
	partitions, best := map[string]int{}, ""
	for _, p := range v.Servers {
		for _, r := range p.Owns {
			if r.Zone != "" {
				partitions[r.Zone]++
			}
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(partitions)) {
		if best == "" || partitions[zone] > partitions[best] {
			best = zone
		}
	}
	return best
}

// fit returns the new owner of a partition that has none: the chosen server, unless it
// lacks the state; then the one that has applied most of the journal. If none can take
// it, it stays with the first choice until a server comes that has the state.
func fit(v Snapshot, partition, chosen string) string {
	if !v.Servers[chosen].Follows[partition].Behind {
		return chosen
	}
	best := chosen
	for _, id := range slices.Sorted(maps.Keys(v.Servers)) {
		f, follows := v.Servers[id].Follows[partition]
		if !follows || f.Behind || v.Draining[id] {
			continue
		}
		if best == chosen || f.Applied > v.Servers[best].Follows[partition].Applied {
			best = id
		}
	}
	return best
}

// partitions returns the partitions as the balancer's algorithm takes them. It writes into
// wants the decisions that are independent of it: an owner keeps its partition if the
// server that should take it was lost, is drained or does not come.
func (s *Balancer) partitions(v Snapshot, now time.Time, wants map[string]string) (all []balance.Partition) {
	zone := hostsZone(v)
	for _, partition := range v.Partitions {
		owner := v.Owners[partition].Server
		if _, here := v.Servers[owner]; !here {
			owner = "" // its lease has ended, or is about to
		}
		t, seen := s.since[partition]
		if !seen || t.owner != owner {
			t = tenure{owner: owner}
			if seen {
				t.at = now
			}
			s.since[partition] = t
		}
		report := v.Servers[owner].Owns[partition]
		p := balance.Partition{Name: partition, Owner: owner, Rate: report.Rate, Zone: cmp.Or(report.Zone, zone), Since: t.at}
		want := v.Wants[partition]
		_, alive := v.Servers[want]
		switch {
		case want == owner && owner != "", owner == "" && !alive:
			delete(s.moves, partition)
		case !alive:
			wants[partition] = owner
			delete(s.moves, partition)
		default: // moving, or about to be taken by a live server
			under := s.moves[partition]
			if under.to != want {
				under = passage{want, now}
				s.moves[partition] = under
			}
			patience := balancePatience
			if owner == "" {
				patience = orphanPatience
			}
			if p.To = want; now.Sub(under.at) > patience {
				p.To = ""
				if owner != "" {
					s.log.Warn("a partition stays where it is: the server that was to take it does not", "partition", partition, "owner", owner, "to", want)
					wants[partition] = owner
					t.at = now // so that it is not sent there again at once
					s.since[partition], p.Since = t, now
				}
				delete(s.moves, partition)
			}
			if v.Draining[want] && !v.Draining[owner] && owner != "" {
				p.To, wants[partition] = "", owner // it was moving to a server that is drained now
			}
		}
		all = append(all, p)
	}
	return all
}

// Leader returns the id of the server whose balancer decides now; "": there is none.
func (s *Balancer) Leader(ctx context.Context) (string, error) {
	o, ok, err := s.view.Etcd.Elected(ctx, s.work())
	if err != nil || !ok {
		return "", err
	}
	return o.Server, nil
}
