package mq

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
)

// simDisk is a disk in memory that distinguishes synced from unsynced data. After a crash
// each 512-byte sector of each unsynced write is there or not, at random and in any
// combination. Of the unsynced changes of the directory either a first part remains or
// any subset.
type simDisk struct {
	mu      sync.Mutex
	files   map[string]*inode
	durable map[string]*inode
	changes []func(map[string]*inode) // unsynced changes of the directory
	free    int64                     // bytes left for growth
	total   int64
	// onSync and onWrite, when set, may fail a call. They are called with the mutex held.
	onSync  func() error
	onWrite func() error
	onDir   func() error
	// onSyncOf is onSync for tests that inspect the synced file; nil means the directory.
	onSyncOf func(*inode) error
}

type inode struct {
	mem     []byte // content for the process
	platter []byte // synced content
	writes  []simWrite
}

type simWrite struct {
	off  int64
	data []byte
}

const sector = 512

func newSimDisk() *simDisk {
	return &simDisk{files: map[string]*inode{}, durable: map[string]*inode{}, free: 1 << 40, total: 1 << 41}
}

// crash returns the disk as the next start finds it.
func (d *simDisk) crash(rng *rand.Rand) *simDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crashLocked(rng)
}

// crashLocked is crash for onSync and onWrite, which are called with the mutex held.
func (d *simDisk) crashLocked(rng *rand.Rand) *simDisk {
	after := newSimDisk()
	names := maps.Clone(d.durable)
	first := d.changes[:rng.IntN(len(d.changes)+1)]
	if rng.IntN(3) == 0 { // no order at all, which POSIX allows
		first = slices.DeleteFunc(slices.Clone(d.changes), func(func(map[string]*inode)) bool { return rng.IntN(2) == 0 })
	}
	for _, change := range first {
		change(names)
	}
	for name, n := range names {
		b := n.afterCrash(rng)
		after.files[name] = &inode{mem: b, platter: slices.Clone(b)}
	}
	after.durable = maps.Clone(after.files)
	return after
}

func (n *inode) afterCrash(rng *rand.Rand) []byte {
	b := slices.Clone(n.platter)
	mode := rng.IntN(4) // nothing, everything, or a mixture of two kinds
	for _, w := range n.writes {
		for from := w.off; from < w.off+int64(len(w.data)); {
			to := min((from/sector+1)*sector, w.off+int64(len(w.data)))
			keep := mode == 1 || mode == 2 && rng.IntN(2) == 0 || mode == 3 && rng.IntN(8) != 0
			if keep {
				b = grown(b, to)
				copy(b[from:to], w.data[from-w.off:])
			}
			from = to
		}
	}
	return b
}

func grown(b []byte, n int64) []byte {
	if int64(len(b)) < n {
		b = append(b, make([]byte, n-int64(len(b)))...)
	}
	return b
}

func (d *simDisk) change(f func(map[string]*inode)) {
	f(d.files)
	d.changes = append(d.changes, f)
}

func (d *simDisk) names() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.files)), nil
}

func (d *simDisk) open(name string, _ access) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return simFile{d, n}, nil
}

func (d *simDisk) fill(name string, n int64, _ access, stop <-chan struct{}) error {
	d.mu.Lock()
	f := simFile{d, &inode{}}
	d.change(func(m map[string]*inode) { m[name] = f.n })
	d.mu.Unlock()
	for off := int64(0); off < n; off += 16 << 10 {
		if isClosed(stop) {
			return ErrClosed
		}
		if _, err := f.WriteAt(make([]byte, 16<<10), off); err != nil {
			return err
		}
	}
	return f.sync(0, n)
}

func (d *simDisk) holds(name string, f file) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch n := d.files[name]; {
	case n == nil:
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case n != f.(simFile).n:
		return errOtherFile
	}
	return nil
}

func (d *simDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onDir != nil {
		if err := d.onDir(); err != nil {
			return err
		}
	}
	if d.files[from] == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	n := d.files[from]
	d.change(func(m map[string]*inode) { m[to] = n; delete(m, from) })
	return nil
}

func (d *simDisk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onDir != nil {
		if err := d.onDir(); err != nil {
			return err
		}
	}
	if n := d.files[name]; n != nil {
		d.free += int64(len(n.mem))
	}
	d.change(func(m map[string]*inode) { delete(m, name) })
	return nil
}

func (d *simDisk) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onSyncOf != nil {
		if err := d.onSyncOf(nil); err != nil {
			return err
		}
	}
	for _, change := range d.changes {
		change(d.durable)
	}
	d.changes = nil
	return nil
}

func (d *simDisk) space() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, d.total, nil
}

type simFile struct {
	d *simDisk
	n *inode
}

func (f simFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off >= int64(len(f.n.mem)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.mem[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f simFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.onWrite != nil {
		if err := f.d.onWrite(); err != nil {
			return 0, err
		}
	}
	grow := max(off+int64(len(p))-int64(len(f.n.mem)), 0)
	if grow > f.d.free {
		return 0, &fs.PathError{Op: "write", Path: "sim", Err: syscall.ENOSPC}
	}
	f.d.free -= grow
	f.n.mem = grown(f.n.mem, off+int64(len(p)))
	copy(f.n.mem[off:], p)
	f.n.writes = append(f.n.writes, simWrite{off, slices.Clone(p)})
	return len(p), nil
}

func (f simFile) sync(int64, int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.onSync != nil {
		if err := f.d.onSync(); err != nil {
			// The behaviour of an old kernel: it drops the bytes, and the next sync would
			// succeed.
			f.n.writes = nil
			return err
		}
	}
	if f.d.onSyncOf != nil {
		if err := f.d.onSyncOf(f.n); err != nil {
			f.n.writes = nil
			return err
		}
	}
	f.n.platter = slices.Clone(f.n.mem)
	f.n.writes = nil
	return nil
}

func (f simFile) size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.n.mem)), nil
}

func (f simFile) Close() error { return nil }

var errInjected = errors.New("injected")
