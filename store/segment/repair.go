package segment

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// Repair makes the closed log in dir usable again. It gives up damaged data, and
// positions have the same meaning. It calls keep with the name of each file before it
// replaces or removes it; keep must save the file. length is that of [Verify]. Repair
// returns the report of Verify.
func Repair(dir, kind string, length int64, keep func(name string) error) (Report, error) {
	r, err := Verify(dir, kind, length)
	if err != nil || len(r.Damage) == 0 {
		return r, err
	}
	bases, err := list(dir)
	if err != nil {
		return r, err
	}
	var files []*file
	defer func() { closeAll(files) }() //nolint:errcheck // synced before
	for i, base := range bases {
		if length != Tail && base >= length {
			break // left over from a crash
		}
		x, err := examine(dir, kind, base, length, i == len(bases)-1)
		if err != nil {
			return r, err
		}
		if len(x.damage) > 0 {
			if err := keep(x.name); err != nil {
				return r, err
			}
			if err := x.mend(dir, kind); err != nil {
				return r, fmt.Errorf("%s: %w", x.name, err)
			}
		}
		f, err := open(dir, kind, base)
		if errors.Is(err, os.ErrNotExist) {
			continue // it had no sound block
		}
		if err != nil {
			return r, err
		}
		files = append(files, f)
	}
	known, _, err := readGaps(dir)
	if err != nil {
		return r, err
	}
	for _, g := range gapsOf(files) {
		known = append(known, g.Span)
	}
	return r, writeGaps(dir, unite(known))
}

// mend replaces a segment by one with the same sound blocks at the same positions. It
// removes a segment without sound blocks.
func (x *examined) mend(dir, kind string) error {
	name := filepath.Join(dir, x.name)
	if len(x.idx.spans) == 0 && len(x.holes) > 0 {
		return errors.Join(os.Remove(name), syncDir(dir))
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(name+".tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = x.write(out, in, kind)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(out.Name(), name), syncDir(dir))
}

func (x *examined) write(out *os.File, in io.ReaderAt, kind string) error {
	end := int64(headerSize)
	if n := len(x.idx.spans); n > 0 {
		last := x.idx.spans[n-1]
		end = int64(last.off) + int64(last.len)
	}
	if _, err := out.WriteAt(appendHeader(nil, kind, x.base), 0); err != nil {
		return err
	}
	for _, s := range x.idx.spans {
		if _, err := io.Copy(io.NewOffsetWriter(out, int64(s.off)), io.NewSectionReader(in, int64(s.off), int64(s.len))); err != nil {
			return err
		}
	}
	for _, h := range x.holes {
		if h.From >= end {
			break // the segment ends before the hole
		}
		if err := writeHole(out, x.base, h); err != nil {
			return err
		}
	}
	if x.last {
		return nil
	}
	s := &file{f: out, base: x.base}
	if err := s.scan(end); err != nil {
		return err
	}
	_, err := out.WriteAt(appendFooter(nil, s.idx.(*memory), x.base, s.size, s.min, s.max), s.size)
	return err
}

// writeHole writes empty blocks over the offsets of h.
func writeHole(out io.WriterAt, base int64, h Span) error {
	const least = blockHead + bodyHead
	for h.From < h.To {
		n := min(h.To-h.From, maxBody)
		if rest := h.To - h.From - n; rest > 0 && rest < least {
			n -= least
		}
		if n < least {
			return fmt.Errorf("%d bytes at offset %d are too few for a block: %w", n, h.From, ErrCorrupt)
		}
		b := Block{Min: math.MaxInt64, Max: math.MinInt64, Payload: make([]byte, n-least)}
		if _, err := out.WriteAt(appendBlock(nil, &b, base+h.From), h.From); err != nil {
			return err
		}
		h.From += n
	}
	return nil
}
