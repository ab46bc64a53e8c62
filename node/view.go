package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

// clusterView is the cluster view of a server: a watched copy of the cluster's table and of
// the ownerships in etcd. It may be late, which costs a refusal or a wait. When
// something is written, etcd decides whether it is right.
//
// The rows of the table, whose name is the cluster name:
//
//	units           the names of the partitions, as JSON; the first server writes it
//	app/APP         the primary partition of an app: written once, when the app is first seen
//	known/UNIT      an owner has written the apps that the partition holds
//	server/ID       a [presence], under the server's lease
//	want/UNIT       the id of the desired owner
//	ready/UNIT/ID   the epoch of the ownership after which this server can take over, under its lease
//	drain/ID        the server should own nothing
//	division        the host assignment, an apiv1.HostAssignment as JSON; the balancer writes it
//	key             the token by which servers know each other; the first one writes it
type clusterView struct {
	cluster *etcd.Cluster
	group   string
	self    string // the server's id
	address string // at which others reach it
	log     *slog.Logger

	anySplit atomic.Bool // some app is split

	mu             sync.Mutex
	heard          [2]bool // whether the table, and the owners, were received
	partitions     []string
	apps           map[string]string
	known          map[string]bool
	servers        map[string]*presence
	wants          map[string]string
	ready          map[string]uint64 // by UNIT/ID
	draining       map[string]bool
	owners         map[string]etcd.Owner
	placements     placements
	hostAssignment hostAssignment
	divides        bool          // all servers know host assignments
	changed        chan struct{} // closed and replaced at every change
	// routed is closed and replaced when an owner or the host assignment changes. Hosts
	// wait for nothing else, and there are many of them.
	routed chan struct{}
}

// presence is what a server reports of itself.
type presence struct {
	Address string `json:"address"`
	Version string `json:"version"`
	At      int64  `json:"at"` // Unix milliseconds, by the server's clock
	// For the balancer: its zone, its capacity relative to the other servers, and its
	// round trip to etcd in microseconds, without which nothing becomes durable.
	Zone     string                     `json:"zone,omitempty"`
	Capacity float64                    `json:"capacity,omitempty"`
	TripUs   int64                      `json:"trip_us,omitempty"`
	Splits   bool                       `json:"splits,omitempty"`  // it knows apps that are split
	Divides  bool                       `json:"divides,omitempty"` // it knows host assignments
	Passes   bool                       `json:"passes,omitempty"`  // it takes calls that servers pass on, see [forwarder]
	Owns     map[string]partitionReport `json:"owns"`              // by partition
	Follows  map[string]followState     `json:"follows"`
}

// partitionReport is what the owner of a partition reports of it.
type partitionReport struct {
	Rate  float64 `json:"rate"` // schedules a second
	Hosts int     `json:"hosts"`
	Apps  int     `json:"apps"`
	Zone  string  `json:"zone,omitempty"` // of most of its hosts
	// Rates are the schedules a second of each slot, for the apps with the most.
	Rates map[string][]float64 `json:"rates,omitempty"`
	// Stuck maps an app to the reason why one of its slots cannot move.
	Stuck map[string]string `json:"stuck,omitempty"`
	demandReport
}

// followState is the progress of a standby.
type followState struct {
	Applied uint64 `json:"applied"`
	// Behind reports that the standby cannot own the partition before it has fetched the
	// state from a server that has it.
	Behind bool `json:"behind,omitempty"`
}

const (
	rowPartitions = "units"
	rowApp        = "app/"
	rowKnown      = "known/"
	rowHere       = "server/"
	rowWant       = "want/"
	rowReady      = "ready/"
	rowDrain      = "drain/"
	rowAssignment = "division"
	rowKey        = "key" // the token by which the servers of the cluster know each other
)

