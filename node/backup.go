package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

// The files of a backup, by their names in it:
//
//	store/...          the store at one moment: see store.Copy
//	modules/HEX        the code of a module, by its sha256
//	units/NAME/...     store and modules of a further partition, each copied at its own moment
//	placement.json     of a cluster with several partitions: see placement
//	split              if an app is in several partitions: programs that cannot read that refuse this file
//	ingress/SEQUENCE   the records of the ingress queue's log; the name is the sequence of the first one
//	token, host-token  of the administrator and of workers
//	secret.key         seals secrets; absent if the operator keeps it elsewhere
//
// keptFiles are those that a server keeps at the top of its data directory.
var keptFiles = []string{"token", "host-token", secretKeyFile}

const (
	secretKeyFile = "secret.key"
	placementFile = "placement.json"
	splitFile     = "split"
	partitionsDir = "units"
)

// placement describes all partitions of a backup that has several.
type placement struct {
	Units []placedPartition `json:"units"`
	// Rows are the rows of the cluster's table in etcd that outlive servers. The backup
	// of a stopped data directory has none: there the owner of a partition knows what the
	// partition holds.
	Rows map[string]string `json:"rows,omitempty"`
}

// splits reports whether an app is, or was, in several partitions.
func (p *placement) splits() bool {
	for key := range p.Rows {
		if strings.HasPrefix(key, cluster.RowSlot) || strings.HasPrefix(key, cluster.RowSplit) {
			return true
		}
	}
	return false
}

type placedPartition struct {
	Name    string `json:"name"`
	Applied uint64 `json:"applied"`
}

// state is the source of a backup.
type state struct {
	id, group string
	dir       *dataDir     // nil: the backup has no keys
	queue     *queue.Queue // nil: the backup has no ingress
	parts     []part       // at least one
	// rows reads the rows of the cluster's table that outlive servers; nil: there are
	// none.
	rows func(context.Context) (map[string]string, error)
}

// part is one store, with the modules of its apps.
type part struct {
	partition string         // the partition; "" if the store has no name
	dir       string         // the prefix of its files in the backup: "", or units/NAME/
	modules   *modules.Store // nil: copy writes them, or the backup has none
	copy      copyFunc
}

// copyFunc copies a store as store.Copy does, at a moment at which the store holds
// everything that was acknowledged before the call.
type copyFunc func(ctx context.Context, begin func(store.Copied) error, create func(name string) (io.Writer, error)) error

// copyOf copies a store of this process, after settle has returned.
func copyOf(st *store.Store, settle func(context.Context) error) copyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		if err := settle(ctx); err != nil {
			return err
		}
		_, err := st.Copy(ctx, begin, func(name string, _ int64) (io.Writer, error) { return create("store/" + name) })
		return err
	}
}

// write writes a backup, which holds everything that was acknowledged before the call. It
// notes the position of the ingress before it copies the stores: a command that passes
// from the ingress to a store meanwhile is in both, and is applied once, as after a crash
// between the two.
func (s *state) write(ctx context.Context, w io.Writer) (sum backup.Summary, err error) {
	var waiting *queue.Copy
	if s.queue != nil {
		waiting = s.queue.Copy()
		defer waiting.Close()
	}
	var b *backup.Writer
	var placed placement
	if s.rows != nil {
		if placed.Rows, err = s.rows(ctx); err != nil {
			return sum, err
		}
	}
	for _, p := range s.parts {
		begin := func(c store.Copied) (err error) {
			placed.Units = append(placed.Units, placedPartition{p.partition, c.Applied})
			if b != nil {
				return nil
			}
			info := backup.Info{
				MadeAt: time.Now().UTC().Truncate(time.Second), Version: version.String(),
				Server: s.id, Group: s.group, Applied: c.Applied, Bytes: c.Bytes + s.moduleBytes(), Modules: p.modules != nil,
			}
			if len(s.parts) > 1 {
				info.Units, info.Modules = len(s.parts), true
			}
			b, err = backup.NewWriter(w, info)
			return err
		}
		err = p.copy(ctx, begin, func(name string) (io.Writer, error) { return b.Create(p.dir + name) })
		if err == nil {
			err = p.writeModules(ctx, b)
		}
		if err != nil {
			break
		}
	}
	if err == nil && len(s.parts) > 1 {
		err = s.writePlacement(ctx, b, placed)
	}
	if err == nil && waiting != nil {
		err = writeIngress(b, waiting)
	}
	if err == nil && s.dir != nil {
		err = s.writeKeys(b)
	}
	if err != nil {
		return sum, fmt.Errorf("make a backup: %w", err)
	}
	return b.Close()
}

