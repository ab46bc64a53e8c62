package hosts

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// Budget returns the work of quick jobs that a host may hold, see workAhead.
func (h *Host) Budget() time.Duration {
	return time.Duration(max(int(h.Hello.Slots)-h.Held.Slow, 0)) * workAhead
}

// Host is what the loop knows of a host.
type Host struct {
	Hello      *apiv1.Hello
	Abilities  job.Abilities // from hello
	Load       *apiv1.HostLoad
	Connected  bool
	Draining   bool
	Cordoned   bool   // an operator keeps tasks from it
	Leaving    bool   // it was assigned to other partitions: its stream ends when it has no runs
	Generation uint64 // counts its streams, so that late events of an old stream are recognized
	Out        *Outbox
	Credits    int64 // tasks that it can take
	Held       Held
	Picked     uint64 // see offer
	JoinedAt   time.Time
	SeenAt     time.Time
	Modules    map[string]*apiv1.ModuleState // what it has reported of modules, by digest
	LostAt     time.Time                     // end of its lease, if it is not connected: its runs are lost then
}

// Takes reports whether the host takes tasks at all.
func (h *Host) Takes() bool { return h.Connected && !h.Draining && !h.Cordoned }

// Serves reports whether the host takes runs of an app.
func (h *Host) Serves(app string) bool {
	return len(h.Hello.Apps) == 0 || slices.Contains(h.Hello.Apps, app)
}

// Free returns the number of slots in which a task that is sent now starts at once.
func (h *Host) Free() int { return max(int(h.Hello.Slots)-h.Held.Busy(), 0) }

// SetAbilities replaces the abilities of a host, which were those of its hello.
func (h *Host) SetAbilities(abi []string) {
	h.Hello = proto.CloneOf(h.Hello)
	h.Hello.Abi = abi
	h.Abilities = job.Abilities{}
	if len(abi) > 0 { // an empty list means modules only in a hello
		h.Abilities = job.NewAbilities(abi)
	}
}

// Lacks returns a text for the ability needs if the host has not advertised it for an app;
// "" if it has.
func (h *Host) Lacks(needs, app string) string {
	switch {
	case h.Abilities.Has(needs, app):
		return ""
	case needs == "":
		return "modules"
	}
	return needs
}

// RunsModules reports whether the host executes modules. It may also be a worker, a
// program with handlers of its own.
func (h *Host) RunsModules() bool { return h.Abilities.Has("", "") }

// RecordModules records the module states that the host has reported, up to maxNoted.
func (h *Host) RecordModules(states []*apiv1.ModuleState) {
	for _, m := range states {
		if h.Modules == nil {
			h.Modules = map[string]*apiv1.ModuleState{}
		}
		if h.Modules[m.Digest] == nil && len(h.Modules) >= maxNoted {
			continue
		}
		if len(m.Error) > maxWhy {
			m.Error = strings.ToValidUTF8(m.Error[:maxWhy], "")
		}
		h.Modules[m.Digest] = m
	}
}

// running returns the number of runs of this partition that hold an execution slot of the
// host.
func (h *Host) running() int {
	busy := h.Held.Busy()
	if slots := int(h.Hello.Slots); slots > 0 {
		return min(busy, slots)
	}
	return busy
}

// Message returns the host as the API shows it. server is the id of the server.
func (h *Host) Message(server string) *apiv1.Host {
	m := &apiv1.Host{
		Id: h.Hello.Host, Name: h.Hello.Name, State: "up", Labels: h.Hello.Labels, Apps: h.Hello.Apps, Version: h.Hello.Version,
		Slots: int32(h.Hello.Slots), Running: int32(h.running()), Sleeping: int32(h.Held.Asleep), Waiting: int32(len(h.Held.Runs) - h.Held.Asleep - h.running()), Credits: int32(h.Credits),
		LastSeenAt: timestamppb.New(h.SeenAt), Cpu: h.Load.GetCpu(), MemoryBytes: int64(h.Load.GetMemoryBytes()), Server: server, Abi: h.Hello.Abi,
	}
	switch {
	case !h.Connected:
		m.State = "lost"
	case h.Draining:
		m.State = "draining"
	case h.Cordoned:
		m.State = "cordoned"
	}
	if !h.JoinedAt.IsZero() {
		m.ConnectedAt = timestamppb.New(h.JoinedAt)
	}
	return m
}

// Reserved returns the number of slots that slow jobs leave to others, see reservedShare.
func Reserved(slots int) int {
	if slots < 2 {
		return 0
	}
	return max(slots/reservedShare, 1)
}

const (
	// maxNoted bounds the module states that the server stores for one host, because it
	// does not trust a host to send few.
	maxNoted = 4096
	// maxWhy bounds the error text of a module state, in bytes.
	maxWhy = 1024
)
