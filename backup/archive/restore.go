package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/store"
)

// Restored describes a backup, or the result of a restore.
type Restored struct {
	backup.Info
	Files   int64 `json:"files"`
	Size    int64 `json:"size"` // of the files, in bytes
	Modules int   `json:"modules"`
	Ingress int   `json:"ingress_records"`
	Key     bool  `json:"secret_key"` // it includes the key that seals secrets
	// Keys are the names of the key files, in a restored directory also those that came
	// from elsewhere.
	Keys     []string `json:"keys"`
	KeysOnly bool     `json:"keys_only,omitempty"` // it is an export of keys
}

// Restore makes a data directory from a backup. It refuses a directory that is not empty,
// unless an interrupted Restore left it. If the backup is damaged, or on any other error,
// it leaves nothing in the directory. keys, which may be nil, replace those in the backup.
// progress, which may be nil, is called with the bytes done and the total.
func Restore(ctx context.Context, r io.Reader, dir string, keys KeySet, progress func(done, total int64)) (_ Restored, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return Restored{}, err
	}
	if err := clearFor(dir); err != nil {
		return Restored{}, err
	}
	x := &restore{dir: dir, keys: keys, progress: progress}
	res, err := x.read(ctx, r)
	if err != nil {
		return res, errors.Join(fmt.Errorf("restore to %s: %w", dir, err), empty(dir))
	}
	if err := errors.Join(syncTree(dir), os.Remove(filepath.Join(dir, datadir.RestoringFile)), datadir.SyncDir(dir)); err != nil {
		return res, fmt.Errorf("restore to %s: %w", dir, err)
	}
	return res, nil
}

// Check reads a backup or an export of keys to its end and returns what it holds. progress is as for
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
	if _, err := os.Stat(filepath.Join(dir, datadir.RestoringFile)); err == nil {
		if err := empty(dir); err != nil {
			return err
		}
	} else if len(entries) > 0 {
		return fmt.Errorf("the directory %s is not empty: name another one with --data, or move what is in it away", dir)
	}
	return errors.Join(datadir.WriteFile(filepath.Join(dir, datadir.RestoringFile), []byte("a restore to this directory was interrupted: run it again\n"), 0o600), datadir.SyncDir(dir))
}

// empty removes everything that a restore has made, the restoring file last.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != datadir.RestoringFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, datadir.SyncDir(dir), os.Remove(filepath.Join(dir, datadir.RestoringFile)))
}

// syncTree makes every directory durable; files are synced when they are written.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return datadir.SyncDir(path)
	})
}

// restore reads a backup. Without a directory it only checks the backup.
type restore struct {
	dir        string
	bare       bool // only the files of a store, in dir itself
	keys       KeySet
	progress   func(done, total int64)
	res        Restored
	seen       bool            // the ingress was read
	partitions map[string]bool // partitions of which a file was read
	placed     *Placement
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
	if x.res.KeysOnly && int64(len(x.res.Keys)) != x.res.Files {
		return x.res, fmt.Errorf("%w: it is an export of keys, and has other files", backup.ErrDamaged)
	}
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
	case slices.Contains(settingFiles, name):
		return x.copy(name, r, 0o600)
	case isKeyFile(name):
		if _, replaced := x.keys[name]; replaced {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		x.hasKey(name)
		return x.copy(name, r, 0o600)
	case exportedFile.MatchString(name) && isKeyFile(exportedFile.FindStringSubmatch(name)[1]):
		if x.dir != "" {
			return errors.New("it is an export of keys and no backup: give it with --keys, beside a backup")
		}
		x.res.KeysOnly = true
		x.hasKey(exportedFile.FindStringSubmatch(name)[1])
		_, err := io.Copy(io.Discard, r)
		return err
	}
	return fmt.Errorf("the backup has a file %s, which this version does not know: use the version that made it, or a newer one", name)
}

func (x *restore) hasKey(name string) {
	x.res.Keys = append(x.res.Keys, name)
	x.res.Key = x.res.Key || name == datadir.SecretKeyFile
}

// addKeys writes the keys that are not from the backup, and marks a directory without the
// key of its secrets.
func (x *restore) addKeys() error {
	for _, name := range slices.Sorted(maps.Keys(x.keys)) {
		if err := x.copy(name, bytes.NewReader(x.keys[name]), 0o600); err != nil {
			return err
		}
		x.hasKey(name)
	}
	if x.res.Key {
		return nil
	}
	return datadir.WriteFile(filepath.Join(x.dir, datadir.KeylessFile), []byte("a backup without the key of its secrets was restored to this directory\n"), 0o600)
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
	return datadir.WriteFile(filepath.Join(x.dir, placementFile), text, 0o600)
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
		l, err = mq.Open(mq.Config{Dir: filepath.Join(x.dir, "ingress", "log"), SegmentBytes: datadir.IngressSegment, First: seq})
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
	if err := x.addKeys(); err != nil {
		return err
	}
	if x.placed != nil {
		for _, u := range x.placed.Units[1:] {
			if err := opens(filepath.Join(x.dir, datadir.PartitionsDir, u.Name, "store"), u.Applied); err != nil {
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
	q, err := queue.Open(queue.Config{Dir: filepath.Join(x.dir, "ingress"), Log: mq.Config{SegmentBytes: datadir.IngressSegment}})
	if err != nil {
		return fmt.Errorf("open the ingress: %w", err)
	}
	return q.Close()
}
