package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/nameserver"
	"github.com/wheelworkhq/wheelwork/sched"
)

// This file decides the host assignment: which hosts work for which partitions. Up to
// MaxHosts hosts, each works for all partitions.
// With more, a host that serves all apps works for some of the partitions, and a host
// with named apps for the partitions of its apps. If an app in several partitions itself
// has so many hosts, each of these works for one of its partitions. All that is a
// function of the host's id and of one row of the table in etcd, which the balancer
// writes, so every nameserver tells a host the same.
//
// A partition whose own hosts cannot do its work borrows others; in identifiers a
// borrowing is a call. The partition's owner reports for which apps it needs hosts, and
// the balancer writes the borrowing into the row. All hosts of the app then work for that
// partition as well, until a while after the last need.

const (
	// gatherPatience is how long a broadcast waits for borrowed hosts.
	gatherPatience = 30 * time.Second
	// DemandSettles is how long a partition must have had its owner before the owner's
	// count of hosts is complete: hosts reconnect within two seconds of each other.
	DemandSettles = 3 * time.Second
	// roomElsewhere is the share of the slots of other partitions' hosts that must be
	// free before a partition borrows hosts only because its own are busy.
	roomElsewhere = 0.1
	// maxServed bounds the number of apps in a report of how many hosts serve each.
	maxServed = 200
)

// DemandReport is what the owner of a partition reports of its hosts once there are many.
type DemandReport struct {
	// Counted reports that the other fields are valid: the hosts have had time to
	// connect.
	Counted bool `json:"counted,omitempty"`
	// Serve counts, by app, the hosts that count in this partition; "" are those that
	// serve all apps. A host with several apps counts for each of them.
	Serve map[string]int `json:"serve,omitempty"`
	Here  int            `json:"here,omitempty"` // number of hosts that count in this partition
	Slots int            `json:"slots,omitempty"`
	Free  int            `json:"free,omitempty"`
	// Calls are the apps that need further hosts: true if the hosts here can never run
	// them, false if they are busy.
	Calls map[string]bool `json:"calls,omitempty"`
}

// hostAssignment is what the cluster view knows of the host assignment.
type hostAssignment struct {
	is *apiv1.HostAssignment
	// calls says, by partition and app, since when this server knows of a borrowing.
	calls map[[2]string]time.Time
}

// receive takes in a change of the row.
func (d *hostAssignment) receive(value string, deleted bool) error {
	if deleted {
		*d = hostAssignment{}
		return nil
	}
	is := &apiv1.HostAssignment{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(value), is); err != nil {
		return err
	}
	calls := map[[2]string]time.Time{}
	for _, c := range is.Calls {
		k := [2]string{c.Unit, c.App}
		if calls[k] = d.calls[k]; calls[k].IsZero() {
			calls[k] = time.Now()
		}
	}
	d.is, d.calls = is, calls
	return nil
}

// clusterLocked returns the state that decides which hosts work for which partitions. The
// caller holds r.mu as long as it uses the result.
func (r *View) clusterLocked() *nameserver.Cluster {
	return &nameserver.Cluster{Units: r.Partitions, HostAssignment: r.dividedLocked(), Home: func(app string) (string, bool) {
		partition, ok := r.apps[app]
		return partition, ok
	}}
}

// Works reports whether a host should have a session with the owner of a partition.
func (r *View) Works(req *apiv1.WatchRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusterLocked().Works(req.HostId, req.Apps, req.Unit)
}

// Divided returns the host assignment; nil: none was ever decided.
func (r *View) Divided() *apiv1.HostAssignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dividedLocked()
}

// dividedLocked is divided for callers that hold r.mu. Every host works for all
// partitions while there is a server that does not know host assignments: it could become
// the balancer, and would not lend hosts.
func (r *View) dividedLocked() *apiv1.HostAssignment {
	if r.hostAssignment.is != nil && !r.divides {
		return &apiv1.HostAssignment{Number: r.hostAssignment.is.Number}
	}
	return r.hostAssignment.is
}

