package node

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

// This file decides which hosts work for which units. Up to MaxHosts of them
// work for all. When there are more, a host that serves all apps works for some of
// the units, a host with apps for those where its apps are, and of an app in several
// units that has so many hosts itself, for one of them. All that is a function of the
// host's id and of one row of the table, the division, which the steward writes; so
// every nameserver tells a host the same.
//
// What the hosts of a unit cannot do is done by calling the others: the unit's
// owner says for which apps it needs hosts, the steward writes the call into the
// division, and all hosts of the app work for that unit as well, until the call has
// not been needed for a while.

const (
	// gatherPatience is how long a broadcast waits for hosts that were called.
	gatherPatience = 30 * time.Second
	// crowdSettles is how long a unit has to have had its owner before what it
	// counts is all of its hosts: they come back within two seconds of each other.
	crowdSettles = 3 * time.Second
	// roomElsewhere is the part of the slots of other units' hosts that has to be
	// free for hosts to be called only because those of a unit are busy.
	roomElsewhere = 0.1
	// maxServed bounds the apps of which a unit tells how many hosts serve them.
	maxServed = 200
)

// crowdReport is what the owner of a unit tells of its hosts once there are many.
type crowdReport struct {
	// Counted says that the rest is told, and that the hosts had time to come.
	Counted bool `json:"counted,omitempty"`
	// Serve counts those hosts by app that count in this unit; "" are those that
	// serve all apps. The hosts of each app are told, so the sum is that of hosts and apps.
	Serve map[string]int `json:"serve,omitempty"`
	Here  int            `json:"here,omitempty"` // how many hosts count in this unit
	Slots int            `json:"slots,omitempty"`
	Free  int            `json:"free,omitempty"`
	// Calls are apps that need other hosts: true when those here never will do.
	Calls map[string]bool `json:"calls,omitempty"`
}

// division is what the roster knows of which hosts work for which units.
type division struct {
	is *apiv1.Division
	// calls are since when this server knows of the calls, by unit and app.
	calls map[[2]string]time.Time
}

