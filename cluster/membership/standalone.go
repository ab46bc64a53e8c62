package membership

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Standalone answers for a server that is in no cluster.
type Standalone struct {
	apiv1.UnimplementedMembershipServer
	Names apiv1.NameserverClient // which lists the servers
	ID    string                 // of this server
}

// GetCluster shows the servers that the nameserver knows. Each owns the state on its
// disk.
func (s *Standalone) GetCluster(ctx context.Context, _ *apiv1.GetClusterRequest) (*apiv1.ClusterStatus, error) {
	list, err := s.Names.ListServers(ctx, &apiv1.ListServersRequest{})
	if err != nil {
		return nil, err
	}
	st := &apiv1.ClusterStatus{Server: s.ID}
	for _, m := range list.Servers {
		st.Servers = append(st.Servers, &apiv1.Member{
			Id: m.Id, Address: m.Address, State: m.State, Version: m.Version, ScheduleRate: m.ScheduleRate, LastSeenAt: m.LastSeenAt,
		})
		st.Apps += int32(len(m.Apps))
	}
	return st, nil
}

var errStandalone = status.Error(codes.FailedPrecondition, "this server keeps its journal on its own disk: what it owns stays with it. Servers that share their journals in etcd (--etcd-endpoints) move what they own")

// DrainServer is refused.
func (s *Standalone) DrainServer(context.Context, *apiv1.DrainServerRequest) (*apiv1.ClusterStatus, error) {
	return nil, errStandalone
}

// UndrainServer is refused.
func (s *Standalone) UndrainServer(context.Context, *apiv1.UndrainServerRequest) (*apiv1.ClusterStatus, error) {
	return nil, errStandalone
}

// Forward is refused.
func (s *Standalone) Forward(context.Context, *apiv1.ForwardRequest) (*apiv1.ForwardResponse, error) {
	return nil, errStandalone
}

// MoveUnit is refused.
func (s *Standalone) MoveUnit(context.Context, *apiv1.MoveUnitRequest) (*apiv1.ClusterStatus, error) {
	return nil, errStandalone
}

// SplitApp is refused.
func (s *Standalone) SplitApp(context.Context, *apiv1.SplitAppRequest) (*apiv1.ClusterStatus, error) {
	return nil, errStandalone
}

// MergeApp is refused.
func (s *Standalone) MergeApp(context.Context, *apiv1.MergeAppRequest) (*apiv1.ClusterStatus, error) {
	return nil, errStandalone
}

// TakeSlot is refused.
func (s *Standalone) TakeSlot(apiv1.Membership_TakeSlotServer) error { return errStandalone }

// CopyApp is refused.
func (s *Standalone) CopyApp(context.Context, *apiv1.CopyAppRequest) (*apiv1.CopyAppResponse, error) {
	return nil, errStandalone
}

// CopyOut is refused.
func (s *Standalone) CopyOut(context.Context, *apiv1.CopyOutRequest) (*apiv1.CopyOutResponse, error) {
	return nil, errStandalone
}

// Ask is refused.
func (s *Standalone) Ask(context.Context, *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	return nil, errStandalone
}
