package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/store"
)

// Service serves backups of a standalone server.
type Service struct {
	apiv1.UnimplementedBackupsServer
	Source     *Source
	Recipients func() encryption.Recipients // for which it encrypts if the caller names none
	Log        *slog.Logger
}

const backupChunk = 256 << 10

// Backup streams a backup of the whole server.
func (a *Service) Backup(req *apiv1.BackupRequest, stream apiv1.Backups_BackupServer) error {
	order, err := Accept(req, a.Recipients())
	if err != nil {
		return err
	}
	return a.Source.Send(stream.Context(), a.Log, order, stream.Send)
}

// FetchState is refused: a standalone server has no standbys.
func (a *Service) FetchState(req *apiv1.FetchStateRequest, _ apiv1.Backups_FetchStateServer) error {
	return status.Errorf(codes.FailedPrecondition, "this server is in no cluster, and has no partition %q", req.Group)
}

// Send streams a backup in chunks. If it is encrypted, the caller cannot read it back:
// this server does, and its summary is in the last chunk.
func (s *Source) Send(ctx context.Context, log *slog.Logger, o Order, send func(*apiv1.BackupChunk) error) error {
	start := time.Now()
	w := bufio.NewWriterSize(Chunks(send), backupChunk)
	files, size, err := s.sendTo(ctx, w, o, send)
	if err != nil {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		log.Error("a backup was not made", "error", err)
		if told := (interface{ GRPCStatus() *status.Status })(nil); errors.As(err, &told) {
			return status.Error(told.GRPCStatus().Code(), "make a backup: "+told.GRPCStatus().Message())
		}
		return status.Error(codes.Unavailable, err.Error())
	}
	log.Info("a backup was made", "files", files, "bytes", size, "encrypted", o.Recipients.Any(), "keys", o.Keys != KeysLeftOut, "in", time.Since(start).Round(time.Millisecond))
	return nil
}

func (s *Source) sendTo(ctx context.Context, w *bufio.Writer, o Order, send func(*apiv1.BackupChunk) error) (files, size int64, err error) {
	if !o.Recipients.Any() {
		sum, err := s.Write(ctx, w, o.Keys)
		return sum.Files, sum.Bytes, errors.Join(err, w.Flush())
	}
	made, err := s.encrypt(ctx, w, o)
	if err = errors.Join(err, w.Flush()); err != nil {
		return 0, 0, err
	}
	return made.Files, made.Size, send(&apiv1.BackupChunk{Summary: made.summary()})
}

func (s *Source) encrypt(ctx context.Context, w io.Writer, o Order) (Restored, error) {
	sealed, err := o.Recipients.Encrypt(w)
	if err != nil {
		return Restored{}, err
	}
	made, err := Verified(ctx, sealed, nil, func(ctx context.Context, w io.Writer) error {
		_, err := s.Write(ctx, w, o.Keys)
		return err
	})
	if err != nil {
		return made, err // without its end no reader accepts it
	}
	return made, sealed.Close()
}

func (r *Restored) summary() *apiv1.BackupSummary {
	return &apiv1.BackupSummary{
		MadeAt: timestamppb.New(r.MadeAt), Version: r.Version, Server: r.Server, Group: r.Group, Units: int32(r.Units), Applied: r.Applied,
		Files: r.Files, Bytes: r.Size, Modules: int32(r.Modules), IngressRecords: int64(r.Ingress), Keys: r.Keys,
	}
}

// Summarized is what the server says about an encrypted backup.
func Summarized(s *apiv1.BackupSummary) Restored {
	r := Restored{
		Info:  backup.Info{MadeAt: s.GetMadeAt().AsTime(), Version: s.GetVersion(), Server: s.GetServer(), Group: s.GetGroup(), Units: int(s.GetUnits()), Applied: s.GetApplied()},
		Files: s.GetFiles(), Size: s.GetBytes(), Modules: int(s.GetModules()), Ingress: int(s.GetIngressRecords()), Keys: s.GetKeys(),
	}
	r.Key = slices.Contains(r.Keys, datadir.SecretKeyFile)
	return r
}

// Chunks writes bytes as chunks of a stream.
type Chunks func(*apiv1.BackupChunk) error

// Write implements [io.Writer].
func (send Chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), backupChunk)
		if err := send(&apiv1.BackupChunk{Data: bytes.Clone(rest[:n])}); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// Refill replaces the store of a standby with a copy of the owner's store, when the
// journal does not reach back to the store on this disk. dir is the directory of the
// store, which is closed. A crash at any point leaves the old store, none, or the new
// one.
func Refill(ctx context.Context, from apiv1.BackupsClient, group, dir string) (Restored, error) {
	made := dir + ".new"
	// An attempt that a crash ended may have moved the quarantine to made.
	if err := store.KeepQuarantine(made, dir); err != nil {
		return Restored{}, err
	}
	if err := os.RemoveAll(made); err != nil {
		return Restored{}, err
	}
	if err := os.MkdirAll(made, 0o700); err != nil {
		return Restored{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := from.FetchState(ctx, &apiv1.FetchStateRequest{Group: group})
	if err != nil {
		return Restored{}, err
	}
	res, err := (&restore{dir: made, bare: true}).read(ctx, &received{next: stream.Recv})
	if err != nil {
		return res, err
	}
	if err := errors.Join(syncTree(made), store.KeepQuarantine(dir, made)); err != nil {
		return res, err
	}
	return res, errors.Join(os.RemoveAll(dir), os.Rename(made, dir), datadir.SyncDir(filepath.Dir(dir)))
}

// received reads a stream of chunks as bytes.
type received struct {
	next func() (*apiv1.BackupChunk, error)
	rest []byte
}

func (r *received) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		c, err := r.next()
		if err != nil {
			return 0, err
		}
		r.rest = c.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// FetchPart copies a partition with its modules from the server that owns it.
func FetchPart(ctx context.Context, from apiv1.BackupsClient, partition, address string, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
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
			err = fmt.Errorf("the server at %s has in the partition %s a file %s, which this version does not know", address, partition, name)
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