func (s *state) moduleBytes() (n int64) {
	for _, p := range s.parts {
		if p.modules == nil {
			continue
		}
		all, err := p.modules.List()
		if err != nil {
			return n // the number is for a progress bar; reading the modules reports the error
		}
		for _, m := range all {
			n += m.Bytes
		}
	}
	return n
}

// writeModules must follow the copy of the store: by then the modules that the store
// names are on disk.
func (p *part) writeModules(ctx context.Context, b *backup.Writer) error {
	if p.modules == nil {
		return nil
	}
	return eachModule(ctx, p.modules, func(name string, code []byte) error { return writePiece(b, p.dir+name, code) })
}

// eachModule calls write with the code of each module and the name that it has in a
// backup.
func eachModule(ctx context.Context, from *modules.Store, write func(name string, code []byte) error) error {
	all, err := from.List()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Digest == "" {
			continue // left by an interrupted write
		}
		code, err := from.Get(m.Digest)
		switch {
		case errors.Is(err, modules.ErrNotFound):
			continue // garbage-collected meanwhile: nothing refers to it
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := write("modules/"+strings.TrimPrefix(m.Digest, "sha256:"), code); err != nil {
			return err
		}
	}
	return nil
}

// writePlacement must follow the copies of the partitions, so that apps placed meanwhile
// are included. An app or slot that was placed before must not have moved, or the copies
// of two partitions would not belong together.
func (s *state) writePlacement(ctx context.Context, b *backup.Writer, p placement) error {
	before := p.Rows
	if s.rows != nil {
		var err error
		if p.Rows, err = s.rows(ctx); err != nil {
			return err
		}
	}
	for key, was := range before {
		if is, there := p.Rows[key]; !there || is != was {
			return status.Errorf(codes.Unavailable, "what is in which partition was changed meanwhile (%s): make the backup again", key)
		}
	}
	for key := range p.Rows {
		// A new app is in one partition only. A slot that moved for the first time may be
		// in two of the copies, or in none.
		if _, there := before[key]; !there && s.rows != nil && strings.HasPrefix(key, cluster.RowSlot) {
			return status.Errorf(codes.Unavailable, "a part of an app came to another partition meanwhile (%s): make the backup again", key)
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if p.splits() {
		if err := writePiece(b, splitFile, []byte("form 2\n")); err != nil {
			return err
		}
	}
	return writePiece(b, placementFile, text)
}

func writePiece(b *backup.Writer, name string, content []byte) error {
	w, err := b.Create(name)
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}

func writeIngress(b *backup.Writer, c *queue.Copy) error {
	w, err := b.Create(fmt.Sprintf("ingress/%020d", c.First()))
	if err != nil {
		return err
	}
	var buf []byte
	return c.Each(func(e mq.Entry) error {
		buf = backup.AppendRecord(buf[:0], backup.Record{Queue: e.Queue, Type: e.Type, Body: e.Body})
		_, err := w.Write(buf)
		return err
	})
}

func (s *state) writeKeys(b *backup.Writer) error {
	for _, name := range keptFiles {
		content, err := os.ReadFile(s.dir.join(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = writePiece(b, name, content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// backupsAPI serves backups of a standalone server.
type backupsAPI struct {
	apiv1.UnimplementedBackupsServer
	s   *state
	log *slog.Logger
}

const backupChunk = 256 << 10

// Backup streams a backup of the whole server.
func (a *backupsAPI) Backup(_ *apiv1.BackupRequest, stream apiv1.Backups_BackupServer) error {
	return a.send(stream.Context(), a.s, stream.Send)
}

// FetchState is refused: a standalone server has no standbys.
func (a *backupsAPI) FetchState(req *apiv1.FetchStateRequest, _ apiv1.Backups_FetchStateServer) error {
	return status.Errorf(codes.FailedPrecondition, "this server is in no cluster, and has no partition %q", req.Group)
}

func (a *backupsAPI) send(ctx context.Context, s *state, send func(*apiv1.BackupChunk) error) error {
	start := time.Now()
	w := bufio.NewWriterSize(chunks(send), backupChunk)
	sum, err := s.write(ctx, w)
	if err = errors.Join(err, w.Flush()); err != nil {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		a.log.Error("a backup was not made", "error", err)
		if told := (interface{ GRPCStatus() *status.Status })(nil); errors.As(err, &told) {
			return status.Error(told.GRPCStatus().Code(), "make a backup: "+told.GRPCStatus().Message())
		}
		return status.Error(codes.Unavailable, err.Error())
	}
	a.log.Info("a backup was made", "files", sum.Files, "bytes", sum.Bytes, "in", time.Since(start).Round(time.Millisecond))
	return nil
}

type chunks func(*apiv1.BackupChunk) error

func (send chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), backupChunk)
		if err := send(&apiv1.BackupChunk{Data: bytes.Clone(rest[:n])}); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// Backup writes a backup of the data directory of a stopped server.
func Backup(ctx context.Context, data string, log *slog.Logger, w io.Writer) (sum backup.Summary, err error) {
	if _, err := os.Stat(filepath.Join(data, "store")); err != nil {
		return sum, fmt.Errorf("%s is not the data directory of a server: there is no store in it", data)
	}
	o, err := openStopped(data, log)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	s := &state{id: o.id, dir: o.data, queue: o.queue, parts: []part{{
		partition: o.id, modules: o.modules, copy: copyOf(o.store, func(context.Context) error { return o.settle() }),
	}}}
	for _, u := range o.partitions { // their journals are not in the directory
		s.parts = append(s.parts, part{
			partition: u.name, dir: partitionsDir + "/" + u.name + "/", modules: u.modules,
			copy: copyOf(u.store, func(context.Context) error { return nil }),
		})
	}
	return s.write(ctx, w)
}

// stopped is the open data directory of a server that does not run.
type stopped struct {
	closers
	data       *dataDir
	id         string
	journal    *mq.Log
	store      *store.Store
	modules    *modules.Store
	queue      *queue.Queue
	partitions []stoppedPartition // further partitions, of a cluster
	log        *slog.Logger
}

type stoppedPartition struct {
	name    string
	store   *store.Store
	modules *modules.Store
}

func (o *stopped) openPartitions() error {
	cfg := store.Config{Logger: o.log}
	if ofCluster(o.data.path, spanOf(o.journal)) {
		cfg.Journal = journalElsewhere
	}
	names, err := partitionsIn(o.data.path)
	for _, name := range names {
		u := stoppedPartition{name: name}
		cfg.Dir = o.data.join(partitionsDir, name, "store")
		if u.store, err = store.Open(cfg); err != nil {
			return fmt.Errorf("open the store of the partition %s: %w", name, err)
		}
		o.add(u.store)
		if u.modules, err = modules.Open(o.data.join(partitionsDir, name, "modules")); err != nil {
			return err
		}
		o.partitions = append(o.partitions, u)
	}
	return err
}

func openStopped(data string, log *slog.Logger) (_ *stopped, err error) {
	o := &stopped{log: logger(log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if o.data, err = openData(data, serverForm); err != nil {
		return nil, err
	}
	o.add(closeFunc(o.data.close))
	if o.id, err = identity(o.data.join("server-id"), "srv-"); err != nil {
		return nil, err
	}
	if o.journal, err = mq.Open(mq.Config{Dir: o.data.join("journal"), Logger: o.log}); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	o.add(o.journal)
	span := func() (store.Journal, error) { return spanOf(o.journal), nil }
	if ofCluster(o.data.path, spanOf(o.journal)) {
		span = journalElsewhere
	}
	if o.store, err = openStoreBeside(o.data, span, o.log); err != nil {
		return nil, err
	}
	o.add(o.store)
	if o.modules, err = modules.Open(o.data.join("modules")); err != nil {
		return nil, err
	}
	if o.queue, err = queue.Open(queue.Config{Dir: o.data.join("ingress"), Log: mq.Config{SegmentBytes: ingressSegment}, Logger: o.log}); err != nil {
		return nil, fmt.Errorf("open the ingress: %w", err)
	}
	o.add(o.queue)
	return o, o.openPartitions()
}

// settle applies the journal in the directory to the store. A directory whose journal is
// in etcd has none. A journal that does not belong to the store is ignored, with a
// warning.
func (o *stopped) settle() error {
	if o.journal.Next() == 1 {
		return nil
	}
	if err := checkSpan(o.data.path, spanOf(o.journal), o.store.Applied()); err != nil {
		o.log.Warn("the backup holds what the store has, and nothing of the journal", "store_applied", o.store.Applied(), "journal_first", o.journal.First(), "journal_next", o.journal.Next())
		return nil
	}
	standby, err := sched.Follow(sched.Config{
		ID: o.id, Journal: local.New(o.journal), Store: o.store, Modules: o.modules, Logger: o.log,
		Inspect: func(context.Context, *modules.Upload, string) (sched.ModuleInfo, error) {
			return sched.ModuleInfo{}, errors.New("the server does not run")
		},
	})
	if err == nil {
		_, err = standby.CatchUp()
	}
	return err
}

// restoring is the file that marks a directory as being restored, and incomplete. No
// server starts on such a directory.
const restoring = "restoring"

var (
	storeFile     = regexp.MustCompile(`^store/(snapshots/[0-9]{10}-[0-9]{2}\.snap|(history|keys|logs)/[0-9]{20}\.seg)$`)
	moduleFile    = regexp.MustCompile(`^modules/([0-9a-f]{64})$`)
	partitionFile = regexp.MustCompile(`^(units/[^/]+/)(.+)$`)
	ingressFile   = regexp.MustCompile(`^ingress/([0-9]{20})$`)
)

// Restored describes a backup, or the result of a restore.
type Restored struct {
	backup.Info
	Files   int64 `json:"files"`
	Size    int64 `json:"size"` // of the files, in bytes
	Modules int   `json:"modules"`
	Ingress int   `json:"ingress_records"`
	Key     bool  `json:"secret_key"` // it includes the key that seals secrets
}

// Restore makes a data directory from a backup. It refuses a directory that is not empty,
// unless an interrupted Restore left it. If the backup is damaged, or on any other error,
// it leaves nothing in the directory. progress, which may be nil, is called with the
// bytes done and the total.
func Restore(ctx context.Context, r io.Reader, dir string, progress func(done, total int64)) (_ Restored, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return Restored{}, err
	}
	if err := clearFor(dir); err != nil {
		return Restored{}, err
	}
	x := &restore{dir: dir, progress: progress}
	res, err := x.read(ctx, r)
	if err != nil {
		return res, errors.Join(fmt.Errorf("restore to %s: %w", dir, err), empty(dir))
	}
	if err := errors.Join(syncTree(dir), os.Remove(filepath.Join(dir, restoring)), syncPath(dir)); err != nil {
		return res, fmt.Errorf("restore to %s: %w", dir, err)
	}
	return res, nil
}

// Check reads a backup to its end and returns what it holds. progress is as for
// [Restore].
func Check(ctx context.Context, r io.Reader, progress func(done, total int64)) (Restored, error) {
	return (&restore{progress: progress}).read(ctx, r)
}

// clearFor makes an empty directory and marks it with the restoring file.
func clearFor(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, restoring)); err == nil {
		if err := empty(dir); err != nil {
			return err
		}
	} else if len(entries) > 0 {
		return fmt.Errorf("the directory %s is not empty: name another one with --data, or move what is in it away", dir)
	}
	return errors.Join(writeFile(filepath.Join(dir, restoring), []byte("a restore to this directory was interrupted: run it again\n"), 0o600), syncPath(dir))
}

// empty removes everything that a restore has made, the restoring file last.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != restoring {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, syncPath(dir), os.Remove(filepath.Join(dir, restoring)))
}

func syncPath(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// syncTree makes every directory durable; files are synced when they are written.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncPath(path)
	})
}

// restore reads a backup. Without a directory it only checks the backup.
type restore struct {
	dir        string
	bare       bool // only the files of a store, in dir itself
	progress   func(done, total int64)
	res        Restored
	seen       bool            // the ingress was read
	partitions map[string]bool // partitions of which a file was read
	placed     *placement
}

func (x *restore) read(ctx context.Context, r io.Reader) (Restored, error) {
	b, err := backup.NewReader(r)
	if err != nil {
		return x.res, err
	}
	x.res.Info = b.Info()
	for {
		name, err := b.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = x.file(name, &watched{ctx, b, x})
		}
		if err != nil {
			return x.res, err
		}
	}
	x.res.Files, x.res.Size = b.Summary().Files, b.Summary().Bytes
	return x.res, x.finish()
}

// watched reads one file of a backup, until ctx ends, and reports progress.
type watched struct {
	ctx context.Context
	b   *backup.Reader
	x   *restore
}

func (w *watched) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.b.Read(p)
	if w.x.res.Size += int64(n); w.x.progress != nil {
		w.x.progress(w.x.res.Size, max(w.x.res.Bytes, w.x.res.Size))
	}
	return n, err
}

