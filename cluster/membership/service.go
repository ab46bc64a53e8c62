package membership

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
)

// Service shows and moves the ownership of partitions, and takes what servers send each
// other.
type Service struct {
	apiv1.UnimplementedMembershipServer
	m *Member
}

// Service returns the service of the member.
func (m *Member) Service() *Service { return &Service{m: m} }

// GetCluster shows the cluster as this server sees it.
func (s *Service) GetCluster(ctx context.Context, _ *apiv1.GetClusterRequest) (*apiv1.ClusterStatus, error) {
	leader, err := s.m.Balancer.Leader(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return cluster.Status(s.m.View.Snapshot(), s.m.View.Group, s.m.ID, leader, s.m.View.Etcd.Refuses()), nil
}

// DrainServer asks a server to give away the partitions that it owns. It does not wait
// until it has.
func (s *Service) DrainServer(ctx context.Context, req *apiv1.DrainServerRequest) (*apiv1.ClusterStatus, error) {
	v := s.m.View.Snapshot()
	id, err := v.Find(req.Server)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	others := 0
	for other := range v.Servers {
		if other != id && !v.Draining[other] {
			others++
		}
	}
	if others == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "the server %s is the only one that may own anything: start another one, or undrain one, before it is drained", id)
	}
	if err := s.m.View.Etcd.Note(ctx, s.m.View.Group, cluster.RowDrain+id, "1", false); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v cluster.Snapshot) bool { return v.Draining[id] })
}

// UndrainServer lets a server own partitions again.
func (s *Service) UndrainServer(ctx context.Context, req *apiv1.UndrainServerRequest) (*apiv1.ClusterStatus, error) {
	v := s.m.View.Snapshot()
	id := req.Server
	if !v.Draining[id] { // a lost server is known by its id alone
		var err error
		if id, err = v.Find(req.Server); err != nil {
			return nil, status.Error(codes.NotFound, err.Error())
		}
	}
	if err := s.m.View.Etcd.Forget(ctx, s.m.View.Group, cluster.RowDrain+id); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v cluster.Snapshot) bool { return !v.Draining[id] })
}

// MoveUnit assigns a partition to a server. It does not wait for the move.
func (s *Service) MoveUnit(ctx context.Context, req *apiv1.MoveUnitRequest) (*apiv1.ClusterStatus, error) {
	v := s.m.View.Snapshot()
	if !slices.Contains(v.Partitions, req.Unit) {
		return nil, status.Errorf(codes.NotFound, "the cluster has no partition %q: it has %s", req.Unit, strings.Join(v.Partitions, ", "))
	}
	id, err := v.Find(req.Server)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if v.Draining[id] {
		return nil, status.Errorf(codes.FailedPrecondition, "the server %s is drained: `wheelwork cluster undrain %s` first", id, req.Server)
	}
	if err := s.m.View.Etcd.Note(ctx, s.m.View.Group, cluster.RowWant+req.Unit, id, false); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v cluster.Snapshot) bool { return v.Wants[req.Unit] == id })
}

// Forward applies commands that another server has accepted.
func (s *Service) Forward(ctx context.Context, req *apiv1.ForwardRequest) (*apiv1.ForwardResponse, error) {
	n := len(req.Commands)
	if n > router.MaxCommands || len(req.AtMs) != n || (len(req.Runs) != n && len(req.Runs) != 0) {
		return nil, status.Errorf(codes.InvalidArgument, "%d commands with %d times and %d runs: want at most %d, and a time and a run for each", n, len(req.AtMs), len(req.Runs), router.MaxCommands)
	}
	accepted := make([]*apiv1.Ingress, n)
	for i, c := range req.Commands {
		accepted[i] = &apiv1.Ingress{Command: c, AtMs: req.AtMs[i], TraceParent: req.TraceParent}
		if len(req.Runs) > 0 {
			accepted[i].Run = req.Runs[i]
		}
	}
	results, err := s.m.Router.Apply(context.WithValue(ctx, router.Forwarded{}, true), accepted, req.Again)
	return &apiv1.ForwardResponse{Results: results}, err
}

// after returns the status of the cluster once this server has seen a change that was
// made, or after 1 s.
func (s *Service) after(ctx context.Context, seen func(cluster.Snapshot) bool) (*apiv1.ClusterStatus, error) {
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		changed := s.m.View.Change()
		if seen(s.m.View.Snapshot()) {
			break
		}
		select {
		case <-changed:
			continue
		case <-waiting.Done():
		}
		break
	}
	return s.GetCluster(ctx, &apiv1.GetClusterRequest{})
}
