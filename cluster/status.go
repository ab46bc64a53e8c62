package cluster

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Status describes a cluster as it was at one moment.
func Status(v Snapshot, group, self, leader string, trouble error) *apiv1.ClusterStatus {
	st := &apiv1.ClusterStatus{Name: group, Server: self, Balancer: leader, Apps: int32(v.apps)}
	if trouble != nil {
		st.Trouble = trouble.Error()
	}
	servers := map[string]*apiv1.Member{}
	for id, p := range v.Servers {
		servers[id] = &apiv1.Member{Id: id, Address: p.Address, State: "up", Version: p.Version, LastSeenAt: timestamppb.New(time.UnixMilli(p.At)), Zone: p.Zone, Capacity: p.Capacity, RoundTripMs: float64(p.TripUs) / 1000}
	}
	for id := range v.Draining {
		if servers[id] == nil {
			servers[id] = &apiv1.Member{Id: id, State: "lost"}
		} else {
			servers[id].State = "draining"
		}
	}
	for _, name := range v.Partitions {
		o := v.Owners[name]
		u := &apiv1.Unit{Name: name, State: "owned", Owner: o.Server, Address: o.Address, Epoch: o.Epoch}
		p, alive := v.Servers[o.Server]
		report := p.Owns[name]
		u.ScheduleRate, u.Hosts, u.Apps = report.Rate, int32(report.Hosts), int32(report.Apps)
		for _, c := range v.hostAssignment.GetCalls() {
			if c.Unit == name {
				u.Calls = append(u.Calls, c.App)
			}
		}
		if want := v.Wants[name]; want != o.Server {
			if _, ok := v.Servers[want]; ok {
				u.To, u.State = want, "moving"
			}
		}
		if o.Server == "" {
			u.State = "free"
		}
		for id, p := range v.Servers {
			if _, follows := p.Follows[name]; follows && id != o.Server {
				u.Standbys = append(u.Standbys, id)
			}
		}
		slices.Sort(u.Standbys)
		if s := servers[o.Server]; s != nil {
			s.Units++
			s.ScheduleRate += report.Rate
		} else if o.Server != "" && !alive {
			servers[o.Server] = &apiv1.Member{Id: o.Server, Address: o.Address, State: "lost", Units: 1}
		}
		st.Units = append(st.Units, u)
	}
	for _, s := range servers {
		if s.State == "draining" && s.Units == 0 {
			s.State = "drained"
		}
		st.Servers = append(st.Servers, s)
	}
	slices.SortFunc(st.Servers, func(a, b *apiv1.Member) int { return strings.Compare(a.Id, b.Id) })
	st.Split = SplitApps(&v)
	if st.UnitsPerHost = v.hostAssignment.GetUnitsPerHost(); st.UnitsPerHost > 0 {
		if all, _, known := v.hostsOf(); known {
			st.Hosts = int32(all)
		}
	}
	return st
}
