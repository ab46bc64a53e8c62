package backups

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/store"
)

// Service serves backups of a cluster: of all partitions, whichever servers own them,
// or of one that this server owns.
//
// Each partition is copied at a moment of its own. That is as consistent as the cluster
// itself: an operation on one partition never waits for another partition, and what goes
// from one to another (an accepted command) is stored by the sender until the receiver
// has it.
type Service struct {
	apiv1.UnimplementedBackupsServer
	ID         string // of the server
	Dir        *datadir.Dir
	Queue      *queue.Queue // the ingress
	View       *cluster.View
	Router     *router.Router
	Partitions []Partition // all of the cluster
	// Recipients are those for which it encrypts if the caller names none.
	Recipients func() encryption.Recipients
	Logger     *slog.Logger
}

// Partition is a partition as this server has it.
type Partition interface {
	Name() string
	// Code returns the store with the code of its modules.
	Code() *modules.Store
	// Store returns its store, which a caller that entered its services may read.
	Store() *store.Store
}

// Backup streams all partitions of the cluster, with the ingress and, if the caller's
// request allows them, the keys of this server.
func (s *Service) Backup(req *apiv1.BackupRequest, stream apiv1.Backups_BackupServer) error {
	order, err := archive.Accept(req, s.Recipients())
	if err != nil {
		return err
	}
	return s.Source().Send(stream.Context(), s.Logger, order, stream.Send)
}

// Source returns what a backup of the cluster is made of.
func (s *Service) Source() *archive.Source {
	src := &archive.Source{ID: s.ID, Group: s.View.Group, Dir: s.Dir, Queue: s.Queue, Rows: s.View.Lasting}
	for i, u := range s.Partitions {
		p := archive.Part{Partition: u.Name(), Copy: s.copyOf(u)}
		if i > 0 {
			p.Prefix = datadir.PartitionsDir + "/" + u.Name() + "/"
		}
		src.Parts = append(src.Parts, p)
	}
	return src
}

// FetchState streams one partition: for the store of a standby, or as a part of a backup.
func (s *Service) FetchState(req *apiv1.FetchStateRequest, stream apiv1.Backups_FetchStateServer) error {
	i := slices.IndexFunc(s.Partitions, func(u Partition) bool { return u.Name() == req.Group })
	if i < 0 {
		return status.Errorf(codes.NotFound, "the cluster has no partition %q", req.Group)
	}
	u := s.Partitions[i]
	r, err := s.Router.Enter(stream.Context(), req.Group, "")
	if err != nil {
		return err
	}
	defer r.Leave()
	p := archive.Part{Partition: u.Name(), Copy: copyOwned(u, r)}
	if req.Modules { // for a backup
		p.Modules, p.Copy = u.Code(), s.copyPlaced(u, r)
	}
	src := &archive.Source{ID: s.ID, Group: req.Group, Parts: []archive.Part{p}}
	return src.Send(stream.Context(), s.Logger, archive.Order{}, stream.Send)
}

// copyOf copies a partition with its modules, here or from its owner. While the partition
// is moving it waits a little, as calls do. A copy that has begun cannot begin again: if
// the partition moves, the backup fails.
func (s *Service) copyOf(u Partition) archive.CopyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		begun := false
		first := func(c store.Copied) error {
			begun = true
			return begin(c)
		}
		return s.Router.Repeat(ctx, func(err error) bool { return !begun && isMoving(err) }, func(waiting context.Context) error {
			return s.copyOnce(ctx, waiting, u, first, create)
		})
	}
}

func isMoving(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.FailedPrecondition
}

// copyOnce makes one attempt: it waits for an owner until waiting ends.
func (s *Service) copyOnce(ctx, waiting context.Context, u Partition, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
	return s.Router.Call(waiting, u.Name(), "", func(r *router.Services) error {
		if err := s.copyPlaced(u, r)(ctx, begin, create); err != nil {
			return err
		}
		return archive.EachModule(ctx, u.Code(), func(name string, code []byte) error {
			w, err := create(name)
			if err == nil {
				_, err = w.Write(code)
			}
			return err
		})
	}, func(owner router.Owner) error {
		return s.Router.Peers.State(owner.Address, func(from apiv1.BackupsClient) error {
			return archive.FetchPart(ctx, from, u.Name(), owner.Address, begin, create)
		})
	})
}

// copyOwned copies the store of a partition while this server owns it. It fails when the
// partition leaves, so that no move waits for a copy.
func copyOwned(u Partition, r *router.Services) archive.CopyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-r.Gone:
				cancel(status.Errorf(codes.Unavailable, "the partition %s goes to another server: try again in a moment", u.Name()))
			case <-done:
			}
		}()
		err := archive.CopyOf(u.Store(), r.Sched.CaughtUp)(ctx, begin, create)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause
		}
		return err
	}
}

// copyPlaced is copyOwned for a backup. When it returns, the cluster's table has the
// placement of every slot in the copy that has moved to the partition. Otherwise the
// table might be late, and the table shows the maker of the backup whether two copies
// have the same slot.
func (s *Service) copyPlaced(u Partition, r *router.Services) archive.CopyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		if err := copyOwned(u, r)(ctx, begin, create); err != nil {
			return err
		}
		load, err := r.Sched.Load(ctx)
		if err != nil {
			return err
		}
		return s.View.RecordSlots(ctx, u.Name(), load.Shares)
	}
}
