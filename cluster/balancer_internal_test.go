package cluster

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
)

// sight is the input of a balancer, made by hand.
type sight struct {
	Snapshot
	now time.Time
	s   *Balancer
}

func newSight(partitions int, servers ...string) *sight {
	s := &sight{now: time.Unix(1_800_000_000, 0), s: NewBalancer(&View{}, BalancerConfig{Settle: 10 * time.Second}, slog.New(slog.DiscardHandler))}
	s.Servers, s.Owners, s.Wants, s.Draining = map[string]Presence{}, map[string]etcd.Owner{}, map[string]string{}, map[string]bool{}
	for i := range partitions {
		s.Partitions = append(s.Partitions, fmt.Sprint("u", i))
	}
	for _, id := range servers {
		s.join(id)
	}
	return s
}

func (s *sight) join(id string) { s.Servers[id] = Presence{Owns: map[string]PartitionReport{}} }

func (s *sight) lose(id string) {
	delete(s.Servers, id)
	for partition, o := range s.Owners {
		if o.Server == id {
			delete(s.Owners, partition)
		}
	}
}

func (s *sight) rate(partition string, rate float64) {
	s.Servers[s.Owners[partition].Server].Owns[partition] = PartitionReport{Rate: rate}
}

// decide makes one decision of the balancer and records the desired owners.
func (s *sight) decide() map[string]string {
	d := s.s.decide(s.Snapshot, s.now)
	maps.Copy(s.Wants, d)
	return d
}

// obey moves every partition to its desired owner.
func (s *sight) obey() {
	for partition, to := range s.Wants {
		if p, ok := s.Servers[to]; ok && s.Owners[partition].Server != to {
			p.Owns[partition] = s.Servers[s.Owners[partition].Server].Owns[partition]
			if from, ok := s.Servers[s.Owners[partition].Server]; ok {
				delete(from.Owns, partition)
			}
			s.Owners[partition] = etcd.Owner{Server: to, Epoch: s.Owners[partition].Epoch + 1}
		}
	}
}

// settle decides and obeys once a second for d, and returns the number of moves.
func (s *sight) settle(d time.Duration) (moves int) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(time.Second) {
		moves += len(s.decide())
		s.obey()
	}
	return moves
}

func (s *sight) owned() map[string]int {
	n := map[string]int{}
	for _, o := range s.Owners {
		n[o.Server]++
	}
	return n
}

func TestBalancerSpreadsUnits(t *testing.T) {
	s := newSight(6, "a")
	s.settle(5 * time.Second)
	if n := s.owned(); n["a"] != 6 {
		t.Fatalf("alone: %v", n)
	}
	s.join("b")
	s.join("c")
	s.settle(30 * time.Second)
	if n := s.owned(); n["a"] != 2 || n["b"] != 2 || n["c"] != 2 {
		t.Fatalf("of three: %v", n)
	}
	if moves := s.settle(10 * time.Minute); moves != 0 {
		t.Errorf("%d moves though nothing happened", moves)
	}
	s.lose("b")
	if d := s.decide(); len(d) != 2 { // at once: until then nothing of these partitions is scheduled
		t.Fatalf("decided %v for the partitions of a server that is lost", d)
	}
	s.obey()
	if n := s.owned(); n["a"] != 3 || n["c"] != 3 {
		t.Errorf("its partitions are not spread over the others: %v", n)
	}
}

// TestBalancerFollowsTheLoad: a hot partition ends up alone on its server, and noise moves
// nothing.
func TestBalancerFollowsTheLoad(t *testing.T) {
	s := newSight(4, "a", "b")
	s.settle(30 * time.Second)
	hot := ""
	for partition, o := range s.Owners {
		if o.Server == "a" {
			hot = partition
		}
		s.rate(partition, 10)
	}
	s.rate(hot, 1000)
	s.settle(time.Minute)
	if n := s.owned(); n[s.Owners[hot].Server] != 1 {
		t.Errorf("the hot partition %s is not alone: %v", hot, s.Owners)
	}
	for i := range 300 { // the rates vary by a tenth
		for partition := range s.Owners {
			rate := 10.0
			if partition == hot {
				rate = 1000
			}
			s.rate(partition, rate*(1+0.1*float64((i+len(partition))%3-1)))
		}
		if moves := s.settle(time.Second); moves != 0 {
			t.Fatalf("noise moved %d partitions in second %d", moves, i)
		}
	}
}

func TestBalancerDrains(t *testing.T) {
	s := newSight(4, "a", "b", "c")
	s.settle(10 * time.Second)
	s.Draining["b"] = true
	s.settle(3 * time.Second)
	if n := s.owned(); n["b"] != 0 {
		t.Fatalf("the drained server owns %v", n)
	}
	if s.settle(time.Minute); s.owned()["b"] != 0 {
		t.Error("the drained server was given something")
	}
	delete(s.Draining, "b")
	s.settle(time.Minute)
	if n := s.owned(); n["b"] == 0 {
		t.Errorf("undrained, it owns nothing: %v", n)
	}
	s.Draining["a"], s.Draining["b"], s.Draining["c"] = true, true, true
	if d := s.decide(); len(d) != 0 {
		t.Errorf("nobody may own anything, and %v is decided", d)
	}
}