// noteDividesLocked updates whether all servers know host assignments. The caller holds
// r.mu.
func (r *View) noteDividesLocked() {
	was := r.divides
	r.divides = true
	for _, p := range r.servers {
		r.divides = r.divides && p.Divides
	}
	if r.divides != was {
		r.rerouteLocked()
	}
}

// Gathered reports whether all hosts that a partition borrows for an app have a session
// with its owner; have is how many do. After gatherPatience it reports true in any case.
func (r *View) Gathered(partition, app string, have int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dividedLocked().GetUnitsPerHost() == 0 {
		return true
	}
	since, called := r.hostAssignment.calls[[2]string{partition, app}]
	if !called {
		return false
	}
	if time.Since(since) >= gatherPatience {
		return true
	}
	want := 0
	for _, u := range r.Partitions {
		p := r.servers[r.owners[u].Server]
		if p == nil || !p.Owns[u].Counted || len(p.Owns[u].Serve) >= maxServed {
			return false // hosts that count there may still be connecting
		}
		want += p.Owns[u].Serve[""] + p.Owns[u].Serve[app]
	}
	return have >= want
}

// Count makes the report of a partition's hosts from its host demand.
func (r *View) Count(partition string, c sched.HostDemand, settled bool) DemandReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	cluster := r.clusterLocked()
	rep := DemandReport{Counted: settled, Serve: map[string]int{}, Calls: c.Borrow}
	for _, h := range c.Hosts {
		if cluster.Anchor(h.ID, h.Apps) != partition {
			continue
		}
		rep.Here++
		rep.Slots += h.Slots
		rep.Free += h.Free
		if len(h.Apps) == 0 {
			rep.Serve[""]++
		}
		for _, app := range h.Apps {
			if _, ok := rep.Serve[app]; ok || len(rep.Serve) < maxServed {
				rep.Serve[app]++
			}
		}
	}
	return rep
}

// assignmentHistory is what the balancer remembers of hosts from one decision to the next.
type assignmentHistory struct {
	// lasts is how long a borrowing stays after the last need: hosts should not connect
	// and disconnect with every run of a schedule.
	lasts  time.Duration
	more   time.Time               // since when hosts could work for more partitions
	needed map[[2]string]time.Time // when a borrowing was last needed, by partition and app
}

// hostsOf counts hosts: all of them, and by app those that serve it by name. known is
// false while a partition does not report its hosts.
func (v *Snapshot) hostsOf() (all int, byApp map[string]int, known bool) {
	byApp, known = map[string]int{}, true
	for _, partition := range v.Partitions {
		r := v.Servers[v.Owners[partition].Server].Owns[partition]
		known = known && r.Counted
		all += r.Here
		for app, n := range r.Serve {
			byApp[app] += n
		}
	}
	delete(byApp, "")
	return all, byApp, known
}

// divide returns the new host assignment; nil: it does not change.
func (s *splits) divide(v *Snapshot, now time.Time) *apiv1.HostAssignment {
	was := v.hostAssignment
	is := &apiv1.HostAssignment{}
	if !s.neverHosts && len(v.Partitions) > 1 && v.mayDivide() {
		s.attend(v, was, is, now)
	}
	if is.UnitsPerHost > 0 {
		is.Apps = s.dividedApps(v, was)
		is.Calls = s.calls(v, was, now)
	}
	if is.Number = was.GetNumber(); was == nil && is.UnitsPerHost == 0 || was != nil && proto.Equal(is, was) {
		return nil
	}
	is.Number++
	return is
}

// attend sets for how many partitions a host works.
func (s *splits) attend(v *Snapshot, was, is *apiv1.HostAssignment, now time.Time) {
	partitions := len(v.Partitions)
	all, _, known := v.hostsOf()
	if !known { // a partition is moving, so the number of hosts is not known
		is.UnitsPerHost = was.GetUnitsPerHost()
		return
	}
	n, more := s.cfg.Attend(int(was.GetUnitsPerHost()), all, partitions, s.assignments.more, now)
	is.UnitsPerHost, s.assignments.more = int32(n), more
}

