package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/version"
)

// Partition is a partition as this server has it.
type Partition interface {
	Name() string
	// Serving returns what serves the partition; nil: this server does not own it.
	Serving() *router.Services
	// Report returns what the owner reports; nil: this server is a standby.
	Report() *cluster.PartitionReport
	// Progress returns the progress of the standby.
	Progress() cluster.FollowState
}

// Member is a server of a cluster. Its fields do not change once it runs.
type Member struct {
	ID         string
	Address    string // at which others reach it
	Zone       string
	Capacity   float64         // relative to the other servers
	Keys       func() []string // ids of the keys that open secrets
	Certified  bool            // it knows other servers by their certificates
	View       *cluster.View
	Partitions []Partition
	Router     *router.Router
	Balancer   *cluster.Balancer
	Logger     *slog.Logger

	trips trips // only Tell uses it
}

// presenceEvery is how often a server reports itself and what it owns.
const presenceEvery = time.Second

// trips are the durations of the last writes to etcd.
type trips struct {
	last [32]time.Duration
	n    int
}

func (t *trips) add(d time.Duration) {
	t.last[t.n%len(t.last)] = d
	t.n++
}

// tripsEnough is a number of writes of which at least one was not delayed, even on a busy
// machine.
const tripsEnough = 32

// least returns the shortest of the last writes, which is the round trip to etcd; 0 until
// there are enough of them. Longer writes show how busy the machine is, not where it is.
func (t *trips) least() time.Duration {
	if t.n < tripsEnough {
		return 0
	}
	return slices.Min(t.last[:min(t.n, len(t.last))])
}

// Present writes this server's row in etcd regularly, until ctx ends.
func (m *Member) Present(ctx context.Context) error {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.Tell(ctx)
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), presenceEvery)
			defer cancel()
			_ = m.View.Etcd.Forget(leaving, m.View.Group, cluster.RowHere+m.ID) // otherwise the row ends with its lease
			return nil
		}
	}
}

// Tell writes this server's row in etcd.
func (m *Member) Tell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*presenceEvery)
	defer cancel()
	begin := time.Now()
	p := cluster.Presence{
		Address: m.Address, Version: version.String(), At: begin.UnixMilli(), Splits: true, Divides: true, Passes: true, Certified: m.Certified, Owns: map[string]cluster.PartitionReport{}, Follows: map[string]cluster.FollowState{},
		Zone: m.Zone, Capacity: m.Capacity, TripUs: m.trips.least().Microseconds(), Keys: m.Keys(),
	}
	for _, u := range m.Partitions {
		if r := u.Report(); r != nil {
			p.Owns[u.Name()] = *r
		} else {
			p.Follows[u.Name()] = u.Progress()
		}
	}
	row, err := json.Marshal(p)
	if err == nil {
		err = m.View.Etcd.Note(ctx, m.View.Group, cluster.RowHere+m.ID, string(row), true)
	}
	if err == nil {
		m.trips.add(time.Since(begin))
	}
	if err != nil && ctx.Err() == nil {
		m.Logger.Warn("the row of this server could not be written to etcd", "error", err)
	}
}

// Owns returns the partitions that this server serves now, with their epochs, and the
// number of the host assignment. Hosts must learn a change of these at once.
func (m *Member) Owns() string {
	var b strings.Builder
	for _, u := range m.Partitions {
		if services := u.Serving(); services != nil {
			fmt.Fprintf(&b, "%s=%d ", u.Name(), services.Sched.Epoch())
		}
	}
	if n := m.View.Divided().GetNumber(); n > 0 { // hosts wait for it
		fmt.Fprintf(&b, "hosts=%d", n)
	}
	return b.String()
}

// Report returns this server's report to a nameserver.
func (m *Member) Report(ctx context.Context) *apiv1.ServerReport {
	r := &apiv1.ServerReport{Server: m.ID, Address: m.Address, Version: version.String(), AllUnits: m.View.Partitions, HostAssignment: m.View.Divided()}
	for _, u := range m.Partitions {
		services := u.Serving()
		if services == nil || !services.Enter() {
			continue
		}
		l, err := services.Sched.Load(ctx)
		epoch := services.Sched.Epoch()
		services.Leave()
		if err != nil {
			continue
		}
		r.Units = append(r.Units, &apiv1.UnitReport{Unit: u.Name(), Epoch: epoch, ScheduleRate: l.ScheduleRate, Hosts: int32(l.Hosts), Apps: l.Apps})
		r.ScheduleRate += l.ScheduleRate
		r.Hosts = max(r.Hosts, int32(l.Hosts))
		r.Apps = append(r.Apps, l.Apps...)
	}
	slices.Sort(r.Apps)
	return r
}

// UntilOther waits until Owns does not return owned any longer, or until a tick. It
// reports false when ctx has ended.
func (m *Member) UntilOther(ctx context.Context, owned string, tick <-chan time.Time) bool {
	for {
		changed := m.View.Change()
		if m.Owns() != owned {
			return true
		}
		select {
		case <-changed:
		case <-tick:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
