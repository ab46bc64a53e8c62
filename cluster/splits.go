package cluster

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
)

// This file decides over which partitions an app is spread: by request of an operator, or
// by its rate and its hosts.

// PartitionLoads returns the partitions as the balancer's algorithm takes them.
func (v *Snapshot) PartitionLoads() (partitions []balance.Partition) {
	for _, name := range v.Partitions {
		u := balance.Partition{Name: name, Owner: v.Owners[name].Server}
		p, alive := v.Servers[u.Owner]
		if !alive {
			u.Owner = ""
		}
		u.Rate, u.Hosts, u.Draining = p.Owns[name].Rate, p.Owns[name].Here, v.Draining[u.Owner]
		partitions = append(partitions, u)
	}
	return partitions
}

// AppLoads returns the apps that have a rate, many hosts or a desired placement, as the
// balancer's algorithm takes them.
func (v *Snapshot) AppLoads(home func(app string) (string, bool), maxHosts int) (apps []balance.App) {
	rates := map[string]*[job.Slots]float64{}
	for _, p := range v.Servers {
		for _, u := range p.Owns {
			for app, by := range u.Rates {
				if rates[app] == nil {
					rates[app] = &[job.Slots]float64{}
				}
				for i := range min(len(by), job.Slots) {
					rates[app][i] += max(by[i], 0)
				}
			}
		}
	}
	_, hosts, known := v.hostsOf()
	for app, n := range hosts {
		if rates[app] == nil && known && n > maxHosts {
			rates[app] = &[job.Slots]float64{}
		}
	}
	for app := range v.placements.desired {
		if rates[app] == nil {
			rates[app] = &[job.Slots]float64{}
		}
	}
	for _, app := range slices.Sorted(maps.Keys(rates)) {
		at, ok := home(app)
		if !ok {
			continue
		}
		v.homes[app] = at
		w := v.placements.desired[app]
		a := balance.App{Name: app, Home: at, Rates: *rates[app], Desired: w.Units, ByHand: w.ByHand}
		if known {
			a.Hosts = hosts[app]
		}
		copy(a.At[:], v.PartitionsOf(app))
		apps = append(apps, a)
	}
	return apps
}

// AppLoad returns one app as the algorithm takes it. home is its primary partition, which
// the snapshot may not know yet.
func (v *Snapshot) AppLoad(app, home string, homeOf func(app string) (string, bool)) balance.App {
	a := balance.App{Name: app, Home: home}
	for _, x := range v.AppLoads(homeOf, math.MaxInt) {
		if x.Name == app {
			a = x
		}
	}
	v.homes[app] = home
	copy(a.At[:], v.PartitionsOf(app))
	return a
}

// Desired returns the desired placement of an app. It is empty if none was decided.
func (v *Snapshot) Desired(app string) DesiredPlacement { return v.placements.desired[app] }

// MaySplit returns an error that names a live server which does not know apps that are
// split; nil: all know them.
func (v *Snapshot) MaySplit() error {
	for id, p := range v.Servers {
		if !p.Splits {
			return status.Errorf(codes.FailedPrecondition, "the server %s at %s is of a version that does not know of apps that are split: bring it up to date first", id, p.Address)
		}
	}
	return nil
}

// withheld returns the servers that should own nothing: those that are drained, and those
// that would misread an app that is split. Such a server can only have started while the
// first app was being split.
func (v *Snapshot) withheld() map[string]bool {
	split := len(v.placements.had) > 0
	for _, w := range v.placements.desired {
		split = split || len(distinct(w.Units)) > 1
	}
	kept := maps.Clone(v.Draining)
	for id, p := range v.Servers {
		if split && !p.Splits {
			kept[id] = true
		}
	}
	return kept
}

// splits is what the balancer remembers of apps from one decision to the next.
type splits struct {
	cfg   balance.Config
	never bool // apps are not split by rate
	// neverHosts reports that every host works for every partition.
	neverHosts  bool
	assignments assignmentHistory
	since       map[string]time.Time // when the desired placement was written
	hot, small  map[string]time.Time // since when the app is hot, or small
}

// defaultSplitRate is the rate, in schedules a second, from which an app may be split.
const defaultSplitRate = 500

// DefaultMaxHosts is the default of [EtcdConfig].MaxHosts.
const DefaultMaxHosts = 100

// mergeAfter is how long an app must be small before it is merged.
const mergeAfter = 10 * time.Minute

