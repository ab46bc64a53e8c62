package cluster

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
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

// View is the cluster view of a server: a watched copy of the cluster's table and of
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
type View struct {
	Etcd    *etcd.Cluster
	Group   string
	Self    string // the server's id
	address string // at which others reach it
	log     *slog.Logger

	anySplit atomic.Bool // some app is split

	mu             sync.Mutex
	received       [2]bool // whether the table, and the owners, were received
	Partitions     []string
	apps           map[string]string
	known          map[string]bool
	servers        map[string]*Presence
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

// Presence is what a server reports of itself.
type Presence struct {
	Address string `json:"address"`
	Version string `json:"version"`
	At      int64  `json:"at"` // Unix milliseconds, by the server's clock
	// For the balancer: its zone, its capacity relative to the other servers, and its
	// round trip to etcd in microseconds, without which nothing becomes durable.
	Zone      string                     `json:"zone,omitempty"`
	Capacity  float64                    `json:"capacity,omitempty"`
	TripUs    int64                      `json:"trip_us,omitempty"`
	Splits    bool                       `json:"splits,omitempty"`      // it knows apps that are split
	Divides   bool                       `json:"divides,omitempty"`     // it knows host assignments
	Passes    bool                       `json:"passes,omitempty"`      // it takes calls that servers pass on, see [forwarder]
	Certified bool                       `json:"certified,omitempty"`   // it knows other servers by their certificates
	Keys      []string                   `json:"secret_keys,omitempty"` // ids of the keys that open secrets
	Owns      map[string]PartitionReport `json:"owns"`                  // by partition
	Follows   map[string]FollowState     `json:"follows"`
}

// PartitionReport is what the owner of a partition reports of it.
type PartitionReport struct {
	Rate  float64 `json:"rate"` // schedules a second
	Hosts int     `json:"hosts"`
	Apps  int     `json:"apps"`
	Zone  string  `json:"zone,omitempty"` // of most of its hosts
	// Rates are the schedules a second of each slot, for the apps with the most.
	Rates map[string][]float64 `json:"rates,omitempty"`
	// Stuck maps an app to the reason why one of its slots cannot move.
	Stuck map[string]string `json:"stuck,omitempty"`
	DemandReport
}

// FollowState is the progress of a standby.
type FollowState struct {
	Applied uint64 `json:"applied"`
	// Behind reports that the standby cannot own the partition before it has fetched the
	// state from a server that has it.
	Behind bool `json:"behind,omitempty"`
}

// The keys of the rows of the table, or their prefixes. The comment of [View] describes the
// values.
const (
	rowPartitions = "units"
	RowApp        = "app/"
	rowKnown      = "known/"
	RowHere       = "server/"
	RowWant       = "want/"
	RowReady      = "ready/"
	RowDrain      = "drain/"
	rowAssignment = "division"
	// RowAuthority is the authority of the machines of the cluster, sealed with the key of the secrets.
	RowAuthority = "authority"
	RowKey       = "key" // the token by which the servers of the cluster know each other
)

// NewView returns the view of the server self, which others reach at address. It is empty
// until Follow runs.
func NewView(c *etcd.Cluster, group, self, address string, log *slog.Logger) *View {
	r := &View{Etcd: c, Group: group, Self: self, address: address, log: log, changed: make(chan struct{}), routed: make(chan struct{}), owners: map[string]etcd.Owner{}}
	r.reset()
	return r
}

func (r *View) reset() {
	r.apps, r.known, r.servers = map[string]string{}, map[string]bool{}, map[string]*Presence{}
	r.wants, r.ready, r.draining = map[string]string{}, map[string]uint64{}, map[string]bool{}
	r.placements = newPlacements()
	r.hostAssignment.receive("", true)
}

// Begin sets the partitions of the cluster, unless an earlier server did, and reads which
// there are.
func (r *View) Begin(ctx context.Context, partitions int) error {
	names := []string{r.Group}
	for i := 1; i < partitions; i++ {
		names = append(names, fmt.Sprintf("%s.%d", r.Group, i))
	}
	row, err := json.Marshal(names)
	if err != nil {
		return err
	}
	stands, err := r.Etcd.First(ctx, r.Group, rowPartitions, string(row))
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(stands), &r.Partitions); err != nil || len(r.Partitions) == 0 {
		return fmt.Errorf("etcd says that %q are the partitions of the group %s, which names none", stands, r.Group)
	}
	if partitions > 0 && len(r.Partitions) != partitions {
		r.log.Info("the number of partitions is that with which the cluster began", "partitions", len(r.Partitions), "asked", partitions)
	}
	return nil
}

// Follow keeps the cluster view up to date until ctx ends.
func (r *View) Follow(ctx context.Context) error {
	var wg sync.WaitGroup
	again := func(what string, f func() error) {
		for ctx.Err() == nil {
			if err := f(); err != nil && ctx.Err() == nil {
				r.log.Warn("etcd does not send "+what, "error", err)
				wait.For(ctx, 200*time.Millisecond)
			}
		}
	}
	wg.Go(func() {
		again("the table of the cluster", func() error { return r.Etcd.Facts(ctx, r.Group, r.Receive) })
	})
	wg.Go(func() {
		again("the owners of partitions", func() error { return r.Etcd.Owners(ctx, r.ReceiveOwners) })
	})
	wg.Wait()
	return nil
}