func (x *restore) file(name string, r io.Reader) error {
	in, plain := "", name // in is the prefix of a partition, plain the name without it
	if found := partitionFile.FindStringSubmatch(name); found != nil && !x.bare {
		in, plain = found[1], found[2]
		if x.partitions == nil {
			x.partitions = map[string]bool{}
		}
		x.partitions[path.Base(in)] = true
	}
	switch {
	case storeFile.MatchString(plain):
		return x.copy(name, r, 0o600)
	case x.bare:
	case moduleFile.MatchString(plain):
		return x.module(in, moduleFile.FindStringSubmatch(plain)[1], r)
	case in != "":
	case name == placementFile:
		return x.placement(r)
	case name == splitFile: // the rows of the placement hold the details
		_, err := io.Copy(io.Discard, r)
		return err
	case ingressFile.MatchString(name):
		return x.ingress(ingressFile.FindStringSubmatch(name)[1], r)
	case name == "token", name == "host-token", name == secretKeyFile:
		x.res.Key = x.res.Key || name == secretKeyFile
		return x.copy(name, r, 0o600)
	}
	return fmt.Errorf("the backup has a file %s, of which this version knows nothing: use the version that made it, or a newer one", name)
}

func (x *restore) copy(name string, r io.Reader, mode fs.FileMode) error {
	if x.dir == "" {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	if x.bare {
		name = strings.TrimPrefix(name, "store/")
	}
	to := filepath.Join(x.dir, filepath.FromSlash(path.Clean(name)))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}

// placement saves the description of all partitions. [Grow] reads it to make a cluster.
func (x *restore) placement(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, maxPlacement+1))
	if err != nil {
		return err
	}
	if len(text) > maxPlacement || json.Unmarshal(text, &x.placed) != nil || x.placed == nil || len(x.placed.Units) == 0 {
		return fmt.Errorf("%w: %s does not say which partitions there are", backup.ErrDamaged, placementFile)
	}
	if x.dir == "" {
		return nil
	}
	return writeFile(filepath.Join(x.dir, placementFile), text, 0o600)
}

