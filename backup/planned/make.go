package planned

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

// reserve is the free space that a backup and a drill leave, in bytes.
const reserve = 256 << 20

// make writes a backup, verifies it with a drill, gives it its name and removes the oldest ones.
// The state that it returns has the drill, also after an error, and the backup.
func (m *Maker) make(ctx context.Context, began time.Time) (State, error) {
	order, err := m.cfg.Order()
	if err != nil {
		return State{}, err
	}
	name := nameAt(began)
	final := filepath.Join(m.cfg.Dir, name)
	if _, err := os.Lstat(final); !errors.Is(err, fs.ErrNotExist) {
		return State{}, errors.Join(fmt.Errorf("%s exists: try again in a second", final), err)
	}
	size := m.cfg.Size()
	if why := m.lacks(m.cfg.Dir, size); why != "" {
		return State{}, errors.New("the backup has no room: " + why)
	}
	partial := final + ".partial-" + m.cfg.Server
	x := &attempt{m: m, order: order, partial: partial, drill: Drill{Result: Passed, File: name}}
	err = x.run(ctx, size)
	x.drill.Ended = time.Now()
	out := State{}
	if !x.drill.Began.IsZero() && ctx.Err() == nil {
		out.Drill = &x.drill
	}
	if err != nil {
		return out, errors.Join(err, x.discard(final))
	}
	// Another server may make the backups by now, and prune the same directory.
	if leads, err := m.cfg.Board.Leads(ctx); err != nil || !leads {
		return out, errors.Join(errElsewhere, err, os.Remove(partial))
	}
	if err := os.Rename(partial, final); err != nil {
		return out, errors.Join(err, os.Remove(partial))
	}
	if err := datadir.SyncDir(m.cfg.Dir); err != nil {
		return out, err
	}
	out.Last = &Made{name, x.size, order.Recipients.Any(), began, time.Now(), m.cfg.Server}
	removed, err := prune(m.cfg.Dir, m.cfg.Keep)
	if err = errors.Join(err, removeRefused(m.cfg.Dir)); err != nil {
		m.cfg.Log.Warn("old backups could not be removed", "dir", m.cfg.Dir, "error", err)
	}
	m.cfg.Log.Info("a backup was made", "file", final, "bytes", x.size, "encrypted", order.Recipients.Any(), "drill", x.drill.Result, "reason", x.drill.Reason,
		"jobs", x.drill.Jobs, "removed", removed, "in", time.Since(began).Round(time.Millisecond))
	return out, nil
}

// lacks says that a disk has too little room for so many bytes; "": it has enough.
func (m *Maker) lacks(dir string, size int64) string {
	free, known := m.cfg.Free(dir)
	if want := size + size/8 + reserve; known && free < want {
		return fmt.Sprintf("%s has %d MiB free, and about %d MiB are needed", dir, free>>20, want>>20)
	}
	return ""
}

// attempt writes one backup and tries it.
type attempt struct {
	m       *Maker
	order   archive.Order
	partial string
	size    int64
	whole   bool // the file was written
	drill   Drill
}

// drillDir returns where the drill restores the backup. The contents of an encrypted backup do
// not leave the disk of the server.
func (x *attempt) drillDir() string {
	if x.order.Recipients.Any() {
		return x.m.cfg.Scratch
	}
	return x.m.plainDrill()
}

func (m *Maker) plainDrill() string {
	return filepath.Join(m.cfg.Dir, ".wheelwork-drill-"+m.cfg.Server)
}

func (m *Maker) removeDrills() error {
	return errors.Join(os.RemoveAll(m.plainDrill()), os.RemoveAll(m.cfg.Scratch))
}

func (x *attempt) run(ctx context.Context, size int64) (err error) {
	if err := x.m.removeDrills(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.m.removeDrills()) }()
	to := x.drillDir()
	// A disk with the backup and the drill needs room for both.
	if why := x.m.lacks(filepath.Dir(to), 2*size); why != "" {
		x.drill.Result, x.drill.Reason = Read, "the drill has no room: "+why
		to = ""
	}
	var got archive.Restored
	if x.order.Recipients.Any() {
		// Only the owner of an identity can read the file: the server restores the bytes that
		// it encrypts, and compares the file with what it wrote.
		got, err = x.write(ctx, func(ctx context.Context, r io.Reader) (archive.Restored, error) {
			return x.restore(ctx, r, to)
		})
	} else {
		if _, err = x.write(ctx, func(ctx context.Context, r io.Reader) (archive.Restored, error) {
			return archive.Check(ctx, r, nil)
		}); err == nil {
			got, err = x.restoreFile(ctx, to)
		}
	}
	if err != nil {
		return err
	}
	x.drill.Files, x.drill.Bytes, x.drill.Modules, x.drill.Partitions = got.Files, got.Size, int64(got.Modules), max(got.Units, 1)
	if to == "" {
		return nil
	}
	found, err := x.m.cfg.Drill(ctx, to)
	if err != nil {
		return x.failed(fmt.Errorf("a server cannot open the restored backup: %w", err))
	}
	if found.Partitions != x.drill.Partitions || found.Modules != x.drill.Modules {
		return x.failed(fmt.Errorf("the restored directory has %d partitions and %d modules, and the backup %d and %d", found.Partitions, found.Modules, x.drill.Partitions, x.drill.Modules))
	}
	x.drill.Found = found
	return nil
}

