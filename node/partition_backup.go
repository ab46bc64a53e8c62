package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/store"
)

// partitionBackups serves backups of a cluster: of all partitions, whichever servers own them,
// or of one that this server owns.
//
// Each partition is copied at a moment of its own. That is as consistent as the cluster
// itself: an operation on one partition never waits for another partition, and what goes
// from one to another (an accepted command) is stored by the sender until the receiver
// has it.
type partitionBackups struct {
	apiv1.UnimplementedBackupsServer
	m   *memberParts
	log *slog.Logger
}

// Backup streams all partitions of the cluster, with the ingress and the keys of this
// server.
func (a *partitionBackups) Backup(_ *apiv1.BackupRequest, stream apiv1.Backups_BackupServer) error {
	s := &state{id: a.m.id, group: a.m.view.Group, dir: a.m.data, queue: a.m.queue, rows: a.m.view.Lasting}
	for i, u := range a.m.partitions {
		p := part{partition: u.name, copy: a.copyOf(u)}
		if i > 0 {
			p.dir = partitionsDir + "/" + u.name + "/"
		}
		s.parts = append(s.parts, p)
	}
	return (&backupsAPI{log: a.log}).send(stream.Context(), s, stream.Send)
}

// FetchState streams one partition: for the store of a standby, or as a part of a backup.
func (a *partitionBackups) FetchState(req *apiv1.FetchStateRequest, stream apiv1.Backups_FetchStateServer) error {
	i := slices.IndexFunc(a.m.partitions, func(u *partition) bool { return u.name == req.Group })
	if i < 0 {
		return status.Errorf(codes.NotFound, "the cluster has no partition %q", req.Group)
	}
	u := a.m.partitions[i]
	r, err := a.m.router.Enter(stream.Context(), req.Group, "")
	if err != nil {
		return err
	}
	defer r.Leave()
	p := part{partition: u.name, copy: copyOwned(u, r)}
	if req.Modules { // for a backup
		p.modules, p.copy = u.conf.Modules, copyTold(u, r)
	}
	return (&backupsAPI{log: a.log}).send(stream.Context(), &state{id: a.m.id, group: req.Group, parts: []part{p}}, stream.Send)
}

// copyOf copies a partition with its modules, here or from its owner. While the partition
// is moving it waits a little, as calls do. A copy that has begun cannot begin again: if
// the partition moves, the backup fails.
func (a *partitionBackups) copyOf(u *partition) copyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		begun := false
		first := func(c store.Copied) error {
			begun = true
			return begin(c)
		}
		waiting, cancel := context.WithTimeout(ctx, router.Patience)
		defer cancel()
		for {
			changed := a.m.view.Change()
			err := a.copyOnce(ctx, waiting, u, first, create)
			if err == nil || begun || !onItsWay(err) {
				return err
			}
			select {
			case <-changed:
			case <-time.After(router.Patience / 20): // the owner may learn of it earlier
			case <-waiting.Done():
				return err
			}
		}
	}
}

func onItsWay(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.FailedPrecondition
}

func (a *partitionBackups) copyOnce(ctx, waiting context.Context, u *partition, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
	r, err := a.m.router.Enter(waiting, u.name, "")
	if err == nil {
		defer r.Leave()
		if err := copyTold(u, r)(ctx, begin, create); err != nil {
			return err
		}
		return eachModule(ctx, u.conf.Modules, func(name string, code []byte) error {
			w, err := create(name)
			if err == nil {
				_, err = w.Write(code)
			}
			return err
		})
	}
	address := router.AddressIn(err)
	if address == "" {
		return err
	}
	return u.peers.State(address, func(from apiv1.BackupsClient) error {
		return fetchPart(ctx, from, u.name, address, begin, create)
	})
}

// copyOwned copies the store of a partition while this server owns it. It fails when the
// partition leaves, so that no move waits for a copy.
func copyOwned(u *partition, r *router.Services) copyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-r.Gone:
				cancel(status.Errorf(codes.Unavailable, "the partition %s goes to another server: try again in a moment", u.name))
			case <-done:
			}
		}()
		err := copyOf(u.conf.Store, r.Sched.CaughtUp)(ctx, begin, create)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause
		}
		return err
	}
}

// copyTold is copyOwned for a backup. When it returns, the cluster's table has the
// placement of every slot in the copy that has moved to the partition. Otherwise the
// table might be late, and the table shows the maker of the backup whether two copies
// have the same slot.
func copyTold(u *partition, r *router.Services) copyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		if err := copyOwned(u, r)(ctx, begin, create); err != nil {
			return err
		}
		load, err := r.Sched.Load(ctx)
		if err != nil {
			return err
		}
		return u.view.SettleAll(ctx, u.name, load.Shares)
	}
}

// fetchPart copies a partition with its modules from the server that owns it.
func fetchPart(ctx context.Context, from apiv1.BackupsClient, partition, address string, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := from.FetchState(ctx, &apiv1.FetchStateRequest{Group: partition, Modules: true})
	if err != nil {
		return err
	}
	b, err := backup.NewReader(&received{next: stream.Recv})
	if err != nil {
		return err
	}
	if !b.Info().Modules {
		return status.Errorf(codes.Unimplemented, "the server at %s, which owns the partition %s, is of a version that gives the state away without the code of modules: bring it up to date, or have the partition go to this server (`wheelwork cluster move`)", address, partition)
	}
	if err := begin(store.Copied{Applied: b.Info().Applied, Bytes: b.Info().Bytes}); err != nil {
		return err
	}
	for {
		name, err := b.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil && !storeFile.MatchString(name) && !moduleFile.MatchString(name) {
			err = fmt.Errorf("the server at %s has in the partition %s a file %s, of which this version knows nothing", address, partition, name)
		}
		if err != nil {
			return err
		}
		w, err := create(name)
		if err == nil {
			_, err = io.Copy(w, b)
		}
		if err != nil {
			return err
		}
	}
}

// partitionsIn returns the names of the further partitions whose stores are in a data
// directory, in the order of their numbers.
func partitionsIn(dir string) (names []string, err error) {
	found, err := filepath.Glob(filepath.Join(dir, partitionsDir, "*", "store"))
	for _, f := range found {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	slices.SortFunc(names, func(a, b string) int { // .2 before .10
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return names, err
}

var errHasPartitions = errors.New("the data directory holds several partitions of a cluster, and a server alone has one: start it with --cluster or --etcd-endpoints; if it was restored from a backup, make it the first one of a cluster with `wheelwork cluster init` before")