// maxPlacement is in bytes, more than the apps of the largest cluster need.
const maxPlacement = 256 << 20

// checkPartitions compares the partitions that the backup names with those of which it has
// files.
func (x *restore) checkPartitions() error {
	want := max(x.res.Units, 1)
	if x.placed == nil {
		if want > 1 || len(x.partitions) > 0 {
			return fmt.Errorf("%w: it has several partitions, and does not say which", backup.ErrDamaged)
		}
		return nil
	}
	if len(x.placed.Units) != want || x.placed.Units[0].Applied != x.res.Applied {
		return fmt.Errorf("%w: it begins as one of %d partitions, and names %d", backup.ErrDamaged, want, len(x.placed.Units))
	}
	for _, u := range x.placed.Units[1:] {
		if !x.partitions[u.Name] {
			return fmt.Errorf("%w: there is nothing of the partition %.80q in it, or it is named twice", backup.ErrDamaged, u.Name)
		}
		delete(x.partitions, u.Name)
	}
	for name := range x.partitions {
		return fmt.Errorf("%w: it has the partition %.80q and does not name it", backup.ErrDamaged, name)
	}
	return nil
}

// opens proves that a restored store opens, and that its last record is want.
func opens(dir string, want uint64) error {
	st, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		return err
	}
	applied := st.Applied()
	if err := st.Close(); err != nil {
		return err
	}
	if applied != want {
		return fmt.Errorf("%w: its store includes record %d, and it says %d", backup.ErrDamaged, applied, want)
	}
	return nil
}