// hear takes in the row.
func (d *division) hear(value string, deleted bool) error {
	if deleted {
		*d = division{}
		return nil
	}
	is := &apiv1.Division{}
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

// clusterLocked is what says which hosts work for which units; r.mu must be held
// while it is used.
func (r *roster) clusterLocked() *nameserver.Cluster {
	return &nameserver.Cluster{Units: r.units, Division: r.dividedLocked(), Home: func(app string) (string, bool) {
		unit, ok := r.apps[app]
		return unit, ok
	}}
}

// works reports whether a host is to have a session with the owner of a unit.
func (r *roster) works(req *apiv1.WatchRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusterLocked().Works(req.HostId, req.Apps, req.Unit)
}

// divided returns the division of the cluster's hosts; nil: none was ever decided.
func (r *roster) divided() *apiv1.Division {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dividedLocked()
}

// dividedLocked is divided; r.mu must be held. While there is a server that knows
// nothing of divisions, which may come to be the steward and would call nobody,
// every host works for all units.
func (r *roster) dividedLocked() *apiv1.Division {
	if r.division.is != nil && !r.divides {
		return &apiv1.Division{Number: r.division.is.Number}
	}
	return r.division.is
}

// noteDividesLocked looks whether all servers know of divisions; r.mu must be held.
func (r *roster) noteDividesLocked() {
	was := r.divides
	r.divides = true
	for _, p := range r.servers {
		r.divides = r.divides && p.Divides
	}
	if r.divides != was {
		r.rerouteLocked()
	}
}

// gathered reports whether those hosts of an app have a session with the owner of
// a unit that are to have one while the app is called there: have do.
func (r *roster) gathered(unit, app string, have int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dividedLocked().GetUnitsPerHost() == 0 {
		return true
	}
	since, called := r.division.calls[[2]string{unit, app}]
	if !called {
		return false
	}
	if time.Since(since) >= gatherPatience {
		return true
	}
	want := 0
	for _, u := range r.units {
		p := r.servers[r.owners[u].Server]
		if p == nil || !p.Owns[u].Counted || len(p.Owns[u].Serve) >= maxServed {
			return false // the hosts that count there may be on their way
		}
		want += p.Owns[u].Serve[""] + p.Owns[u].Serve[app]
	}
	return have >= want
}

// crowd is what the owner of a unit tells of its hosts: nothing while there are
// so few that nobody asks.
func (u *unit) crowd(ctx context.Context, s *sched.Server, hosts int, since time.Time) (r crowdReport) {
	if len(u.roster.units) < 2 || u.roster.divided().GetUnitsPerHost() == 0 && (u.maxHosts < 0 || hosts <= u.maxHosts) {
		return r
	}
	c, err := s.HostDemand(ctx)
	if err != nil {
		return r
	}
	return u.roster.count(u.name, c, time.Since(since) >= crowdSettles)
}

// count makes a report of what a unit says of its hosts.
func (r *roster) count(unit string, c sched.HostDemand, settled bool) crowdReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	cluster := r.clusterLocked()
	rep := crowdReport{Counted: settled, Serve: map[string]int{}, Calls: c.Borrow}
	for _, h := range c.Hosts {
		if cluster.Anchor(h.ID, h.Apps) != unit {
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

// divisions are what the steward remembers of hosts between two looks.
type divisions struct {
	// lasts is how long a call stays that is not needed any more: hosts do not come
	// and go with every run of a schedule.
	lasts  time.Duration
	more   time.Time               // since when hosts may work for more units
	needed map[[2]string]time.Time // by unit and app: when a call was last needed
}

// hostsOf counts hosts: all, and by app those that serve it by name. known is
// false while a unit does not tell of its hosts.
func (v *view) hostsOf() (all int, byApp map[string]int, known bool) {
	byApp, known = map[string]int{}, true
	for _, unit := range v.units {
		r := v.servers[v.owners[unit].Server].Owns[unit]
		known = known && r.Counted
		all += r.Here
		for app, n := range r.Serve {
			byApp[app] += n
		}
	}
	delete(byApp, "")
	return all, byApp, known
}

// divide returns the division that there is to be; nil: it stays.
func (s *splits) divide(v *view, now time.Time) *apiv1.Division {
	was := v.division
	is := &apiv1.Division{}
	if !s.neverHosts && len(v.units) > 1 && v.mayDivide() {
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

// attend says for how many units a host works.
func (s *splits) attend(v *view, was, is *apiv1.Division, now time.Time) {
	units := len(v.units)
	all, _, known := v.hostsOf()
	if !known { // a unit is on its way: nobody knows how many there are
		is.UnitsPerHost = was.GetUnitsPerHost()
		return
	}
	n, more := s.cfg.Attend(int(was.GetUnitsPerHost()), all, units, s.divisions.more, now)
	is.UnitsPerHost, s.divisions.more = int32(n), more
}

// mayDivide reports whether all servers know of hosts that do not work for all units.
func (v *view) mayDivide() bool {
	for _, p := range v.servers {
		if !p.Divides {
			return false
		}
	}
	return true
}

// dividedApps are the apps that are in several units, by name.
func (s *splits) dividedApps(v *view, was *apiv1.Division) (apps []*apiv1.DividedApp) {
	_, hosts, known := v.hostsOf()
	before := map[string]bool{}
	for _, d := range was.GetApps() {
		before[d.App] = d.Divided
	}
	for _, app := range slices.Sorted(maps.Keys(v.homes)) {
		at, w := v.seatsOf(app), v.places.wishes[app]
		units := distinct(slices.Concat(at, w.Units))
		if len(units) < 2 {
			continue
		}
		// Home first: it counts those that are not divided.
		home := v.homes[app]
		units = append([]string{home}, slices.DeleteFunc(units, func(u string) bool { return u == home })...)
		d := &apiv1.DividedApp{App: app, Units: units, Divided: before[app]}
		if known {
			d.Divided = s.cfg.Divided(hosts[app], before[app])
		}
		for _, unit := range units {
			n := 0
			for slot := range job.Slots {
				if len(w.Units) == job.Slots && w.Units[slot] == unit || len(w.Units) != job.Slots && at[slot] == unit {
					n++
				}
			}
			d.Weights = append(d.Weights, max(float64(n), 0.5)) // what is still there has to be done
		}
		apps = append(apps, d)
	}
	return apps
}

// calls are those that are needed, or were a while ago.
func (s *splits) calls(v *view, was *apiv1.Division, now time.Time) (calls []*apiv1.HostCall) {
	d := &s.divisions
	for _, c := range was.GetCalls() {
		if k := [2]string{c.Unit, c.App}; d.needed[k].IsZero() {
			d.needed[k] = now // of an earlier steward
		}
	}
	for _, unit := range v.units {
		for app, hopeless := range v.servers[v.owners[unit].Server].Owns[unit].Calls {
			k := [2]string{unit, app}
			if hopeless || !d.needed[k].IsZero() || v.roomBeside(unit) {
				d.needed[k] = now
			}
		}
	}
	for k, at := range d.needed {
		if now.Sub(at) >= d.lasts || !slices.Contains(v.units, k[0]) {
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

// roomBeside reports whether the hosts that count in other units have slots free:
// else to call them would help nobody.
func (v *view) roomBeside(unit string) bool {
	slots, free := 0, 0
	for _, other := range v.units {
		if other != unit {
			r := v.servers[v.owners[other].Server].Owns[other]
			slots, free = slots+r.Slots, free+r.Free
		}
	}
	return free > 0 && float64(free) >= roomElsewhere*float64(slots)
}

// divide decides which hosts work for which units. It is the steward's.
func (s *steward) divide(ctx context.Context, v *view, now time.Time) {
	is := s.splits.divide(v, now)
	if is == nil {
		return
	}
	if is.UnitsPerHost != v.division.GetUnitsPerHost() {
		all, _, _ := v.hostsOf()
		s.log.Info("hosts are to work for another number of units", "hosts", all, "units_per_host", is.UnitsPerHost)
	}
	row, err := protojson.Marshal(is)
	if err == nil {
		err = s.roster.cluster.Note(ctx, s.roster.group, rowDivision, string(row), false)
	}
	if err != nil {
		s.log.Warn("a decision could not be written", "of", "hosts", "error", err)
	}
}