func newClusterView(c *etcd.Cluster, group, self, address string, log *slog.Logger) *clusterView {
	r := &clusterView{cluster: c, group: group, self: self, address: address, log: log, changed: make(chan struct{}), routed: make(chan struct{}), owners: map[string]etcd.Owner{}}
	r.reset()
	return r
}

func (r *clusterView) reset() {
	r.apps, r.known, r.servers = map[string]string{}, map[string]bool{}, map[string]*presence{}
	r.wants, r.ready, r.draining = map[string]string{}, map[string]uint64{}, map[string]bool{}
	r.placements = newPlacements()
	r.hostAssignment.hear("", true)
}

// begin sets the partitions of the cluster, unless an earlier server did, and reads which
// there are.
func (r *clusterView) begin(ctx context.Context, partitions int) error {
	names := []string{r.group}
	for i := 1; i < partitions; i++ {
		names = append(names, fmt.Sprintf("%s.%d", r.group, i))
	}
	row, err := json.Marshal(names)
	if err != nil {
		return err
	}
	stands, err := r.cluster.First(ctx, r.group, rowPartitions, string(row))
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(stands), &r.partitions); err != nil || len(r.partitions) == 0 {
		return fmt.Errorf("etcd says that %q are the units of the group %s, which names none", stands, r.group)
	}
	if partitions > 0 && len(r.partitions) != partitions {
		r.log.Info("the number of units is that with which the cluster began", "units", len(r.partitions), "asked", partitions)
	}
	return nil
}

// follow keeps the cluster view up to date until ctx ends.
func (r *clusterView) follow(ctx context.Context) error {
	var wg sync.WaitGroup
	again := func(what string, f func() error) {
		for ctx.Err() == nil {
			if err := f(); err != nil && ctx.Err() == nil {
				r.log.Warn("etcd does not say "+what, "error", err)
				pause(ctx, 200*time.Millisecond)
			}
		}
	}
	wg.Go(func() {
		again("who is in the cluster", func() error { return r.cluster.Facts(ctx, r.group, r.hear) })
	})
	wg.Go(func() {
		again("who owns what", func() error { return r.cluster.Owners(ctx, r.hearOwners) })
	})
	wg.Wait()
	return nil
}

func (r *clusterView) hear(facts []etcd.Fact, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if whole {
		r.reset()
		r.heard[0] = true
	}
	for _, f := range facts {
		r.hearFact(f)
	}
	r.anySplit.Store(len(r.placements.had) > 0)
	r.noteDividesLocked()
	if whole || slices.ContainsFunc(facts, func(f etcd.Fact) bool { return f.Key == rowAssignment || strings.HasPrefix(f.Key, rowApp) }) {
		r.rerouteLocked()
	}
	r.notifyLocked()
}

// hearFact takes in a row. A row that makes no sense comes from a newer version, and is
// ignored.
func (r *clusterView) hearFact(f etcd.Fact) {
	kind, rest, _ := strings.Cut(f.Key, "/")
	if r.placements.hear(kind+"/", rest, f.Value, f.Deleted) {
		return
	}
	switch kind + "/" {
	case rowApp:
		if app, err := url.PathUnescape(rest); err == nil {
			set(r.apps, app, f.Value, f.Deleted)
		}
	case rowKnown:
		set(r.known, rest, true, f.Deleted)
	case rowHere:
		p := &presence{}
		if err := json.Unmarshal([]byte(f.Value), p); err != nil && !f.Deleted {
			r.log.Warn("a server says of itself what this one does not understand", "server", rest, "error", err)
			return
		}
		set(r.servers, rest, p, f.Deleted)
	case rowWant:
		set(r.wants, rest, f.Value, f.Deleted)
	case rowReady:
		epoch, err := strconv.ParseUint(f.Value, 10, 64)
		set(r.ready, rest, epoch, f.Deleted || err != nil)
	case rowAssignment + "/":
		if err := r.hostAssignment.hear(f.Value, f.Deleted); err != nil {
			r.log.Warn("the host assignment that the balancer wrote cannot be read", "error", err)
		}
	case rowDrain:
		set(r.draining, rest, true, f.Deleted)
	}
}

