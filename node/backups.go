package node

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/backup/planned"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/node/offline"
)

// openBackups opens the backups that a server makes by itself, and returns the service of all
// backups. of serves those that callers receive. The maker is nil if the server makes none.
func openBackups(cfg BackupsConfig, d *datadir.Dir, p *serverParts, address string, recipients func() encryption.Recipients, of apiv1.BackupsServer, tel *telemetry, log *slog.Logger) (apiv1.BackupsServer, *planned.Maker, error) {
	all := &backupService{BackupsServer: of, address: address}
	var board planned.Board = planned.Alone{File: d.File(datadir.BackupsFile)}
	source := func() *archive.Source { return p.state }
	if m := p.member; m != nil {
		shared := cluster.BackupBoard{View: m.View}
		board, source, all.elsewhere = shared, m.backups.Source, shared.Elsewhere
	}
	if cfg.Dir == "" {
		return all, nil, nil
	}
	m, err := planned.New(planned.Config{
		Dir: cfg.Dir, Scratch: d.Join(datadir.DrillDir), Schedule: cfg.At, Keep: cfg.Keep, Server: p.id, Board: board, Log: log,
		Order: func() (archive.Order, error) { return archive.OrderOf(&apiv1.BackupRequest{}, recipients()) },
		Write: func(ctx context.Context, w io.Writer, keys archive.Keys) error {
			_, err := source().Write(ctx, w, keys)
			return err
		},
		Size: func() int64 { return sizeOf(d) },
		Drill: func(ctx context.Context, dir string) (planned.Found, error) {
			return offline.Drill(ctx, dir, slog.New(slog.DiscardHandler))
		},
	})
	if err != nil {
		return nil, nil, err
	}
	all.maker = m
	return all, m, watchBackups(tel.meter, m)
}

// sizeOf returns about the bytes of a backup of a data directory. The projection of a store is
// not in it.
func sizeOf(d *datadir.Dir) (n int64) {
	for _, part := range []string{"store", "modules", "ingress", datadir.PartitionsDir} {
		// Files come and go meanwhile, and the number is an estimate.
		_ = filepath.WalkDir(d.Join(part), func(_ string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // see above
			case e.IsDir() && e.Name() == "view":
				return fs.SkipDir
			case e.Type().IsRegular():
				if info, err := e.Info(); err == nil {
					n += info.Size()
				}
			}
			return nil
		})
	}
	return n
}

// backupService serves the backups that servers make by themselves, beside those that callers
// receive.
type backupService struct {
	apiv1.BackupsServer
	maker   *planned.Maker // nil: this server makes none
	address string         // of this server
	// elsewhere returns the other server that makes them, or nil; nil: there is no other.
	elsewhere func(context.Context) (*apiv1.Assignment, error)
}

// GetBackups implements [apiv1.BackupsServer].
func (b *backupService) GetBackups(ctx context.Context, _ *apiv1.GetBackupsRequest) (*apiv1.BackupPlan, error) {
	if err := b.redirect(ctx); err != nil {
		return nil, err
	}
	return b.plan()
}

// RunBackup implements [apiv1.BackupsServer].
func (b *backupService) RunBackup(ctx context.Context, _ *apiv1.RunBackupRequest) (*apiv1.BackupPlan, error) {
	if err := b.redirect(ctx); err != nil {
		return nil, err
	}
	if b.maker == nil {
		return nil, status.Error(codes.FailedPrecondition, "no server has a directory for backups: start a server with --backup-dir, or write a backup to a file with `wheelwork backup FILE`")
	}
	if err := b.maker.Start(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return b.plan()
}

// redirect returns a [router.Redirect] if another server makes the backups.
func (b *backupService) redirect(ctx context.Context) error {
	if b.elsewhere == nil {
		return nil
	}
	to, err := b.elsewhere(ctx)
	if err != nil {
		return status.Errorf(codes.Unavailable, "find the server that makes the backups: %v", err)
	}
	if to != nil {
		return &router.Redirect{To: to}
	}
	return nil
}

// plan returns the status as the API shows it.
func (b *backupService) plan() (*apiv1.BackupPlan, error) {
	if b.maker == nil {
		return &apiv1.BackupPlan{}, nil
	}
	s, err := b.maker.Status()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	p := &apiv1.BackupPlan{
		Server: s.Server, Address: b.address, Directory: s.Dir, Schedule: s.Schedule, Keep: int32(s.Keep), Encrypted: s.Encrypted,
		NextAt: stampOf(s.Next), RunningSince: stampOf(s.Running), Error: s.Error, FailedAt: stampOf(s.FailedAt), Failures: s.Failures, Overdue: s.Overdue,
	}
	if l := s.Last; l != nil {
		p.Last = &apiv1.MadeBackup{File: l.File, Bytes: l.Bytes, Encrypted: l.Encrypted, MadeAt: stampOf(l.Began), EndedAt: stampOf(l.Ended), Server: l.Server}
	}
	if d := s.Drill; d != nil {
		p.Drill = &apiv1.BackupDrill{
			Result: d.Result, Reason: d.Reason, File: d.File, BeganAt: stampOf(d.Began), EndedAt: stampOf(d.Ended),
			Units: int32(d.Partitions), Jobs: d.Jobs, LiveRuns: d.Live, EndedRuns: d.Found.Ended, Modules: d.Modules, Files: d.Files, Bytes: d.Bytes,
		}
	}
	for _, f := range s.Files {
		p.Files = append(p.Files, &apiv1.BackupFile{Name: f.Name, Bytes: f.Bytes, MadeAt: stampOf(f.Began)})
	}
	return p, nil
}

func stampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// watchBackups exports the state of the backups as metrics.
func watchBackups(meter metric.Meter, m *planned.Maker) error {
	last, err := meter.Float64ObservableGauge("wheelwork.backup.last_good", metric.WithUnit("s"), metric.WithDescription("Time of the last backup that was verified, in Unix seconds"))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	size, err := meter.Int64ObservableGauge("wheelwork.backup.size", metric.WithUnit("By"), metric.WithDescription("Size of the last backup that was verified"))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	failed, err := meter.Int64ObservableCounter("wheelwork.backup.failures", metric.WithDescription("Backups that failed, or whose drill failed"))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		good, bytes, failures := m.Figures()
		o.ObserveInt64(failed, failures)
		if !good.IsZero() {
			o.ObserveFloat64(last, float64(good.UnixMilli())/1000)
			o.ObserveInt64(size, bytes)
		}
		return nil
	}, last, size, failed)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
