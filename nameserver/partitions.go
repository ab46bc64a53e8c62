package nameserver

import (
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// partitions holds the owners of partitions as the servers of a cluster report them. The
// servers decide the owners in etcd; a nameserver only passes them on.
type partitions struct {
	all   []string
	owner map[string]ownership // by unit
	apps  map[string]string    // partition of an app; it never changes
	// assignment is the newest host assignment reported; nil: none.
	assignment *apiv1.HostAssignment
}

// ownership is the newest owner reported for a partition. The epoch stays after its
// server has released the partition.
type ownership struct {
	server string
	epoch  uint64
}

func newPartitions() partitions {
	return partitions{owner: map[string]ownership{}, apps: map[string]string{}}
}

// receive merges a report. It returns whether an owner, a partition or the assignment
// changed.
func (u *partitions) receive(r *apiv1.ServerReport) (changed bool) {
	if !slices.Equal(u.all, r.AllUnits) {
		u.all, changed = slices.Clone(r.AllUnits), true
	}
	// Two balancers may have written the same number. The last write stays in etcd.
	if d := r.HostAssignment; d != nil && d.Number >= u.assignment.GetNumber() && !proto.Equal(d, u.assignment) {
		u.assignment, changed = d, true
	}
	owned := map[string]bool{}
	for _, m := range r.Units {
		owned[m.Unit] = true
		if is, was := (ownership{r.Server, m.Epoch}), u.owner[m.Unit]; is != was && m.Epoch >= was.epoch {
			u.owner[m.Unit], changed = is, true
		}
		for _, app := range m.Apps {
			if u.apps[app] != m.Unit {
				u.apps[app], changed = m.Unit, true
			}
		}
	}
	for partition, o := range u.owner {
		if o.server == r.Server && !owned[partition] {
			u.owner[partition], changed = ownership{"", o.epoch}, true
		}
	}
	return changed
}

// of returns the partition of an app. For an unknown app it is the first partition, whose
// owner handles the request.
func (u *partitions) of(app string) string {
	if partition, ok := u.apps[app]; ok {
		return partition
	}
	return u.all[0]
}

// works reports whether a host should have a session with the owner of a partition.
func (u *partitions) works(host string, apps []string, partition string) bool {
	c := Cluster{Units: u.all, HostAssignment: u.assignment, Home: func(app string) (string, bool) { partition, ok := u.apps[app]; return partition, ok }}
	return c.Works(host, apps, partition)
}