// TestBalancerAndServersThatDoNotTake: a partition that is moving to a server that does
// not take it stays, or goes to another one. If that server is lost or drained meanwhile,
// the partition stays at once.
func TestBalancerAndServersThatDoNotTake(t *testing.T) {
	begin := func() (s *sight, partition, to string) {
		s = newSight(2, "a", "b")
		s.settle(30 * time.Second)
		partition, to = "u0", "a"
		if s.Owners[partition].Server == "a" {
			to = "b"
		}
		s.Wants[partition] = to // as an operator requested
		return s, partition, to
	}
	s, partition, _ := begin()
	owner := s.Owners[partition].Server
	for range int(balancePatience / time.Second) {
		if to, ok := s.decide()[partition]; ok {
			t.Fatalf("it is to go to %s while it is on its way", to)
		}
		s.Wants["u1"] = s.Owners["u1"].Server // other decisions of the balancer do not matter here
		s.now = s.now.Add(time.Second)
	}
	s.now = s.now.Add(time.Second)
	if d := s.decide(); d[partition] != owner {
		t.Errorf("after %v: %v, want it to stay with %s", balancePatience, d, owner)
	}

	// The balancer has chosen the move, and withdraws it for a while.
	s = newSight(2, "a")
	s.settle(30 * time.Second)
	s.join("b")
	moved := s.decide()
	if len(moved) != 1 {
		t.Fatalf("an idle server is given %v", moved)
	}
	s.now = s.now.Add(balancePatience + time.Second)
	for partition := range moved {
		s.decide()
		s.now = s.now.Add(balancePatience + time.Second)
		if d := s.decide(); d[partition] != "a" {
			t.Errorf("after %v: %v, want it to stay with its owner", balancePatience, d)
		}
	}

	s, partition, to := begin()
	owner = s.Owners[partition].Server
	s.decide()
	s.lose(to)
	if d := s.decide(); d[partition] != owner {
		t.Errorf("its taker is lost: %v", d)
	}

	s, partition, to = begin()
	owner = s.Owners[partition].Server
	s.decide()
	s.Draining[to] = true
	if d := s.decide(); d[partition] != owner {
		t.Errorf("its taker is drained: %v", d)
	}

	s, partition, _ = begin()
	owner = s.Owners[partition].Server
	s.rate("u1", 1000)          // the taker has the other partition
	delete(s.Owners, partition) // its owner gave it up, and the taker does not come
	if to, ok := s.decide()[partition]; ok {
		t.Errorf("it is given to %s before its taker had time", to)
	}
	s.now = s.now.Add(orphanPatience + time.Second)
	if d := s.decide(); d[partition] != owner {
		t.Errorf("an orphan is given away as %v, want it to go to %s, who has time", d, owner)
	}
}

// TestBalancerWithholdsFromOlderServers: from the first split app on, a server that does
// not understand split apps owns nothing.
func TestBalancerWithholdsFromOlderServers(t *testing.T) {
	s := newSight(3, "a", "b", "old")
	for id, p := range s.Servers {
		p.Splits = id != "old"
		s.Servers[id] = p
	}
	s.placements = newPlacements()
	s.placements.desired["app"] = DesiredPlacement{Units: slices.Repeat([]string{"u0"}, job.Slots)} // the app should be in one partition
	if s.settle(time.Minute); s.owned()["old"] != 1 {
		t.Fatalf("before an app is split: %v", s.owned())
	}
	s.placements.desired["app"] = DesiredPlacement{Units: slices.Concat(slices.Repeat([]string{"u0"}, job.Slots-1), []string{"u1"})}
	if s.settle(time.Minute); s.owned()["old"] != 0 || s.owned()["a"]+s.owned()["b"] != 3 {
		t.Errorf("when one is: %v", s.owned())
	}
	if s.Draining["old"] {
		t.Error("nobody has drained it")
	}
	// An app that was split and merged again still counts, because the journals still
	// hold the moves.
	delete(s.placements.desired, "app")
	s.placements.had["app"] = map[string]bool{"u1": true}
	if s.settle(time.Minute); s.owned()["old"] != 0 {
		t.Errorf("when one was: %v", s.owned())
	}
	if err := s.MaySplit(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "bring it up to date") {
		t.Errorf("more may be split: %v", err)
	}
}

