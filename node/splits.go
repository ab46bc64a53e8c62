package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
)

// This file decides over which partitions an app is spread: by request of an operator, or
// by its rate and its hosts.

// partitionLoads returns the partitions as the balancer's algorithm takes them.
func (v *view) partitionLoads() (partitions []balance.Partition) {
	for _, name := range v.partitions {
		u := balance.Partition{Name: name, Owner: v.owners[name].Server}
		p, alive := v.servers[u.Owner]
		if !alive {
			u.Owner = ""
		}
		u.Rate, u.Hosts, u.Draining = p.Owns[name].Rate, p.Owns[name].Here, v.draining[u.Owner]
		partitions = append(partitions, u)
	}
	return partitions
}

// appLoads returns the apps that have a rate, many hosts or a desired placement, as the
// balancer's algorithm takes them.
func (v *view) appLoads(home func(app string) (string, bool), maxHosts int) (apps []balance.App) {
	rates := map[string]*[job.Slots]float64{}
	for _, p := range v.servers {
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
	for app := range v.placements.wishes {
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
		w := v.placements.wishes[app]
		a := balance.App{Name: app, Home: at, Rates: *rates[app], Wish: w.Units, ByHand: w.ByHand}
		if known {
			a.Hosts = hosts[app]
		}
		copy(a.At[:], v.partitionsOf(app))
		apps = append(apps, a)
	}
	return apps
}

// maySplit returns an error that names a live server which does not know apps that are
// split; nil: all know them.
func (v *view) maySplit() error {
	for id, p := range v.servers {
		if !p.Splits {
			return status.Errorf(codes.FailedPrecondition, "the server %s at %s is of a version that does not know of apps that are split: bring it up to date first", id, p.Address)
		}
	}
	return nil
}

// withheld returns the servers that should own nothing: those that are drained, and those
// that would misread an app that is split. Such a server can only have started while the
// first app was being split.
func (v *view) withheld() map[string]bool {
	split := len(v.placements.had) > 0
	for _, w := range v.placements.wishes {
		split = split || len(distinct(w.Units)) > 1
	}
	kept := maps.Clone(v.draining)
	for id, p := range v.servers {
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

// defaultMaxHosts is the default of [EtcdConfig].MaxHosts.
const defaultMaxHosts = 100

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
		cfg:   balance.Config{LeastRate: cmp.Or(rate, defaultSplitRate), MaxHosts: cmp.Or(hosts, defaultMaxHosts), Settle: 2 * settle, Lasts: settle / 2, Merge: mergeAfter},
		never: math.IsInf(rate, 1), neverHosts: hosts == math.MaxInt32, assignments: assignmentHistory{lasts: 6 * settle, needed: map[[2]string]time.Time{}}, since: map[string]time.Time{}, hot: map[string]time.Time{}, small: map[string]time.Time{},
	}
}

// decide returns the desired placements to write, by app.
func (s *splits) decide(v *view, home func(app string) (string, bool), now time.Time) map[string]wish {
	if s.never && (s.neverHosts || v.hostAssignment.GetUnitsPerHost() == 0) || len(v.partitions) < 2 || v.maySplit() != nil {
		return nil
	}
	partitions, apps := v.partitionLoads(), v.appLoads(home, s.cfg.MaxHosts)
	for i := range apps {
		a := &apps[i]
		a.Since = s.since[a.Name]
		a.Hot = sinceWhen(s.hot, a.Name, s.cfg.Hot(a, partitions), now)
		a.Small = sinceWhen(s.small, a.Name, s.cfg.Small(a, partitions), now)
	}
	out := map[string]wish{}
	for app, at := range balance.Spread(s.cfg, apps, partitions, now) {
		out[app] = wish{Units: at}
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
func (s *balancer) spread(ctx context.Context, v *view, now time.Time) {
	for app, w := range s.splits.decide(v, s.view.partitionOf, now) {
		s.log.Info("the slots of an app are to be spread anew", "app", app, "units", distinct(w.Units))
		if err := s.view.wishFor(ctx, app, w); err != nil {
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

// SplitApp spreads an app over partitions, or leaves that to the balancer.
func (s *membership) SplitApp(ctx context.Context, req *apiv1.SplitAppRequest) (*apiv1.ClusterStatus, error) {
	app := cmp.Or(req.App, naming.DefaultApp)
	return s.wish(ctx, app, func(v *view, a *balance.App) (wish, error) {
		if req.Auto {
			return wish{Units: v.partitionsOf(app)}, nil
		}
		partitions := v.partitionLoads()
		n := int(req.Units)
		switch {
		case n < 0 || n == 1 || n > len(partitions):
			return wish{}, status.Errorf(codes.InvalidArgument, "units is %d: the cluster has %d, and an app is split over 2 of them at least; 0 means all", n, len(partitions))
		case n == 0:
			n = len(partitions)
		}
		to := balance.Choose(a.Home, partitions, n)
		if len(to) < n {
			err := status.Errorf(codes.FailedPrecondition, "only %d units have an owner that is not drained: the app cannot be split over %d", len(to), n)
			if slices.ContainsFunc(partitions, func(u balance.Partition) bool { return u.Owner == "" }) {
				err = unowned{err}
			}
			return wish{}, err
		}
		return wish{Units: balance.Place(a, to), ByHand: true}, nil
	})
}

// MergeApp moves all slots of an app to its primary partition.
func (s *membership) MergeApp(ctx context.Context, req *apiv1.MergeAppRequest) (*apiv1.ClusterStatus, error) {
	return s.wish(ctx, cmp.Or(req.App, naming.DefaultApp), func(_ *view, a *balance.App) (wish, error) {
		return wish{Units: balance.Place(a, []string{a.Home}), ByHand: true}, nil
	})
}

// unowned is a refusal that may end in a moment: a partition has no owner, perhaps
// because it is moving from one server to another.
type unowned struct{ error }

// wish writes the desired placement that f returns. While f refuses because a partition
// has no owner, wish waits, for routePatience at most.
func (s *membership) wish(ctx context.Context, app string, f func(*view, *balance.App) (wish, error)) (*apiv1.ClusterStatus, error) {
	waiting, cancel := context.WithTimeout(ctx, routePatience)
	defer cancel()
	for {
		changed := s.m.view.change()
		st, err := s.wishNow(ctx, app, f)
		var refused unowned
		if !errors.As(err, &refused) {
			return st, err
		}
		select {
		case <-changed:
		case <-waiting.Done():
			return nil, refused.error
		}
	}
}

func (s *membership) wishNow(ctx context.Context, app string, f func(*view, *balance.App) (wish, error)) (*apiv1.ClusterStatus, error) {
	if err := naming.Check("app", app); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	r := s.m.view
	v := r.look()
	if len(v.partitions) < 2 {
		return nil, status.Error(codes.FailedPrecondition, "the cluster has one unit, so there is nothing that an app could be split over: the number of units is that with which a cluster begins (--units)")
	}
	if err := v.maySplit(); err != nil {
		return nil, err
	}
	home, ok := r.partitionOf(app)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "there is nothing in app %q: `wheelwork app list` shows the apps that there are", app)
	}
	a := balance.App{Name: app, Home: home}
	for _, x := range v.appLoads(r.partitionOf, math.MaxInt) {
		if x.Name == app {
			a = x
		}
	}
	v.homes[app] = home
	copy(a.At[:], v.partitionsOf(app))
	w, err := f(&v, &a)
	if err != nil {
		return nil, err
	}
	if err := r.wishFor(ctx, app, w); err != nil {
		if status.Code(err) == codes.FailedPrecondition {
			return nil, err
		}
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v view) bool { return slices.Equal(v.placements.wishes[app].Units, w.Units) })
}

// TakeSlot adds a slot to a partition of this server from what another partition sends.
func (s *membership) TakeSlot(stream apiv1.Membership_TakeSlotServer) error {
	var head *apiv1.TakeSlotRequest_Head
	var items []*apiv1.SlotItem
	size := 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if head == nil {
			head = m.Head
		}
		for _, item := range m.Items {
			if size += len(item.Value); size > maxSlotBytes {
				return status.Errorf(codes.ResourceExhausted, "slot %d of app %s is larger than %d MiB", head.GetSlot(), head.GetApp(), maxSlotBytes>>20)
			}
		}
		items = append(items, m.Items...)
	}
	if head == nil {
		return status.Error(codes.InvalidArgument, "the stream ended before it said which slot comes")
	}
	services, err := s.own(stream.Context(), head.Unit)
	if err != nil {
		return err
	}
	defer services.leave()
	if err := takeSlot(stream.Context(), s.m.view, services, head, items); err != nil {
		return err
	}
	return stream.SendAndClose(&apiv1.TakeSlotResponse{})
}

// maxSlotBytes bounds the bytes of a slot's values that a server takes from another one.
const maxSlotBytes = 1 << 30

// own returns the services of a partition of this server. The name comes from a caller,
// which may know earlier than this server that the partition moves here; own then waits.
func (s *membership) own(ctx context.Context, partition string) (*partitionServices, error) {
	if s.m.router.partitions[partition] == nil {
		return nil, status.Errorf(codes.NotFound, "the cluster has no unit %q", partition)
	}
	return s.m.router.enter(ctx, partition, "")
}

// CopyApp takes a copy of an app's shared state into a partition of this server.
func (s *membership) CopyApp(ctx context.Context, req *apiv1.CopyAppRequest) (*apiv1.CopyAppResponse, error) {
	services, err := s.own(ctx, req.Unit)
	if err != nil {
		return nil, err
	}
	defer services.leave()
	return &apiv1.CopyAppResponse{}, copyApp(ctx, s.m.router, req.Unit, services, req.State)
}

// CopyOut lets a partition of this server, which is the primary one of an app, copy the
// shared state to the app's other partitions.
func (s *membership) CopyOut(ctx context.Context, req *apiv1.CopyOutRequest) (*apiv1.CopyOutResponse, error) {
	services, err := s.own(ctx, req.Unit) // another owner is named in the error, and not called
	if err != nil {
		return nil, err
	}
	services.leave()
	return &apiv1.CopyOutResponse{}, s.m.router.copyOut(ctx, req.Unit, req.App)
}

// Ask answers another server's request to a partition of this server.
func (s *membership) Ask(ctx context.Context, req *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	services, err := s.own(ctx, req.Unit)
	if err != nil {
		return nil, err
	}
	defer services.leave()
	return asked(ctx, services, req)
}

// splitsOf returns the status of the apps that are split, or should be.
func splitsOf(v *view) (all []*apiv1.SplitApp) {
	rates := map[string]map[string]float64{} // by app and partition
	_, hosts, _ := v.hostsOf()
	why := map[string][]string{}
	for _, p := range v.servers {
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
		at, w := v.partitionsOf(app), v.placements.wishes[app]
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

// SplitApp is refused.
func (s *alone) SplitApp(context.Context, *apiv1.SplitAppRequest) (*apiv1.ClusterStatus, error) {
	return nil, errAlone
}

// MergeApp is refused.
func (s *alone) MergeApp(context.Context, *apiv1.MergeAppRequest) (*apiv1.ClusterStatus, error) {
	return nil, errAlone
}

// TakeSlot is refused.
func (s *alone) TakeSlot(apiv1.Membership_TakeSlotServer) error { return errAlone }

// CopyApp is refused.
func (s *alone) CopyApp(context.Context, *apiv1.CopyAppRequest) (*apiv1.CopyAppResponse, error) {
	return nil, errAlone
}

// CopyOut is refused.
func (s *alone) CopyOut(context.Context, *apiv1.CopyOutRequest) (*apiv1.CopyOutResponse, error) {
	return nil, errAlone
}

// Ask is refused.
func (s *alone) Ask(context.Context, *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	return nil, errAlone
}