// Receive takes in rows of the table. whole reports that there are no others.
func (r *View) Receive(facts []etcd.Fact, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if whole {
		r.reset()
		r.received[0] = true
	}
	for _, f := range facts {
		r.receiveFact(f)
	}
	r.anySplit.Store(len(r.placements.had) > 0)
	r.noteDividesLocked()
	if whole || slices.ContainsFunc(facts, func(f etcd.Fact) bool { return f.Key == rowAssignment || strings.HasPrefix(f.Key, RowApp) }) {
		r.rerouteLocked()
	}
	r.notifyLocked()
}

// hearFact takes in a row. A row that makes no sense comes from a newer version, and is
// ignored.
func (r *View) receiveFact(f etcd.Fact) {
	kind, rest, _ := strings.Cut(f.Key, "/")
	if r.placements.Receive(kind+"/", rest, f.Value, f.Deleted) {
		return
	}
	switch kind + "/" {
	case RowApp:
		if app, err := url.PathUnescape(rest); err == nil {
			set(r.apps, app, f.Value, f.Deleted)
		}
	case rowKnown:
		set(r.known, rest, true, f.Deleted)
	case RowHere:
		p := &Presence{}
		if err := json.Unmarshal([]byte(f.Value), p); err != nil && !f.Deleted {
			r.log.Warn("the row of a server cannot be read", "server", rest, "error", err)
			return
		}
		set(r.servers, rest, p, f.Deleted)
	case RowWant:
		set(r.wants, rest, f.Value, f.Deleted)
	case RowReady:
		epoch, err := strconv.ParseUint(f.Value, 10, 64)
		set(r.ready, rest, epoch, f.Deleted || err != nil)
	case rowAssignment + "/":
		if err := r.hostAssignment.receive(f.Value, f.Deleted); err != nil {
			r.log.Warn("the host assignment that the balancer wrote cannot be read", "error", err)
		}
	case RowDrain:
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

// ReceiveOwners takes in the owners of all partitions.
func (r *View) ReceiveOwners(owners map[string]etcd.Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received[1] = true
	if !maps.Equal(r.owners, owners) {
		r.rerouteLocked()
	}
	r.owners = owners
	r.notifyLocked()
}

// notifyLocked wakes the waiters for a change. The caller holds r.mu.
func (r *View) notifyLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// rerouteLocked wakes the waiters for another assignment. The caller holds r.mu.
func (r *View) rerouteLocked() {
	close(r.routed)
	r.routed = make(chan struct{})
}

// Reroute returns a channel that is closed when an assignment may have changed.
func (r *View) Reroute() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.routed
}

// Change returns a channel that is closed at the next change. It must be called before
// the state is read that the caller waits for.
func (r *View) Change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Snapshot is a copy of the cluster view at one moment.
type Snapshot struct {
	received       bool // the table and the owners were received
	Partitions     []string
	apps           int
	known          map[string]bool
	Servers        map[string]Presence
	Wants          map[string]string
	ready          map[string]uint64
	Draining       map[string]bool
	Owners         map[string]etcd.Owner
	homes          map[string]string     // primary partitions by app: only of apps in places
	placements     placements            // of apps that are split, or should be
	hostAssignment *apiv1.HostAssignment // nil: none was ever decided; must not be changed
}

// Snapshot returns a copy of the view.
func (r *View) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Snapshot{
		received: r.received[0] && r.received[1], Partitions: r.Partitions, apps: len(r.apps),
		known: maps.Clone(r.known), Servers: map[string]Presence{}, Wants: maps.Clone(r.wants),
		ready: maps.Clone(r.ready), Draining: maps.Clone(r.draining), Owners: maps.Clone(r.owners),
	}
	for id, p := range r.servers {
		v.Servers[id] = *p
	}
	v.hostAssignment = r.hostAssignment.is
	v.placements, v.homes = r.placements.clone(), map[string]string{}
	for app, home := range r.apps {
		if _, ok := v.placements.desired[app]; ok || len(v.placements.had[app]) > 0 {
			v.homes[app] = home
		}
	}
	return v
}

// Lacking returns the servers that do not have a key of the secrets, sorted. A server of an
// older version reports none of its keys.
func (v Snapshot) Lacking(key string) (servers []string) {
	if !v.received {
		return []string{"all, as far as the table of the cluster is known"}
	}
	for id, p := range v.Servers {
		if !slices.Contains(p.Keys, key) {
			servers = append(servers, id)
		}
	}
	slices.Sort(servers)
	return servers
}

