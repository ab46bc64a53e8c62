package nameserver

import (
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
)

// Cluster holds the data from which the host assignment follows.
type Cluster struct {
	Units          []string
	HostAssignment *apiv1.HostAssignment // nil: each host works for all partitions
	// Home returns the partition of an app that is in one partition; false: the app is in
	// none yet.
	Home func(app string) (partition string, ok bool)
}

// On reports whether some hosts do not work for all partitions.
func (c *Cluster) On() bool { return c.HostAssignment.GetUnitsPerHost() > 0 }

// Works reports whether a host should have a session with the owner of a partition. apps
// are those that the host serves; none means all. A host without an id has sessions with
// all owners, because older hosts do not send one.
func (c *Cluster) Works(host string, apps []string, partition string) bool {
	if !c.On() || host == "" {
		return true
	}
	for _, call := range c.HostAssignment.Calls {
		if call.Unit == partition && (len(apps) == 0 || slices.Contains(apps, call.App)) {
			return true
		}
	}
	if len(apps) == 0 {
		return slices.Contains(balance.AssignSeveral(host, c.Units, int(c.HostAssignment.UnitsPerHost)), partition)
	}
	for _, app := range apps {
		if slices.Contains(c.partitionsOf(host, app), partition) {
			return true
		}
	}
	return c.Anchor(host, apps) == partition
}

// partitionsOf returns the partitions that a host works for because it serves an app by name.
func (c *Cluster) partitionsOf(host, app string) []string {
	for _, d := range c.HostAssignment.GetApps() {
		switch {
		case d.App != app || len(d.Weights) != len(d.Units):
		case d.Divided:
			return []string{balance.Assign(host, d.Units, d.Weights)}
		default:
			return d.Units
		}
	}
	if partition, ok := c.Home(app); ok {
		return []string{partition}
	}
	return nil
}

// Anchor returns one of the partitions that a host works for without borrowing. Only this
// partition includes the host in its number of hosts, so each host is counted once.
func (c *Cluster) Anchor(host string, apps []string) string {
	for _, app := range apps {
		if partitions := c.partitionsOf(host, app); len(partitions) > 0 {
			return partitions[0]
		}
	}
	return balance.Assign(host, c.Units, nil)
}