func set[V any](m map[string]V, key string, v V, deleted bool) {
	if deleted {
		delete(m, key)
		return
	}
	m[key] = v
}

func (r *clusterView) hearOwners(owners map[string]etcd.Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard[1] = true
	if !maps.Equal(r.owners, owners) {
		r.rerouteLocked()
	}
	r.owners = owners
	r.notifyLocked()
}

// notifyLocked wakes the waiters for a change. The caller holds r.mu.
func (r *clusterView) notifyLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// rerouteLocked wakes the waiters for another assignment. The caller holds r.mu.
func (r *clusterView) rerouteLocked() {
	close(r.routed)
	r.routed = make(chan struct{})
}

// reroute returns a channel that is closed when an assignment may have changed.
func (r *clusterView) reroute() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.routed
}

// change returns a channel that is closed at the next change. It must be called before
// the state is read that the caller waits for.
func (r *clusterView) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// view is a copy of the cluster view at one moment.
type view struct {
	heard          bool // the table and the owners were received
	partitions     []string
	apps           int
	known          map[string]bool
	servers        map[string]presence
	wants          map[string]string
	ready          map[string]uint64
	draining       map[string]bool
	owners         map[string]etcd.Owner
	homes          map[string]string     // primary partitions by app: only of apps in places
	placements     placements            // of apps that are split, or should be
	hostAssignment *apiv1.HostAssignment // nil: none was ever decided; must not be changed
}

func (r *clusterView) look() view {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := view{
		heard: r.heard[0] && r.heard[1], partitions: r.partitions, apps: len(r.apps),
		known: maps.Clone(r.known), servers: map[string]presence{}, wants: maps.Clone(r.wants),
		ready: maps.Clone(r.ready), draining: maps.Clone(r.draining), owners: maps.Clone(r.owners),
	}
	for id, p := range r.servers {
		v.servers[id] = *p
	}
	v.hostAssignment = r.hostAssignment.is
	v.placements, v.homes = r.placements.clone(), map[string]string{}
	for app, home := range r.apps {
		if _, ok := v.placements.wishes[app]; ok || len(v.placements.had[app]) > 0 {
			v.homes[app] = home
		}
	}
	return v
}

// lasting reads from etcd the rows that outlive every server: a restored cluster begins
// with these. Servers write the other rows again.
func (r *clusterView) lasting(ctx context.Context) (map[string]string, error) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var rows map[string]string
	err := r.cluster.Facts(ctx, r.group, func(facts []etcd.Fact, whole bool) {
		if rows != nil || !whole {
			return
		}
		rows = map[string]string{}
		for _, f := range facts {
			switch kind, _, _ := strings.Cut(f.Key, "/"); kind + "/" {
			case rowPartitions + "/", rowKey + "/", rowKnown, rowHere, rowWant, rowReady, rowDrain, rowAssignment + "/":
			default:
				rows[f.Key] = f.Value
			}
		}
		enough()
	})
	if rows != nil {
		return rows, nil
	}
	return nil, err
}

// standing is the state of one partition.
type standing struct {
	owner etcd.Owner // Server is "" when there is none
	want  string     // desired owner, if it is live; "": none
	ready bool       // the desired owner can take over from this owner
}

func (r *clusterView) standing(partition string) standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := standing{owner: r.owners[partition]}
	if want := r.wants[partition]; r.servers[want] != nil || want == r.self {
		s.want = want
		s.ready = s.owner.Server != "" && r.ready[partition+"/"+want] == s.owner.Epoch
	}
	return s
}

// partitionOf returns the primary partition of an app; ok is false when it has none yet.
func (r *clusterView) partitionOf(app string) (partition string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	partition, ok = r.apps[app]
	return partition, ok
}