// mayDivide reports whether all servers know host assignments.
func (v *Snapshot) mayDivide() bool {
	for _, p := range v.Servers {
		if !p.Divides {
			return false
		}
	}
	return true
}

// dividedApps returns the apps that are in several partitions, sorted by name.
func (s *splits) dividedApps(v *Snapshot, was *apiv1.HostAssignment) (apps []*apiv1.DividedApp) {
	_, hosts, known := v.hostsOf()
	before := map[string]bool{}
	for _, d := range was.GetApps() {
		before[d.App] = d.Divided
	}
	for _, app := range slices.Sorted(maps.Keys(v.homes)) {
		at, w := v.PartitionsOf(app), v.placements.desired[app]
		partitions := distinct(slices.Concat(at, w.Units))
		if len(partitions) < 2 {
			continue
		}
		// The primary partition comes first: hosts that are not divided count in it.
		home := v.homes[app]
		partitions = append([]string{home}, slices.DeleteFunc(partitions, func(u string) bool { return u == home })...)
		d := &apiv1.DividedApp{App: app, Units: partitions, Divided: before[app]}
		if known {
			d.Divided = s.cfg.Divided(hosts[app], before[app])
		}
		for _, partition := range partitions {
			n := 0
			for slot := range job.Slots {
				if len(w.Units) == job.Slots && w.Units[slot] == partition || len(w.Units) != job.Slots && at[slot] == partition {
					n++
				}
			}
			d.Weights = append(d.Weights, max(float64(n), 0.5)) // a partition without slots of the app may still have runs of it
		}
		apps = append(apps, d)
	}
	return apps
}

// calls returns the borrowings that are needed, or were a while ago.
func (s *splits) calls(v *Snapshot, was *apiv1.HostAssignment, now time.Time) (calls []*apiv1.HostCall) {
	d := &s.assignments
	for _, c := range was.GetCalls() {
		if k := [2]string{c.Unit, c.App}; d.needed[k].IsZero() {
			d.needed[k] = now // written by an earlier balancer
		}
	}
	for _, partition := range v.Partitions {
		for app, hopeless := range v.Servers[v.Owners[partition].Server].Owns[partition].Calls {
			k := [2]string{partition, app}
			if hopeless || !d.needed[k].IsZero() || v.roomBeside(partition) {
				d.needed[k] = now
			}
		}
	}
	for k, at := range d.needed {
		if now.Sub(at) >= d.lasts || !slices.Contains(v.Partitions, k[0]) {
			delete(d.needed, k)
			continue
		}
		calls = append(calls, &apiv1.HostCall{Unit: k[0], App: k[1]})
	}
	slices.SortFunc(calls, func(a, b *apiv1.HostCall) int {
		return strings.Compare(a.Unit+"\x00"+a.App, b.Unit+"\x00"+b.App)
	})
	return calls
}

// roomBeside reports whether the hosts that count in other partitions have enough slots
// free. If not, borrowing them would not help.
func (v *Snapshot) roomBeside(partition string) bool {
	slots, free := 0, 0
	for _, other := range v.Partitions {
		if other != partition {
			r := v.Servers[v.Owners[other].Server].Owns[other]
			slots, free = slots+r.Slots, free+r.Free
		}
	}
	return free > 0 && float64(free) >= roomElsewhere*float64(slots)
}

// divide decides which hosts work for which partitions. Only the balancer calls it.
func (s *Balancer) divide(ctx context.Context, v *Snapshot, now time.Time) {
	is := s.splits.divide(v, now)
	if is == nil {
		return
	}
	if is.UnitsPerHost != v.hostAssignment.GetUnitsPerHost() {
		all, _, _ := v.hostsOf()
		s.log.Info("the number of partitions for which each host works changes", "hosts", all, "units_per_host", is.UnitsPerHost)
	}
	row, err := protojson.Marshal(is)
	if err == nil {
		err = s.view.Etcd.Note(ctx, s.view.Group, rowAssignment, string(row), false)
	}
	if err != nil {
		s.log.Warn("a decision could not be written", "of", "hosts", "error", err)
	}
}
