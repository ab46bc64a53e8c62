package core

import (
	"cmp"
	"fmt"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file has the limits of apps: how much one app may take of what all apps share. A refusal
// names the limit and the command that raises it.

// The defaults of the limits of an app.
const (
	defaultJobs        = 2_000_000
	defaultQueuedRuns  = 5_000_000
	defaultBytes       = 16 << 30
	defaultModuleBytes = 4 << 30
)

// othersRuns is the part of the runs of a server that one app leaves to the others: an eighth.
const othersRuns = 8

// limits returns the limits of the app with the defaults filled in, as the API shows them.
func (a *app) limits() *apiv1.AppLimits {
	m := a.slots[job.ModuleSlot].Limits
	return &apiv1.AppLimits{
		Jobs:        cmp.Or(m.GetJobs(), defaultJobs),
		QueuedRuns:  cmp.Or(m.GetQueuedRuns(), defaultQueuedRuns),
		LiveRuns:    m.GetLiveRuns(),
		Bytes:       cmp.Or(m.GetBytes(), defaultBytes),
		ModuleBytes: cmp.Or(m.GetModuleBytes(), defaultModuleBytes),
	}
}

// part returns what this partition enforces of a limit of the app: all of it, or the share of
// its slots if the app is split, and at least 1.
func (a *app) part(limit int64) int64 {
	if !a.split() {
		return limit
	}
	share := a.share()
	return max(limit/job.Slots*share+limit%job.Slots*share/job.Slots, 1)
}

// beyond returns the refusal of what would exceed a limit of an app. what says what the app has,
// and flag is the flag of "app limits" that raises the limit.
func (a *app) beyond(what string, limit int64, flag string) error {
	if a.alerts != nil {
		a.alerts.atLimit(flag, fmt.Sprintf("the app has as many %s as it may have (%d)", what, limit))
	}
	return status.Errorf(codes.ResourceExhausted, "app %s has as many %s as it may have (%d): delete what it does not need, or let an administrator of the cluster raise the limit: wheelwork app limits %s --%s N", a.name, what, limit, a.name, flag)
}

// within reports whether n is within what this partition enforces of a limit.
func (a *app) within(n, limit int64) bool { return n <= limit/job.Slots || n <= a.part(limit) }

// growth is what definitions add to an app.
type growth struct{ jobs, bytes int64 }

// mayPut returns an error if an app may not have the definition def: j is its job and old the present
// definition, or nil. set has what the definitions of its set add that were checked before; nil: there
// is no set.
func (li *limits) mayPut(j *job.Job, old, def *apiv1.Job, set *growth) error {
	before := growth{}
	if set != nil {
		before = *set
	}
	more := growth{}
	if j == nil {
		more.jobs = 1
		if err := li.mayCreate(def.App, before.jobs+1); err != nil {
			return err
		}
	}
	a := li.l.State.app(def.App)
	if set == nil && a.mayGrow(maxDefinition) == nil {
		return nil
	}
	more.bytes = int64(proto.Size(def) - proto.Size(old))
	if err := a.mayGrow(before.bytes + more.bytes); err != nil && more.bytes > 0 {
		return err
	}
	if set != nil {
		set.jobs += more.jobs
		set.bytes += more.bytes
	}
	return nil
}

// maxDefinition is more than the bytes of any definition.
const maxDefinition = 4 << 20

// mayCreate returns an error if an app may not have that many more jobs, or is new and there may be
// no further app.
func (li *limits) mayCreate(name string, more int64) error {
	if err := li.mayAddApp(name); err != nil {
		return err
	}
	a := li.l.State.app(name)
	limit := cmp.Or(a.slots[job.ModuleSlot].Limits.GetJobs(), defaultJobs)
	if !a.within(a.used.Jobs+more, limit) {
		return a.beyond("jobs", limit, "jobs")
	}
	return nil
}

// mayGrow returns an error if the definitions and inputs of an app may not take that many more bytes.
func (a *app) mayGrow(more int64) error {
	limit := cmp.Or(a.slots[job.ModuleSlot].Limits.GetBytes(), defaultBytes)
	if !a.within(a.used.Bytes+more, limit) {
		return a.beyond("bytes of definitions and inputs", limit, "bytes")
	}
	return nil
}

// mayAccept returns an error if an app may have no further live run with an input of that size. over is
// the factor for runs that follow from others or from a schedule, which must not be lost as soon
// as callers have used up the limit.
func (li *limits) mayAccept(a *app, input int, over int64) error {
	most := int64(li.l.cfg.MaxLive)
	if int64(li.l.State.live) >= most*over {
		return status.Errorf(codes.ResourceExhausted, "%d runs have not ended, which is the limit: try again when some have", li.l.State.live)
	}
	if a.runs >= (most-most/othersRuns)*over {
		return status.Errorf(codes.ResourceExhausted, "%d runs of app %s have not ended: the server takes %d, and keeps an eighth of them for other apps: try again when some have", a.runs, a.name, most)
	}
	limit := cmp.Or(a.slots[job.ModuleSlot].Limits.GetQueuedRuns(), defaultQueuedRuns)
	if !a.within(a.runs/over+1, limit) {
		return a.beyond("runs that have not ended", limit, "queued-runs")
	}
	if input == 0 {
		return nil
	}
	return a.mayGrow(int64(input))
}

// mayStore returns an error if the bytes of another module may not be stored for an app.
func (a *app) mayStore(m *apiv1.Module) error {
	limit := cmp.Or(a.slots[job.ModuleSlot].Limits.GetModuleBytes(), defaultModuleBytes)
	if has := a.moduleBytes(m.Digest); has+m.Size > limit {
		return a.beyond("bytes of modules", limit, "module-bytes")
	}
	return nil
}

// moduleBytes returns the bytes of the modules of the app whose code is stored, each digest once
// and without one of them.
func (a *app) moduleBytes(without string) (n int64) {
	seen := map[string]bool{without: true}
	for _, m := range a.slots[job.ModuleSlot].Modules {
		if m.CollectedAt == nil && !seen[m.Digest] {
			seen[m.Digest] = true
			n += m.Size
		}
	}
	return n
}

// mayAddApp returns an error if an app is new and there may be no further one.
func (li *limits) mayAddApp(name string) error {
	if a := li.l.State.apps[name]; li.l.cfg.MaxApps == 0 || a != nil && (a.used.Jobs > 0 || !a.gone()) {
		return nil
	}
	n := 0
	for _, a := range li.l.State.apps {
		if a.name != "" && !a.gone() {
			n++
		}
	}
	if n >= li.l.cfg.MaxApps {
		return status.Errorf(codes.ResourceExhausted, "there are %d apps, which is the limit: delete one with `wheelwork app delete`, or start the server with a higher --max-apps", n)
	}
	return nil
}

// room returns how many runs hosts may be sent of an app at a time in Unix ms.
func (a *app) room(nowMs int64) int {
	if a.pausedAt(nowMs) != nil {
		return 0
	}
	limit := a.slots[job.ModuleSlot].Limits.GetLiveRuns()
	if limit == 0 {
		return math.MaxInt
	}
	return int(max(min(a.part(limit), math.MaxInt32)-int64(a.fair.AtHosts), 0))
}

// AppLimits checks the limits of an app, and returns a copy of them.
func AppLimits(m *apiv1.AppLimits) (*apiv1.AppLimits, error) {
	for _, x := range []struct {
		name  string
		value int64
	}{
		{"jobs", m.GetJobs()},
		{"queued_runs", m.GetQueuedRuns()},
		{"live_runs", m.GetLiveRuns()},
		{"bytes", m.GetBytes()},
		{"module_bytes", m.GetModuleBytes()},
	} {
		if x.value < 0 {
			return nil, status.Errorf(codes.InvalidArgument, "limits: %s is %d: want a positive number, or 0 for the default", x.name, x.value)
		}
	}
	if m == nil {
		return &apiv1.AppLimits{}, nil
	}
	m = proto.CloneOf(m)
	// A default that a client has read and writes back stays the default.
	for value, standard := range map[*int64]int64{&m.Jobs: defaultJobs, &m.QueuedRuns: defaultQueuedRuns, &m.Bytes: defaultBytes, &m.ModuleBytes: defaultModuleBytes} {
		if *value == standard {
			*value = 0
		}
	}
	return m, nil
}