func newSplits(rate float64, hosts int, settle time.Duration) splits {
	if rate < 0 {
		rate = math.Inf(1)
	}
	if hosts < 0 {
		hosts = math.MaxInt32
	}
	return splits{
		cfg:   balance.Config{LeastRate: cmp.Or(rate, defaultSplitRate), MaxHosts: cmp.Or(hosts, DefaultMaxHosts), Settle: 2 * settle, Lasts: settle / 2, Merge: mergeAfter},
		never: math.IsInf(rate, 1), neverHosts: hosts == math.MaxInt32, assignments: assignmentHistory{lasts: 6 * settle, needed: map[[2]string]time.Time{}}, since: map[string]time.Time{}, hot: map[string]time.Time{}, small: map[string]time.Time{},
	}
}

// decide returns the desired placements to write, by app.
func (s *splits) decide(v *Snapshot, home func(app string) (string, bool), now time.Time) map[string]DesiredPlacement {
	if s.never && (s.neverHosts || v.hostAssignment.GetUnitsPerHost() == 0) || len(v.Partitions) < 2 || v.MaySplit() != nil {
		return nil
	}
	partitions, apps := v.PartitionLoads(), v.AppLoads(home, s.cfg.MaxHosts)
	for i := range apps {
		a := &apps[i]
		a.Since = s.since[a.Name]
		a.Hot = sinceWhen(s.hot, a.Name, s.cfg.Hot(a, partitions), now)
		a.Small = sinceWhen(s.small, a.Name, s.cfg.Small(a, partitions), now)
	}
	out := map[string]DesiredPlacement{}
	for app, at := range balance.Spread(s.cfg, apps, partitions, now) {
		out[app] = DesiredPlacement{Units: at}
		s.since[app] = now
	}
	for _, all := range []map[string]time.Time{s.since, s.hot, s.small} {
		maps.DeleteFunc(all, func(app string, _ time.Time) bool { // an app that is idle and not split is forgotten
			return !slices.ContainsFunc(apps, func(a balance.App) bool { return a.Name == app })
		})
	}
	return out
}

// sinceWhen records whether a property holds for an app, and returns since when; zero: it
// does not hold.
func sinceWhen(all map[string]time.Time, app string, is bool, now time.Time) time.Time {
	switch {
	case !is:
		delete(all, app)
	case all[app].IsZero():
		all[app] = now
	}
	return all[app]
}

// spread decides over which partitions apps are spread. Only the balancer calls it.
func (s *Balancer) spread(ctx context.Context, v *Snapshot, now time.Time) {
	for app, w := range s.splits.decide(v, s.view.PartitionOf, now) {
		s.log.Info("the desired placement of an app changes", "app", app, "units", distinct(w.Units))
		if err := s.view.SetDesired(ctx, app, w); err != nil {
			s.log.Warn("a decision could not be written", "app", app, "error", err)
			return
		}
	}
}

// distinct returns the texts sorted, each once.
func distinct(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

// SplitApps returns the status of the apps that are split, or should be.
func SplitApps(v *Snapshot) (all []*apiv1.SplitApp) {
	rates := map[string]map[string]float64{} // by app and partition
	_, hosts, _ := v.hostsOf()
	why := map[string][]string{}
	for _, p := range v.Servers {
		for partition, u := range p.Owns {
			for app, by := range u.Rates {
				if rates[app] == nil {
					rates[app] = map[string]float64{}
				}
				for _, r := range by {
					rates[app][partition] += r
				}
			}
			for app, text := range u.Stuck {
				why[app] = append(why[app], partition+": "+text)
			}
		}
	}
	for _, app := range slices.Sorted(maps.Keys(v.homes)) {
		at, w := v.PartitionsOf(app), v.placements.desired[app]
		s := &apiv1.SplitApp{App: app, Home: v.homes[app], ByHand: w.ByHand}
		partitions := distinct(slices.Concat(at, w.Units))
		if len(partitions) < 2 {
			continue
		}
		if i := slices.IndexFunc(v.hostAssignment.GetApps(), func(d *apiv1.DividedApp) bool { return d.App == app }); i >= 0 && v.hostAssignment.GetUnitsPerHost() > 0 {
			s.HostsDivided, s.Hosts = v.hostAssignment.Apps[i].Divided, int32(hosts[app])
		}
		slices.Sort(why[app])
		s.Trouble = strings.Join(why[app], "; ")
		for _, partition := range partitions {
			share := &apiv1.AppShare{Unit: partition, ScheduleRate: rates[app][partition]}
			for slot := range at {
				if at[slot] == partition {
					share.Slots++
				}
				if len(w.Units) == job.Slots && w.Units[slot] == partition || len(w.Units) == 0 && at[slot] == partition {
					share.Wanted++
				}
			}
			s.Shares = append(s.Shares, share)
		}
		all = append(all, s)
	}
	return all
}
