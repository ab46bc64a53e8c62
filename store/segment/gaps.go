package segment

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Span is a range of positions, From <= position < To.
type Span struct{ From, To int64 }

// Gap is a range of a log for which there is no file.
type Gap struct {
	Span
	// After and Before bound the times of the lost rows, Unix ms: the last time before
	// the gap and the first time behind it. 0 means that there is no such row.
	After, Before int64
}

// gapsName is the file that lists the ranges without a file that retention removed or a
// repair gave up. Without it, in a log of an earlier version or a restored one, every
// missing range counts as removed.
const gapsName = "gaps"

const gapsHead = "wheelwork gaps 1\n"

// readGaps returns the ranges in the file; ok is false if there is no file. A damaged
// file counts as empty.
func readGaps(dir string) (spans []Span, ok bool, err error) {
	content, err := os.ReadFile(filepath.Join(dir, gapsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return parseGaps(content), true, nil
}

func parseGaps(content []byte) []Span {
	body, found := bytes.CutPrefix(content, []byte(gapsHead))
	at := bytes.LastIndex(body, []byte("crc "))
	if !found || at < 0 || string(body[at:]) != gapsCRC(body[:at]) {
		return nil
	}
	var spans []Span
	for lines := bufio.NewScanner(bytes.NewReader(body[:at])); lines.Scan(); {
		var s Span
		if _, err := fmt.Sscanf(lines.Text(), "%d %d", &s.From, &s.To); err != nil {
			return nil
		}
		spans = append(spans, s)
	}
	return spans
}

func gapsCRC(body []byte) string { return fmt.Sprintf("crc %08x\n", crc32.Checksum(body, castagnoli)) }

// writeGaps replaces the file.
func writeGaps(dir string, spans []Span) error {
	var body bytes.Buffer
	for _, s := range spans {
		fmt.Fprintf(&body, "%d %d\n", s.From, s.To)
	}
	name := filepath.Join(dir, gapsName)
	f, err := os.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(gapsHead + body.String() + gapsCRC(body.Bytes()))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(f.Name(), name), syncDir(dir))
}

// unite sorts spans and joins those that touch.
func unite(spans []Span) []Span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return int(max(-1, min(1, a.From-b.From))) })
	var all []Span
	for _, s := range spans {
		if n := len(all); n > 0 && s.From <= all[n-1].To {
			all[n-1].To = max(all[n-1].To, s.To)
		} else if s.To > s.From {
			all = append(all, s)
		}
	}
	return all
}

// covered reports whether one of the spans, which do not touch each other, contains all
// of s.
func covered(spans []Span, s Span) bool {
	return slices.ContainsFunc(spans, func(c Span) bool { return c.From <= s.From && s.To <= c.To })
}

// gapsOf returns the ranges before the first file and between files.
func gapsOf(files []*file) []Gap {
	var gaps []Gap
	var end int64
	after := int64(math.MinInt64)
	for _, f := range files {
		if f.base > end {
			g := Gap{Span: Span{end, f.base}}
			if after != math.MinInt64 {
				g.After = after
			}
			if f.min <= f.max {
				g.Before = f.min
			}
			gaps = append(gaps, g)
		}
		end = f.end()
		if f.min <= f.max {
			after = max(after, f.max)
		}
	}
	return gaps
}

// account compares the gaps between the files with the known ones.
func (l *Log) account(files []*file) error {
	known, ok, err := readGaps(l.dir)
	if err != nil {
		return err
	}
	l.gaps = unite(known)
	found := gapsOf(files)
	if !ok {
		for _, g := range found {
			l.gaps = unite(append(l.gaps, g.Span))
		}
		return writeGaps(l.dir, l.gaps)
	}
	for _, g := range found {
		if !covered(l.gaps, g.Span) {
			l.missing = append(l.missing, g)
		}
	}
	return nil
}

// Missing returns the gaps at the time of opening that neither retention nor a repair
// explains. Their files were lost.
func (l *Log) Missing() []Gap { return l.missing }
