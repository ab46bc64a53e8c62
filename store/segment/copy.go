package segment

import (
	"io"
	"path/filepath"
)

// Piece is a file of a log, or the beginning of one, that is to be copied.
type Piece struct {
	Name string // in the log's directory
	Size int64  // what is to be copied of it
	at   io.ReaderAt
}

// Open returns the bytes of the piece.
func (p Piece) Open() io.Reader { return io.NewSectionReader(p.at, 0, p.Size) }

// Pieces returns the files that make up the log up to a position, or to where it
// ends now (Tail). A copy of them opens as a log of that length. Until release is
// called nothing is unlinked.
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