// hasHeard reports whether the cluster's table was ever received.
func (r *clusterView) hasHeard() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[0]
}

// fallback returns the partition that answers for apps without a partition: like all
// others, it holds nothing of them.
func (r *clusterView) fallback() string { return r.partitions[0] }

// assignment returns the owner of a partition. It names no server if there is none, or if
// it is an earlier one at this server's address: that one is gone, although etcd names it
// until its lease ends, and a call sent there would come back here.
func (r *clusterView) assignment(partition string) *apiv1.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owners[partition]
	if o.Server != r.self && o.Address == r.address {
		o.Server, o.Address = "", ""
	}
	return &apiv1.Assignment{Server: o.Server, Address: o.Address, Epoch: o.Epoch, Unit: partition, Units: r.partitions}
}

// passable reports whether the server of an assignment takes calls that other servers
// pass on; servers of older versions do not.
func (r *clusterView) passable(a *apiv1.Assignment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.servers[a.Server]
	return p != nil && p.Passes
}

// place gives an app without a partition one: that with the smallest schedule rate. It
// fails while a partition has not reported which apps it holds, because the app may be
// one of them.
func (r *clusterView) place(ctx context.Context, app string) (string, error) {
	partition, err := r.emptiest()
	if err != nil {
		return "", err
	}
	partition, err = r.cluster.First(ctx, r.group, rowApp+url.PathEscape(app), partition)
	if err != nil {
		return "", fmt.Errorf("give the app %s a place: %w", app, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apps[app] = partition
	return partition, nil
}

// emptiest returns the partition for a new app: the one with the smallest rate, as its
// owner reported it, plus placeCost for each of its apps.
func (r *clusterView) emptiest() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rates, apps := map[string]float64{}, map[string]int{}
	for _, p := range r.servers {
		for partition, u := range p.Owns {
			rates[partition] += u.Rate
		}
	}
	for _, partition := range r.apps {
		apps[partition]++
	}
	best := ""
	for _, partition := range r.partitions {
		if !r.known[partition] {
			return "", fmt.Errorf("the unit %s has had no owner yet, so nobody knows which apps it holds", partition)
		}
		if best == "" || rates[partition]+placeCost*float64(apps[partition]) < rates[best]+placeCost*float64(apps[best]) {
			best = partition
		}
	}
	return best, nil
}

// placeCost is the rate, in schedules a second, for which each app of a partition counts
// when another one is placed: a new app has no rate yet.
const placeCost = 0.2

// declare writes the apps that a partition holds. Its owner calls it before it serves the
// partition.
func (r *clusterView) declare(ctx context.Context, partition string, apps []string) error {
	for _, app := range slices.Sorted(slices.Values(apps)) {
		if at, ok := r.partitionOf(app); ok && at == partition {
			continue
		}
		at, err := r.cluster.First(ctx, r.group, rowApp+url.PathEscape(app), partition)
		if err != nil {
			return err
		}
		if at != partition {
			r.log.Error("an app is in two units: what one of them holds of it is not seen", "app", app, "unit", partition, "other", at)
		}
	}
	_, err := r.cluster.First(ctx, r.group, rowKnown+partition, "1")
	return err
}

// find returns the id of a server by id or address.
func (v view) find(name string) (string, error) {
	if _, ok := v.servers[name]; ok {
		return name, nil
	}
	for id, p := range v.servers {
		if p.Address == name {
			return id, nil
		}
	}
	return "", fmt.Errorf("no server that lives has the id or the address %q: `wheelwork cluster status` shows them", name)
}

// poke wakes the waiters for a change after a change in this server.
func (r *clusterView) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notifyLocked()
}

// appsOf returns the apps whose primary partition this is.
func (r *clusterView) appsOf(partition string) (apps []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for app, at := range r.apps {
		if at == partition {
			apps = append(apps, app)
		}
	}
	return apps
}
