package membership

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/nameserver"
)

// Nameserver is the nameserver in each server of a cluster: it answers from the state in
// etcd.
type Nameserver struct {
	apiv1.UnimplementedNameserverServer
	m *Member
}

// Nameserver returns the nameserver of the member.
func (m *Member) Nameserver() *Nameserver { return &Nameserver{m: m} }

func (n *Nameserver) partitionFor(partition, app string) string {
	if partition != "" {
		return partition
	}
	if partition, ok := n.m.View.PartitionOf(cmp.Or(app, "default")); ok {
		return partition
	}
	return n.m.View.Fallback()
}

// Route returns the owner of the partition that takes an app's commands. If there is
// none, it waits at most Patience for one.
func (n *Nameserver) Route(ctx context.Context, req *apiv1.RouteRequest) (*apiv1.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, router.Patience)
	defer cancel()
	for {
		changed := n.m.View.Change()
		a := n.m.View.Assignment(n.partitionFor("", req.App))
		if a.Server != "" {
			return a, nil
		}
		select { // a call during a take-over is answered after it
		case <-changed:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Unavailable, "the partition %s, where the app is, has no owner now: try again in a moment", a.Unit)
		}
	}
}

// Watch sends a host its assignment, now and at every change.
func (n *Nameserver) Watch(req *apiv1.WatchRequest, stream apiv1.Nameserver_WatchServer) error {
	if req.Unit != "" && n.m.Router.Partitions[req.Unit] == nil {
		return status.Errorf(codes.NotFound, "the cluster has no partition %q", req.Unit)
	}
	app := ""
	if len(req.Apps) > 0 {
		app = req.Apps[0]
	}
	var last *apiv1.Assignment
	for {
		changed := n.m.View.Reroute()
		a := n.m.View.Assignment(n.partitionFor(req.Unit, app))
		a.Leave = req.Unit != "" && !n.m.View.Works(req)
		if last == nil || !proto.Equal(a, last) {
			if err := stream.Send(a); err != nil {
				return err
			}
			last = a
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Join refuses every server: those of the cluster are in etcd, and no other server can
// join.
func (n *Nameserver) Join(stream apiv1.Nameserver_JoinServer) error {
	report, err := stream.Recv()
	if err != nil {
		return err
	}
	if len(report.AllUnits) == 0 {
		return nameserver.Taken(&apiv1.ServerReport{Server: n.m.ID, Address: n.m.Address, AllUnits: n.m.View.Partitions})
	}
	return status.Error(codes.FailedPrecondition, "this server is of a cluster on etcd, and nameserver of that alone: start the other server with the same --etcd-endpoints")
}

// ListServers lists servers by id.
func (n *Nameserver) ListServers(context.Context, *apiv1.ListServersRequest) (*apiv1.ListServersResponse, error) {
	v := n.m.View.Snapshot()
	resp := &apiv1.ListServersResponse{}
	for id, p := range v.Servers {
		s := &apiv1.Server{Id: id, Address: p.Address, State: "up", Version: p.Version, LastSeenAt: timestamppb.New(time.UnixMilli(p.At))}
		if v.Draining[id] {
			s.State = "draining"
		}
		for _, u := range p.Owns {
			s.ScheduleRate += u.Rate
			s.Hosts = max(s.Hosts, int32(u.Hosts))
		}
		for partition, o := range v.Owners {
			if o.Server == id {
				s.Apps = append(s.Apps, n.m.View.AppsOf(partition)...)
			}
		}
		slices.Sort(s.Apps)
		resp.Servers = append(resp.Servers, s)
	}
	slices.SortFunc(resp.Servers, func(a, b *apiv1.Server) int { return strings.Compare(a.Id, b.Id) })
	return resp, nil
}
