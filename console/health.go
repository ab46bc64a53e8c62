package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The results of a check, the worst first.
const (
	healthBad   = "bad"
	healthWarn  = "warn"
	healthGood  = "good"
	healthBlind = "blind" // the visitor lacks the permission for it
)

const (
	// clockWarn and clockBad are differences between the clocks of two servers: the next times of jobs
	// move by as much when a partition changes its owner.
	clockWarn = time.Second
	clockBad  = 5 * time.Second
	// diskWarn and diskBad are used shares of a file system, in percent, of a server that says itself
	// nothing about the room on its disk.
	diskWarn = 85
	diskBad  = 95
	// namedInCheck bounds the objects that a finding names.
	namedInCheck = 20
)

// finding is the result of one check, in words.
type finding struct {
	Name   string // of the text health.NAME
	Result string
	Key    string   // of the sentence
	Arg    string   // the parameter of the sentence; "": it has none
	Named  []string // the objects that the sentence is about
	More   int      // objects that are not named
	Link   string   // the page that says more; "": there is none
}

// about returns the finding with the objects that it is about.
func (k finding) about(names []string) finding {
	k.More = max(0, len(names)-namedInCheck)
	k.Named = names[:len(names)-k.More]
	return k
}

// healthView is the list of the checks, the worst first.
type healthView struct {
	Checks  []finding
	Version *apiv1.Version
}

// Worst returns the worst result.
func (h healthView) Worst() string {
	if len(h.Checks) == 0 {
		return healthBlind
	}
	return h.Checks[0].Result
}

// Attention returns the number of checks that found something.
func (h healthView) Attention() int {
	n := 0
	for _, k := range h.Checks {
		if k.Result == healthBad || k.Result == healthWarn {
			n++
		}
	}
	return n
}

// Icon returns the state of a run whose look a result has.
func (healthView) Icon(result string) string {
	switch result {
	case healthBad:
		return "failed"
	case healthWarn:
		return "waiting"
	case healthGood:
		return "succeeded"
	}
	return "none"
}

// found is what the API tells for the checks. An error says why a part is missing.
type found struct {
	ready                                                                    *grpc_health_v1.HealthCheckResponse
	version                                                                  *apiv1.Version
	cluster                                                                  *apiv1.ClusterStatus
	hosts                                                                    *apiv1.ListHostsResponse
	overview                                                                 *apiv1.Overview
	queues                                                                   *apiv1.GetQueuesResponse
	machines                                                                 *apiv1.ListCertificatesResponse
	backups                                                                  *apiv1.BackupPlan
	asked, answered                                                          time.Time // around the call that tells the time of a server
	noReady, noCluster, noHosts, noOverview, noQueues, noMachines, noBackups error
}

func (c *console) healthPage(v *visit) error {
	f, err := c.look(v)
	if err != nil {
		return err
	}
	view := healthView{Version: f.version, Checks: f.checks(v.app, time.Now())}
	return c.show(v, "health", "health", view)
}