func (x *restore) module(partition, hex string, r io.Reader) error {
	code, err := io.ReadAll(io.LimitReader(r, modules.MaxBytes+1))
	if err != nil {
		return err
	}
	if modules.Digest(code) != "sha256:"+hex {
		return fmt.Errorf("%w: the code of the module %.12s is not what its name says", backup.ErrDamaged, hex)
	}
	x.res.Modules++
	if x.dir == "" {
		return nil
	}
	to, err := modules.Open(filepath.Join(x.dir, filepath.FromSlash(partition), "modules"))
	if err == nil {
		_, err = to.Put(code)
	}
	return err
}

// ingress writes the log of the ingress queue, record by record.
func (x *restore) ingress(first string, r io.Reader) (err error) {
	seq, err := strconv.ParseUint(first, 10, 62)
	if err != nil || seq == 0 || x.seen {
		return fmt.Errorf("%w: the ingress cannot begin at %s", backup.ErrDamaged, first)
	}
	x.seen = true
	var l *mq.Log
	if x.dir != "" {
		l, err = mq.Open(mq.Config{Dir: filepath.Join(x.dir, "ingress", "log"), SegmentBytes: ingressSegment, First: seq})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
	}
	var batch []mq.Record
	size := 0
	flush := func() error {
		if l == nil || len(batch) == 0 {
			return nil
		}
		_, err := l.Write(batch)
		batch, size = batch[:0], 0
		return err
	}
	err = backup.ReadRecords(r, func(rec backup.Record) error {
		x.res.Ingress++
		batch = append(batch, mq.Record{Queue: rec.Queue, Type: rec.Type, Body: bytes.Clone(rec.Body)})
		if size += len(rec.Body); size > 1<<20 || len(batch) == 1024 || l == nil {
			if l == nil {
				batch, size = batch[:0], 0
			}
			return flush()
		}
		return nil
	})
	return errors.Join(err, flush())
}