// TestBalancerPassesOverThoseBehind: a partition without an owner goes to a server that
// has its state, and does not wait for ever for one that cannot take it.
func TestBalancerPassesOverThoseBehind(t *testing.T) {
	s := newSight(1, "a", "b", "c")
	follows := func(id string, f FollowState) {
		p := s.Servers[id]
		p.Follows = map[string]FollowState{"u0": f}
		s.Servers[id] = p
	}
	for id := range s.Servers {
		follows(id, FollowState{Behind: true})
	}
	s.decide()
	first := s.Wants["u0"]
	if first == "" {
		t.Fatal("nobody is wanted")
	}
	rest := map[string]bool{"a": true, "b": true, "c": true}
	delete(rest, first)
	n := uint64(10)
	var most string
	for id := range rest {
		follows(id, FollowState{Applied: n})
		most = id
		n++
	}
	for range 5 { // that server does not take it
		s.now = s.now.Add(time.Second)
		s.decide()
	}
	if got := s.Wants["u0"]; got != most {
		t.Errorf("the partition is to go to %s, want %s", got, most)
	}
	s.Draining[most] = true
	for id := range rest {
		if id != most {
			if got := fit(s.Snapshot, "u0", first); got != id {
				t.Errorf("with %s draining the partition is to go to %s, want %s", most, got, id)
			}
		}
	}
}

// TestSeats: the balancer uses what servers report of themselves.
func TestSeats(t *testing.T) {
	of := func(all map[string]Presence, draining ...string) map[string]balance.Server {
		v := Snapshot{Servers: all, Draining: map[string]bool{}}
		for _, id := range draining {
			v.Draining[id] = true
		}
		got := map[string]balance.Server{}
		for _, s := range serversOf(v) {
			got[s.ID] = s
		}
		return got
	}
	got := of(map[string]Presence{
		"a": {Zone: "z1", Capacity: 2, TripUs: 1500}, "b": {Zone: "z2", Capacity: 8, TripUs: 41_500}, "c": {Capacity: 4, TripUs: 9500},
	}, "c")
	want := map[string]balance.Server{
		"a": {ID: "a", Zone: "z1", Capacity: 2}, "b": {ID: "b", Zone: "z2", Capacity: 8, Trip: 40*time.Millisecond - tripNoise}, "c": {ID: "c", Capacity: 4, Draining: true},
	}
	if !maps.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for id, s := range of(map[string]Presence{"a": {Capacity: 8}, "old": {}}) {
		if s.Capacity != 0 {
			t.Errorf("beside one that says nothing, %s counts %v", id, s.Capacity)
		}
	}
	if got := of(nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestBalancerWeighs: partitions are shared by the capacity of servers, servers far from
// the journal get fewer, and a partition goes to the zone of its hosts.
func TestBalancerWeighs(t *testing.T) {
	say := func(s *sight, id string, change func(*Presence)) {
		p := s.Servers[id]
		change(&p)
		s.Servers[id] = p
	}
	rates := func(s *sight) {
		for partition := range s.Owners {
			s.rate(partition, 10)
		}
	}
	for name, c := range map[string]struct {
		change func(*Presence) // of b
		b      int             // of six partitions
	}{
		"as strong":    {func(p *Presence) { p.Capacity = 4 }, 3},
		"near":         {func(p *Presence) { p.Capacity, p.TripUs = 4, 10_000 }, 3},
		"half as much": {func(p *Presence) { p.Capacity = 2 }, 2},
		"far":          {func(p *Presence) { p.Capacity, p.TripUs = 4, 61_000 }, 2},
		"unknown":      {func(*Presence) {}, 3},
	} {
		s := newSight(6, "a", "b")
		say(s, "a", func(p *Presence) { p.Capacity, p.TripUs = 4, 1000 })
		say(s, "b", c.change)
		s.settle(5 * time.Second)
		rates(s)
		s.settle(5 * time.Minute)
		if n := s.owned(); n["b"] != c.b {
			t.Errorf("%s: %v, want %d for b", name, n, c.b)
		}
	}
	// The partition of a lost server goes to the zone of the hosts, although another idle
	// server comes first by its name.
	for zone, to := range map[string]string{"z1": "a", "z2": "b", "": "a", "z9": "a"} {
		s := newSight(2, "a", "b", "c", "d")
		for id, zone := range map[string]string{"a": "z1", "b": "z2", "c": "z1", "d": "z1"} {
			say(s, id, func(p *Presence) { p.Zone = zone })
		}
		s.Owners["u0"], s.Owners["u1"] = etcd.Owner{Server: "c", Epoch: 1}, etcd.Owner{Server: "d", Epoch: 1}
		s.Wants["u0"], s.Wants["u1"] = "c", "d"
		s.Servers["c"].Owns["u0"] = PartitionReport{Rate: 10, Zone: zone}
		s.Servers["d"].Owns["u1"] = PartitionReport{Rate: 10, Zone: zone}
		s.decide()
		s.lose("c")
		if d := s.decide(); d["u0"] != to {
			t.Errorf("with the hosts in %q the partition goes to %v, want %s", zone, d, to)
		}
	}
}
