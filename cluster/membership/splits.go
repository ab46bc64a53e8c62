package membership

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/cluster/slotmover"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
)

// SplitApp spreads an app over partitions, or leaves that to the balancer.
func (s *Service) SplitApp(ctx context.Context, req *apiv1.SplitAppRequest) (*apiv1.ClusterStatus, error) {
	app := cmp.Or(req.App, naming.DefaultApp)
	return s.place(ctx, app, func(v *cluster.Snapshot, a *balance.App) (cluster.DesiredPlacement, error) {
		if req.Auto {
			return cluster.DesiredPlacement{Units: v.PartitionsOf(app)}, nil
		}
		partitions := v.PartitionLoads()
		n := int(req.Units)
		switch {
		case n < 0 || n == 1 || n > len(partitions):
			return cluster.DesiredPlacement{}, status.Errorf(codes.InvalidArgument, "units is %d: the cluster has %d, and an app is split over 2 of them at least; 0 means all", n, len(partitions))
		case n == 0:
			n = len(partitions)
		}
		to := balance.Choose(a.Home, partitions, n)
		if len(to) < n {
			err := status.Errorf(codes.FailedPrecondition, "only %d partitions have an owner that is not drained: the app cannot be split over %d", len(to), n)
			if slices.ContainsFunc(partitions, func(u balance.Partition) bool { return u.Owner == "" }) {
				err = unowned{err}
			}
			return cluster.DesiredPlacement{}, err
		}
		return cluster.DesiredPlacement{Units: balance.Place(a, to), ByHand: true}, nil
	})
}

// MergeApp moves all slots of an app to its primary partition.
func (s *Service) MergeApp(ctx context.Context, req *apiv1.MergeAppRequest) (*apiv1.ClusterStatus, error) {
	return s.place(ctx, cmp.Or(req.App, naming.DefaultApp), func(_ *cluster.Snapshot, a *balance.App) (cluster.DesiredPlacement, error) {
		return cluster.DesiredPlacement{Units: balance.Place(a, []string{a.Home}), ByHand: true}, nil
	})
}

// unowned is a refusal that may end in a moment: a partition has no owner, perhaps
// because it is moving from one server to another.
type unowned struct{ error }

// place writes the desired placement that f returns. While f refuses because a partition
// has no owner, place waits, for Patience at most.
func (s *Service) place(ctx context.Context, app string, f func(*cluster.Snapshot, *balance.App) (cluster.DesiredPlacement, error)) (*apiv1.ClusterStatus, error) {
	waiting, cancel := context.WithTimeout(ctx, router.Patience)
	defer cancel()
	for {
		changed := s.m.View.Change()
		st, err := s.placeNow(ctx, app, f)
		var refused unowned
		if !errors.As(err, &refused) {
			return st, err
		}
		select {
		case <-changed:
		case <-waiting.Done():
			return nil, refused.error
		}
	}
}

func (s *Service) placeNow(ctx context.Context, app string, f func(*cluster.Snapshot, *balance.App) (cluster.DesiredPlacement, error)) (*apiv1.ClusterStatus, error) {
	if err := naming.Check("app", app); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	r := s.m.View
	v := r.Snapshot()
	if len(v.Partitions) < 2 {
		return nil, status.Error(codes.FailedPrecondition, "the cluster has one unit, so there is nothing that an app could be split over: the number of units is that with which a cluster begins (--units)")
	}
	if err := v.MaySplit(); err != nil {
		return nil, err
	}
	home, ok := r.PartitionOf(app)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "there is nothing in app %q: `wheelwork app list` shows the apps that there are", app)
	}
	a := v.AppLoad(app, home, r.PartitionOf)
	w, err := f(&v, &a)
	if err != nil {
		return nil, err
	}
	if err := r.SetDesired(ctx, app, w); err != nil {
		if status.Code(err) == codes.FailedPrecondition {
			return nil, err
		}
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v cluster.Snapshot) bool { return slices.Equal(v.Desired(app).Units, w.Units) })
}

// TakeSlot adds a slot to a partition of this server from what another partition sends.
func (s *Service) TakeSlot(stream apiv1.Membership_TakeSlotServer) error {
	var head *apiv1.TakeSlotRequest_Head
	var items []*apiv1.SlotItem
	size := 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if head == nil {
			head = m.Head
		}
		for _, item := range m.Items {
			if size += len(item.Value); size > maxSlotBytes {
				return status.Errorf(codes.ResourceExhausted, "slot %d of app %s is larger than %d MiB", head.GetSlot(), head.GetApp(), maxSlotBytes>>20)
			}
		}
		items = append(items, m.Items...)
	}
	if head == nil {
		return status.Error(codes.InvalidArgument, "the stream ended before its first message, which names the slot")
	}
	services, err := s.own(stream.Context(), head.Unit)
	if err != nil {
		return err
	}
	defer services.Leave()
	if err := slotmover.Take(stream.Context(), s.m.View, services, head, items); err != nil {
		return err
	}
	return stream.SendAndClose(&apiv1.TakeSlotResponse{})
}

// maxSlotBytes bounds the bytes of a slot's values that a server takes from another one.
const maxSlotBytes = 1 << 30

// own returns the services of a partition of this server. The name comes from a caller,
// which may know earlier than this server that the partition moves here; own then waits.
func (s *Service) own(ctx context.Context, partition string) (*router.Services, error) {
	if s.m.Router.Partitions[partition] == nil {
		return nil, status.Errorf(codes.NotFound, "the cluster has no partition %q", partition)
	}
	return s.m.Router.Enter(ctx, partition, "")
}

// CopyApp takes a copy of an app's shared state into a partition of this server.
func (s *Service) CopyApp(ctx context.Context, req *apiv1.CopyAppRequest) (*apiv1.CopyAppResponse, error) {
	services, err := s.own(ctx, req.Unit)
	if err != nil {
		return nil, err
	}
	defer services.Leave()
	return &apiv1.CopyAppResponse{}, router.CopyApp(ctx, s.m.Router, req.Unit, services, req.State)
}

// CopyOut lets a partition of this server, which is the primary one of an app, copy the
// shared state to the app's other partitions.
func (s *Service) CopyOut(ctx context.Context, req *apiv1.CopyOutRequest) (*apiv1.CopyOutResponse, error) {
	services, err := s.own(ctx, req.Unit) // another owner is named in the error, and not called
	if err != nil {
		return nil, err
	}
	services.Leave()
	return &apiv1.CopyOutResponse{}, s.m.Router.CopyOut(ctx, req.Unit, req.App)
}

// Ask answers another server's request to a partition of this server.
func (s *Service) Ask(ctx context.Context, req *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	services, err := s.own(ctx, req.Unit)
	if err != nil {
		return nil, err
	}
	defer services.Leave()
	return router.AnswerAsked(ctx, services, req)
}
