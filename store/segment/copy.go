package segment

import (
	"io"
	"path/filepath"
)

// Piece is a file of a log, or its beginning, for a copy.
type Piece struct {
	Name string // in the log's directory
	Size int64  // number of bytes to copy
	at   io.ReaderAt
}

// Open returns a reader of the bytes of the piece.
func (p Piece) Open() io.Reader { return io.NewSectionReader(p.at, 0, p.Size) }

// Pieces returns the files that make up the log up to a position, or up to its present
// end (Tail). A copy of them opens as a log of that length. No file is unlinked until the
// caller calls release.
func (l *Log) Pieces(length int64) (pieces []Piece, release func()) {
	l.write.Lock()
	defer l.write.Unlock()
	l.held++
	release = func() {
		l.write.Lock()
		defer l.write.Unlock()
		l.held--
	}
	for _, f := range *l.files.Load() {
		size := f.size
		if length != Tail {
			if f.base >= length {
				break
			}
			size = min(size, length-f.base)
		}
		pieces = append(pieces, Piece{Name: filepath.Base(f.f.Name()), Size: size, at: f.f})
	}
	return pieces, release
}
