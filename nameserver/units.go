package nameserver

import (
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// units is what the servers of a cluster report of who owns what. They decide
// that among themselves, in etcd: a nameserver only passes it on.
type units struct {
	all   []string
	owner map[string]ownership // by unit
	apps  map[string]string    // the unit of an app; it never changes
	// division is the newest that was heard of; nil: none.
	division *apiv1.Division
}

// ownership is the newest that was heard of. Its epoch stays when its server has
// given it up.
type ownership struct {
	server string
	epoch  uint64
}

func newUnits() units { return units{owner: map[string]ownership{}, apps: map[string]string{}} }

// hear takes in a report. It returns whether that changed where anything is.
func (u *units) hear(r *apiv1.ServerReport) (changed bool) {
	if !slices.Equal(u.all, r.AllUnits) {
		u.all, changed = slices.Clone(r.AllUnits), true
	}
	// Of two with one number, which two stewards wrote, the last one stays in etcd.
	if d := r.Division; d != nil && d.Number >= u.division.GetNumber() && !proto.Equal(d, u.division) {
		u.division, changed = d, true
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
	for unit, o := range u.owner {
		if o.server == r.Server && !owned[unit] {
			u.owner[unit], changed = ownership{"", o.epoch}, true
		}
	}
	return changed
}

// of returns the unit of an app; of one that is nowhere, the first: whoever owns
// it sees to the rest.
func (u *units) of(app string) string {
	if unit, ok := u.apps[app]; ok {
		return unit
	}
	return u.all[0]
}

// works reports whether a host is to have a session with the owner of a unit.
func (u *units) works(host string, apps []string, unit string) bool {
	c := Cluster{Units: u.all, Division: u.division, Home: func(app string) (string, bool) { unit, ok := u.apps[app]; return unit, ok }}
	return c.Works(host, apps, unit)
}
