package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// rewriteSuffix ends the name of a segment that is being rewritten.
const rewriteSuffix = extension + ".tmp"

// pageSize is the size of the parts of a rewritten file that are left out if all their bytes are zero.
const pageSize = 4 << 10

// An Edit changes the payload of a block in place and reports whether it did. The length stays.
type Edit func(pos int64, keys []uint64, payload []byte) bool

// Rewrite replaces the sealed segment at a position by one whose payloads edit has changed. Positions,
// keys and the index stay, so readers and cursors find the same blocks. Pages of zeros take no space
// on file systems with sparse files. Rewrite reports false if edit changed nothing, or if there is no
// sealed segment there.
//
// The new file is complete and synced before it takes the name of the old one. So after a crash one of the
// two is there. A reader that has the old file continues to read it.
func (l *Log) Rewrite(base int64, edit Edit) (changed bool, err error) {
	old := l.sealedAt(base)
	if old == nil {
		return false, nil
	}
	if changed, err = l.rewrite(old, edit); err != nil {
		return false, fmt.Errorf("segment: rewrite: %w", err)
	}
	return changed, nil
}

func (l *Log) sealedAt(base int64) *file {
	for _, f := range *l.files.Load() {
		if f.base == base && f.sealed() {
			return f
		}
	}
	return nil
}

func (l *Log) rewrite(old *file, edit Edit) (changed bool, err error) {
	name := filepath.Join(l.dir, filename(old.base))
	tmp := strings.TrimSuffix(name, extension) + rewriteSuffix
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	changed, err = copyEdited(f, old, edit)
	if err == nil && changed {
		err = f.Sync()
	}
	if errors.Is(err, os.ErrClosed) { // it was removed meanwhile
		changed, err = false, nil
	}
	if err = errors.Join(err, f.Close()); err != nil || !changed {
		return false, errors.Join(err, os.Remove(tmp))
	}
	l.write.Lock()
	defer l.write.Unlock()
	if l.sealedAt(old.base) != old { // it was removed meanwhile
		return false, os.Remove(tmp)
	}
	made, err := openSealed(tmp, l.opt.Kind, old.base)
	if err != nil {
		return false, errors.Join(err, os.Remove(tmp))
	}
	if err := errors.Join(made.f.Close(), os.Rename(tmp, name), syncDir(l.dir)); err != nil {
		return false, err
	}
	next, err := openSealed(name, l.opt.Kind, old.base)
	if err != nil {
		return false, err
	}
	files := append([]*file(nil), *l.files.Load()...)
	for i := range files {
		if files[i] == old {
			files[i] = next
		}
	}
	// The runtime closes the old file when no reader has it. To close it here would hide the blocks
	// from the searches that have begun.
	l.files.Store(&files)
	return true, nil
}

// openSealed opens a rewritten segment and reads its footer.
func openSealed(name, kind string, base int64) (*file, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	size, err := checkHeader(f, kind, base)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	ft, ok := readFooter(f, size, base)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s: the footer just written does not read back: %w", name, ErrCorrupt), f.Close())
	}
	return &file{f: f, base: base, size: size, min: ft.min, max: ft.max, idx: ft.idx}, nil
}

// copyEdited writes a copy of a segment with edited payloads. It copies damaged blocks as they are.
func copyEdited(w *os.File, old *file, edit Edit) (changed bool, err error) {
	rd := newReader()
	defer rd.free()
	out := sparse{w: w}
	if err := out.copy(old.f, 0, headerSize); err != nil {
		return false, err
	}
	blocks := old.idx.blocks()
	at := int64(headerSize)
	for i := range blocks {
		sp, err := old.idx.span(rd, i)
		if err != nil {
			return false, err
		}
		if int64(sp.off) != at { // bytes that no block has
			if err := out.copy(old.f, at, int64(sp.off)-at); err != nil {
				return false, err
			}
		}
		at = int64(sp.off) + int64(sp.len)
		b, err := readSpan(old.f, old.base, sp, rd)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return false, err
		}
		raw := rd.raw[:sp.len]
		if err == nil && !b.hole() && edit(b.Pos, b.Keys, b.Payload) { // the payload is a part of raw
			changed = true
			binary.LittleEndian.PutUint32(raw[4:], checksum(b.Pos, raw[blockHead:]))
		}
		if err := out.write(raw, int64(sp.off)); err != nil {
			return false, err
		}
	}
	if err := out.copy(old.f, at, old.size-at); err != nil {
		return false, err
	}
	return changed, w.Truncate(old.size)
}

// sparse writes to a new file and leaves out pages of zeros.
type sparse struct {
	w   *os.File
	buf []byte
}

var zeroPage [pageSize]byte

func (s *sparse) write(b []byte, at int64) error {
	for len(b) > 0 {
		n := min(int(pageSize-at%pageSize), len(b))
		if !bytes.Equal(b[:n], zeroPage[:n]) {
			for n < len(b) { // one write up to the next page of zeros
				next := min(pageSize, len(b)-n)
				if bytes.Equal(b[n:n+next], zeroPage[:next]) {
					break
				}
				n += next
			}
			if _, err := s.w.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// copy copies n bytes of a file at the same position.
func (s *sparse) copy(from io.ReaderAt, at, n int64) error {
	if s.buf == nil {
		s.buf = make([]byte, 256<<10)
	}
	for n > 0 {
		part := s.buf[:min(n, int64(len(s.buf)))]
		if _, err := from.ReadAt(part, at); err != nil {
			return err
		}
		if err := s.write(part, at); err != nil {
			return err
		}
		at, n = at+int64(len(part)), n-int64(len(part))
	}
	return nil
}

// removeRewrites removes the files that a crash during a rewrite has left.
func removeRewrites(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), rewriteSuffix) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Seal seals the active segment, unless it is empty, so that [Log.Rewrite] can change it.
func (l *Log) Seal() error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.active().size == headerSize {
		return nil
	}
	if err := l.roll(); err != nil {
		return fmt.Errorf("segment: seal: %w", err)
	}
	return nil
}