// failed notes a failed drill.
func (x *attempt) failed(err error) error {
	x.drill.Result, x.drill.Reason = Failed, err.Error()
	if x.drill.Began.IsZero() {
		x.drill.Began = time.Now()
	}
	return fmt.Errorf("the drill failed: %w", err)
}

// write writes the backup to the partial file. read gets the bytes before they are encrypted.
func (x *attempt) write(ctx context.Context, read func(context.Context, io.Reader) (archive.Restored, error)) (got archive.Restored, err error) {
	f, err := os.OpenFile(x.partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return got, err
	}
	defer func() {
		if cerr := f.Close(); cerr != nil && err == nil {
			err = cerr
		}
	}()
	sum := sha256.New()
	buffered := bufio.NewWriterSize(f, 1<<20)
	sealed, err := x.order.Recipients.Encrypt(io.MultiWriter(buffered, sum))
	if err != nil {
		return got, err
	}
	got, err = archive.ReadBack(ctx, sealed, func(ctx context.Context, w io.Writer) error {
		return x.m.cfg.Write(ctx, w, x.order.Keys)
	}, func(ctx context.Context, r io.Reader) (archive.Restored, error) {
		got, err := read(ctx, r)
		if err != nil {
			err = &unreadableError{err}
		}
		return got, err
	})
	if unreadable := (*unreadableError)(nil); errors.As(err, &unreadable) {
		return got, x.failed(unreadable.why)
	}
	if err != nil {
		return got, err
	}
	if err := errors.Join(sealed.Close(), buffered.Flush(), f.Sync()); err != nil {
		return got, fmt.Errorf("write the backup: %w", err)
	}
	x.whole = true
	x.m.cfg.wrote(x.partial)
	back, size, err := digest(ctx, x.partial)
	if err != nil {
		return got, x.failed(fmt.Errorf("read the backup back: %w", err))
	}
	if string(back) != string(sum.Sum(nil)) {
		return got, x.failed(errors.New("the file does not have the bytes that were written to it: check its disk"))
	}
	x.size = size
	return got, nil
}

// unreadableError says why the bytes of a backup could not be read back. An error of writing
// them is none.
type unreadableError struct{ why error }

func (e *unreadableError) Error() string { return e.why.Error() }
func (e *unreadableError) Unwrap() error { return e.why }

// digest reads a file to its end.
func digest(ctx context.Context, file string) (sum []byte, size int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		if errors.Is(err, io.EOF) {
			return h.Sum(nil), size, nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, 0, err
		}
	}
}

// restore restores a backup to a directory, or only reads it ("").
func (x *attempt) restore(ctx context.Context, r io.Reader, to string) (archive.Restored, error) {
	x.drill.Began = time.Now()
	if to == "" {
		return archive.Check(ctx, r, nil)
	}
	return archive.Restore(ctx, r, to, nil, nil)
}

// restoreFile restores the written file, which is not encrypted.
func (x *attempt) restoreFile(ctx context.Context, to string) (archive.Restored, error) {
	f, err := os.Open(x.partial)
	if err != nil {
		return archive.Restored{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	in, _, err := encryption.Open(f, encryption.Identities{})
	if err != nil {
		return archive.Restored{}, x.failed(err)
	}
	got, err := x.restore(ctx, in, to)
	if err != nil {
		return got, x.failed(err)
	}
	return got, nil
}

// discard removes the file of a failed attempt. A whole backup whose drill failed stays under
// another name, in place of an older one.
func (x *attempt) discard(final string) error {
	if !x.whole || x.drill.Result != Failed {
		if err := os.Remove(x.partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return errors.Join(removeRefused(x.m.cfg.Dir), os.Rename(x.partial, final+refused))
}