// finish checks the partitions, proves that the restored stores and the ingress open, and
// makes an empty journal that begins behind the store's last record.
func (x *restore) finish() error {
	if err := x.checkPartitions(); err != nil || x.dir == "" {
		return err
	}
	at := x.dir
	if !x.bare {
		at = filepath.Join(x.dir, "store")
	}
	if err := opens(at, x.res.Applied); err != nil || x.bare {
		return err
	}
	if x.placed != nil {
		for _, u := range x.placed.Units[1:] {
			if err := opens(filepath.Join(x.dir, partitionsDir, u.Name, "store"), u.Applied); err != nil {
				return fmt.Errorf("the partition %s: %w", u.Name, err)
			}
		}
	}
	l, err := mq.Open(mq.Config{Dir: filepath.Join(x.dir, "journal"), First: x.res.Applied + 1})
	if err != nil {
		return fmt.Errorf("begin the journal: %w", err)
	}
	if err := l.Close(); err != nil {
		return err
	}
	if !x.seen {
		return nil
	}
	q, err := queue.Open(queue.Config{Dir: filepath.Join(x.dir, "ingress"), Log: mq.Config{SegmentBytes: ingressSegment}})
	if err != nil {
		return fmt.Errorf("open the ingress: %w", err)
	}
	return q.Close()
}

// refill replaces the store of a standby with a copy of the owner's store, when the
// journal does not reach back to the store on this disk. dir is the directory of the
// store, which is closed. A crash at any point leaves the old store, none, or the new
// one.
func refill(ctx context.Context, from apiv1.BackupsClient, group, dir string) (Restored, error) {
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
	return res, errors.Join(os.RemoveAll(dir), os.Rename(made, dir), syncPath(filepath.Dir(dir)))
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