// Lasting reads from etcd the rows that outlive every server: a restored cluster begins
// with these. Servers write the other rows again.
func (r *View) Lasting(ctx context.Context) (map[string]string, error) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var rows map[string]string
	err := r.Etcd.Facts(ctx, r.Group, func(facts []etcd.Fact, whole bool) {
		if rows != nil || !whole {
			return
		}
		rows = map[string]string{}
		for _, f := range facts {
			switch kind, _, _ := strings.Cut(f.Key, "/"); kind + "/" {
			case rowPartitions + "/", RowKey + "/", rowKnown, RowHere, RowWant, RowReady, RowDrain, rowAssignment + "/":
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

// Standing is the state of one partition.
type Standing struct {
	Owner etcd.Owner // Server is "" when there is none
	Want  string     // desired owner, if it is live; "": none
	Ready bool       // the desired owner can take over from this owner
}

// StandingOf returns the state of a partition.
func (r *View) StandingOf(partition string) Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Standing{Owner: r.owners[partition]}
	if want := r.wants[partition]; r.servers[want] != nil || want == r.Self {
		s.Want = want
		s.Ready = s.Owner.Server != "" && r.ready[partition+"/"+want] == s.Owner.Epoch
	}
	return s
}

// PartitionOf returns the primary partition of an app; ok is false when it has none yet.
func (r *View) PartitionOf(app string) (partition string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	partition, ok = r.apps[app]
	return partition, ok
}

// HasReceived reports whether the cluster's table was ever received.
func (r *View) HasReceived() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received[0]
}

// Fallback returns the first partition. It has what belongs to no app, and answers for apps
// without a partition: like all others, it holds nothing of them.
func (r *View) Fallback() string { return r.Partitions[0] }

// Assignment returns the owner of a partition. It names no server if there is none, or if
// it is an earlier one at this server's address: that one is gone, although etcd names it
// until its lease ends, and a call sent there would come back here.
func (r *View) Assignment(partition string) *apiv1.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owners[partition]
	if o.Server != r.Self && o.Address == r.address {
		o.Server, o.Address = "", ""
	}
	return &apiv1.Assignment{Server: o.Server, Address: o.Address, Epoch: o.Epoch, Unit: partition, Units: r.Partitions}
}

// Passable reports whether the server of an assignment takes calls that other servers
// pass on; servers of older versions do not.
func (r *View) Passable(a *apiv1.Assignment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.servers[a.Server]
	return p != nil && p.Passes
}

// Certified reports whether the server at an address of a cluster knows other servers by their certificates: those of
// older versions, and without TLS, do not.
func Certified(r *View, address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.servers {
		if p.Address == address {
			return p.Certified
		}
	}
	return false
}

// AssignApp assigns an app without a partition to the one with the smallest schedule rate. It
// fails while a partition has not reported which apps it holds, because the app may be
// one of them.
func (r *View) AssignApp(ctx context.Context, app string) (string, error) {
	r.mu.Lock()
	partition, err := emptiest(r.Partitions, r.known, r.servers, r.apps)
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
	partition, err = r.Etcd.First(ctx, r.Group, RowApp+url.PathEscape(app), partition)
	if err != nil {
		return "", fmt.Errorf("assign the app %s to a partition: %w", app, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apps[app] = partition
	return partition, nil
}

// emptiest returns the partition for a new app: the one with the smallest rate, as its
// owner reported it, plus placeCost for each of its apps.
// known has the partitions whose owners have reported their apps, and placed the partition
// of each app.
func emptiest(partitions []string, known map[string]bool, servers map[string]*Presence, placed map[string]string) (string, error) {
	rates, apps := map[string]float64{}, map[string]int{}
	for _, p := range servers {
		for partition, u := range p.Owns {
			rates[partition] += u.Rate
		}
	}
	for _, partition := range placed {
		apps[partition]++
	}
	best := ""
	for _, partition := range partitions {
		if !known[partition] {
			return "", fmt.Errorf("the partition %s has had no owner yet, so its apps are not known", partition)
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

// Declare writes the apps that a partition holds. Its owner calls it before it serves the
// partition.
func (r *View) Declare(ctx context.Context, partition string, apps []string) error {
	for _, app := range slices.Sorted(slices.Values(apps)) {
		if at, ok := r.PartitionOf(app); ok && at == partition {
			continue
		}
		at, err := r.Etcd.First(ctx, r.Group, RowApp+url.PathEscape(app), partition)
		if err != nil {
			return err
		}
		if at != partition {
			r.log.Error("an app is in two partitions: what one of them holds of it is not seen", "app", app, "partition", partition, "other", at)
		}
	}
	_, err := r.Etcd.First(ctx, r.Group, rowKnown+partition, "1")
	return err
}

// Find returns the id of a server by id or address.
func (v Snapshot) Find(name string) (string, error) {
	if _, ok := v.Servers[name]; ok {
		return name, nil
	}
	for id, p := range v.Servers {
		if p.Address == name {
			return id, nil
		}
	}
	return "", fmt.Errorf("no live server has the id or the address %q: `wheelwork cluster status` shows them", name)
}

// Wake wakes the waiters for a change after a change in this server.
func (r *View) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notifyLocked()
}

// AppsOf returns the apps whose primary partition this is.
func (r *View) AppsOf(partition string) (apps []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for app, at := range r.apps {
		if at == partition {
			apps = append(apps, app)
		}
	}
	return apps
}