// look asks the API for everything that the checks need. A part that fails is a finding of its own,
// unless the token is no longer valid.
func (c *console) look(v *visit) (*found, error) {
	f := &found{}
	g, ctx := errgroup.WithContext(v.ctx)
	part := func(err *error, call func(context.Context) error) {
		g.Go(func() error {
			*err = call(ctx)
			if status.Code(*err) == codes.Unauthenticated || errors.Is(v.r.Context().Err(), context.Canceled) {
				return *err
			}
			return nil
		})
	}
	var noVersion error
	part(&noVersion, func(ctx context.Context) (err error) {
		f.version, err = c.cluster.GetVersion(ctx, &apiv1.GetVersionRequest{})
		return err
	})
	part(&f.noReady, func(ctx context.Context) (err error) {
		f.ready, err = c.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	})
	part(&f.noCluster, func(ctx context.Context) (err error) {
		f.cluster, err = c.members.GetCluster(ctx, &apiv1.GetClusterRequest{})
		return err
	})
	part(&f.noHosts, func(ctx context.Context) (err error) {
		f.hosts, err = c.cluster.ListHosts(ctx, &apiv1.ListHostsRequest{})
		return err
	})
	part(&f.noOverview, func(ctx context.Context) (err error) {
		f.asked = time.Now()
		f.overview, err = c.cluster.GetOverview(ctx, &apiv1.GetOverviewRequest{App: v.app})
		f.answered = time.Now()
		return err
	})
	part(&f.noQueues, func(ctx context.Context) (err error) {
		f.queues, err = c.queues.GetQueues(ctx, &apiv1.GetQueuesRequest{})
		return err
	})
	part(&f.noMachines, func(ctx context.Context) (err error) {
		f.machines, err = c.machines.ListCertificates(ctx, &apiv1.ListCertificatesRequest{})
		return err
	})
	part(&f.noBackups, func(ctx context.Context) (err error) {
		f.backups, err = c.findBackups(ctx)
		return err
	})
	return f, g.Wait()
}

// checks returns the results, the worst first.
func (f *found) checks(app string, now time.Time) []finding {
	var all []finding
	add := func(name, link string, missing error, results func() []finding) {
		if missing != nil {
			k := finding{Name: name, Result: healthBad, Key: "health.noanswer", Named: []string{status.Convert(missing).Message()}}
			if status.Code(missing) == codes.PermissionDenied {
				k = finding{Name: name, Result: healthBlind, Key: "health.hidden"}
			}
			all = append(all, k)
			return
		}
		for _, k := range results() {
			k.Name, k.Link = name, link
			all = append(all, k)
		}
	}
	one := func(result func() finding) func() []finding { return func() []finding { return []finding{result()} } }
	add("ready", "", f.noReady, one(f.checkReady))
	add("servers", inApp("/cluster", app), f.noCluster, f.checkServers)
	add("partitions", inApp("/cluster", app), f.noCluster, f.checkPartitions)
	add("hosts", inApp("/hosts", app), f.noHosts, f.checkHosts)
	add("writes", href("apps", app), f.noOverview, one(f.checkWrites))
	add("disk", href("apps", app), cmp.Or(f.noQueues, f.noOverview), one(f.checkDisk))
	add("clock", "", f.noOverview, one(f.checkClock))
	add("logs", inApp("/queues", app), f.noQueues, one(f.checkLogs))
	add("letters", inApp("/dead-letters", app), f.noQueues, one(f.checkLetters))
	add("certificates", inApp("/access/machines", app), f.noMachines, func() []finding { return f.checkCertificates(now) })
	add("backups", inApp("/cluster", app), f.noBackups, one(func() finding { return f.checkBackups(now) }))
	add("versions", "", cmp.Or(f.noCluster, f.noHosts), one(f.checkVersions))
	rank := func(k finding) int {
		return slices.Index([]string{healthBad, healthWarn, healthGood, healthBlind}, k.Result)
	}
	slices.SortStableFunc(all, func(a, b finding) int { return rank(a) - rank(b) })
	return all
}

func (f *found) checkReady() finding {
	if f.ready.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
		return finding{Result: healthGood, Key: "health.ready.good"}
	}
	return finding{Result: healthBad, Key: "health.ready.bad"}
}

// checkServers has one result for each kind of trouble.
func (f *found) checkServers() (all []finding) {
	var lost, away []string
	for _, s := range f.cluster.Servers {
		name := cmp.Or(s.Address, s.Id)
		switch s.State {
		case "lost":
			lost = append(lost, name)
		case "draining", "drained":
			away = append(away, name)
		}
	}
	if f.cluster.Trouble != "" {
		all = append(all, finding{Result: healthBad, Key: "health.servers.trouble"}.about([]string{f.cluster.Trouble}))
	}
	if len(lost) > 0 {
		all = append(all, finding{Result: healthBad, Key: "health.servers.lost"}.about(lost))
	}
	if len(away) > 0 {
		all = append(all, finding{Result: healthWarn, Key: "health.servers.drained"}.about(away))
	}
	if f.cluster.Name != "" && f.cluster.Balancer == "" {
		all = append(all, finding{Result: healthWarn, Key: "health.servers.balancer"})
	}
	if all == nil {
		all = append(all, finding{Result: healthGood, Key: "health.servers.good", Arg: count(len(f.cluster.Servers))})
	}
	return all
}

func (f *found) checkPartitions() (all []finding) {
	if f.cluster.Name == "" {
		return []finding{{Result: healthGood, Key: "health.partitions.alone"}}
	}
	var free, moving, single []string
	for _, u := range f.cluster.Units {
		switch {
		case u.State == "free":
			free = append(free, u.Name)
		case u.State == "moving":
			moving = append(moving, u.Name)
		case len(u.Standbys) == 0:
			single = append(single, u.Name)
		}
	}
	if len(free) > 0 {
		all = append(all, finding{Result: healthBad, Key: "health.partitions.free"}.about(free))
	}
	if len(single) > 0 {
		all = append(all, finding{Result: healthWarn, Key: "health.partitions.single"}.about(single))
	}
	if len(moving) > 0 {
		all = append(all, finding{Result: healthWarn, Key: "health.partitions.moving"}.about(moving))
	}
	for _, a := range f.cluster.Split {
		if a.Trouble != "" {
			all = append(all, finding{Result: healthWarn, Key: "health.partitions.split", Arg: a.App}.about([]string{a.Trouble}))
		}
	}
	if all == nil {
		all = append(all, finding{Result: healthGood, Key: "health.partitions.good", Arg: count(len(f.cluster.Units))})
	}
	return all
}

func (f *found) checkHosts() (all []finding) {
	var lost, kept []string
	up := 0
	for _, h := range f.hosts.Hosts {
		name := cmp.Or(h.Name, h.Id)
		switch h.State {
		case "up":
			up++
		case "lost":
			lost = append(lost, name)
		default:
			kept = append(kept, name)
		}
	}
	if up == 0 {
		all = append(all, finding{Result: healthBad, Key: "health.hosts.none"})
	}
	if len(lost) > 0 {
		all = append(all, finding{Result: healthWarn, Key: "health.hosts.lost"}.about(lost))
	}
	if len(kept) > 0 {
		all = append(all, finding{Result: healthWarn, Key: "health.hosts.cordoned"}.about(kept))
	}
	if all == nil {
		all = append(all, finding{Result: healthGood, Key: "health.hosts.good", Arg: count(up)})
	}
	return all
}

func (f *found) checkWrites() finding {
	if f.overview.Writable {
		return finding{Result: healthGood, Key: "health.writes.good"}
	}
	return finding{Result: healthBad, Key: "health.writes.bad"}.about([]string{f.overview.NotWritableReason})
}

// checkDisk takes what the server says about its room, or else the used share of its disk.
func (f *found) checkDisk() finding {
	d := f.overview.GetDisk()
	used := percent(d.GetTotalBytes()-d.GetFreeBytes(), d.GetTotalBytes())
	if f.queues.DiskUsed > 0 { // of the file system that the mark is about
		used = percent(int64(1000*f.queues.DiskUsed+0.5), 1000)
	}
	switch share := d.GetTotalBytes() - d.GetFreeBytes(); {
	case f.queues.DiskMark == "refuse", f.queues.DiskMark == "" && 100*share >= diskBad*d.GetTotalBytes() && share > 0:
		return finding{Result: healthBad, Key: "health.disk.bad", Arg: used}
	case f.queues.DiskMark == "early":
		return finding{Result: healthWarn, Key: "health.disk.early", Arg: used}
	case f.queues.DiskMark == "warn", f.queues.DiskMark == "" && 100*share >= diskWarn*d.GetTotalBytes() && share > 0:
		return finding{Result: healthWarn, Key: "health.disk.warn", Arg: used}
	}
	return finding{Result: healthGood, Key: "health.disk.good", Arg: used}
}

// checkClock compares the clock of the server that owns the app with that of this one. The difference is
// at least what remains after the time that the call took.
func (f *found) checkClock() finding {
	at := stamp(f.overview.ServerTime)
	off := max(0, f.asked.Sub(at), at.Sub(f.answered))
	k := finding{Result: healthGood, Key: "health.clock.good"}
	switch {
	case f.overview.ServerTime == nil:
		return finding{Result: healthBlind, Key: "health.clock.unknown"}
	case off >= clockBad:
		k.Result = healthBad
	case off >= clockWarn:
		k.Result = healthWarn
	}
	if k.Result != healthGood {
		k.Key, k.Arg = "health.clock.off", span(off)
	}
	return k
}

func (f *found) checkLogs() finding {
	var wrong, damaged []string
	for _, l := range f.queues.Logs {
		if l.Error != "" {
			wrong = append(wrong, l.Name+": "+l.Error)
		}
		if l.Damaged > 0 {
			damaged = append(damaged, l.Name)
		}
	}
	switch {
	case len(wrong) > 0:
		return finding{Result: healthBad, Key: "health.logs.readonly"}.about(wrong)
	case len(damaged) > 0:
		return finding{Result: healthBad, Key: "health.logs.damaged"}.about(damaged)
	case f.queues.LostUnconsumed > 0:
		return finding{Result: healthBad, Key: "health.logs.lost", Arg: count(f.queues.LostUnconsumed)}
	}
	return finding{Result: healthGood, Key: "health.logs.good"}
}

func (f *found) checkLetters() finding {
	if n := f.queues.DeadLetters; n > 0 {
		return finding{Result: healthWarn, Key: "health.letters.some", Arg: count(n)}
	}
	return finding{Result: healthGood, Key: "health.letters.good"}
}

func (f *found) checkCertificates(now time.Time) (all []finding) {
	var ended, ends []string
	for _, m := range f.machines.Certificates {
		switch certificateState(m, now) {
		case certificateEnded:
			ended = append(ended, cmp.Or(m.Name, m.Id))
		case certificateEnds:
			ends = append(ends, cmp.Or(m.Name, m.Id))
		}
	}
	if len(ended) > 0 {
		all = append(all, finding{Result: healthBad, Key: "health.certificates.ended"}.about(ended))
	}
	if len(ends) > 0 {
		all = append(all, finding{Result: healthWarn, Key: "health.certificates.ends"}.about(ends))
	}
	switch {
	case all != nil:
	case len(f.machines.Certificates) == 0:
		all = append(all, finding{Result: healthGood, Key: "health.certificates.none"})
	default:
		all = append(all, finding{Result: healthGood, Key: "health.certificates.good", Arg: count(len(f.machines.Certificates))})
	}
	return all
}

// checkVersions compares the versions of the servers and hosts that are up.
func (f *found) checkVersions() finding {
	with := map[string]int{}
	note := func(state, version string) {
		if state != "lost" && version != "" {
			with[version]++
		}
	}
	for _, s := range f.cluster.Servers {
		note(s.State, s.Version)
	}
	for _, h := range f.hosts.Hosts {
		note(h.State, h.Version)
	}
	var names []string
	for version, n := range with {
		names = append(names, version+" × "+count(n))
	}
	slices.SortFunc(names, strings.Compare)
	switch len(names) {
	case 0:
		return finding{Result: healthBlind, Key: "health.versions.unknown"}
	case 1:
		return finding{Result: healthGood, Key: "health.versions.good"}.about(names)
	}
	return finding{Result: healthWarn, Key: "health.versions.mixed"}.about(names)
}
