package store

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// Content is a definition of an object, in the caller's encoding. Shape is the part that
// many objects have in common, Own is the rest. Both are empty if there is no object.
type Content struct{ Shape, Own string }

// Revision is one change of the definition of an object. The revisions of an object have
// the numbers 1, 2, 3 and so on, and the content before one is the content after the one
// with the number before it.
type Revision struct {
	App, Kind, Name string
	Number          int64
	AtMs            int64 // Unix ms
	// Cause is the author of the change and the reason, in the caller's encoding. A block stores it
	// once for consecutive revisions that have the identical slice.
	Cause         []byte
	Before, After Content
}

// StoredRevision is a revision as it is stored: it leads from the content after it to the
// content before it.
type StoredRevision struct {
	Number int64
	AtMs   int64 // Unix ms
	Cause  []byte
	delta  delta
}

// Before returns the content before the revision, given the content after it. The error
// is [ErrCorrupt] if that is another content.
func (r *StoredRevision) Before(after Content) (Content, error) {
	before, err := r.delta.apply(after)
	if err != nil {
		return Content{}, fmt.Errorf("store: revision %d: %w", r.Number, err)
	}
	return before, nil
}

const (
	// visibleRevisions is the number of revisions of an object that readers find.
	visibleRevisions = 100

	// revisionsPage is the largest number of revisions on a page.
	revisionsPage = 1000

	// revisionKind is in every segment of revisions.
	revisionKind = "revision"

	// revisionSegment is the size of a segment of revisions, in bytes. Space becomes free in
	// whole segments, and a start reads the active one, so it is small.
	revisionSegment = 8 << 20
)

// byRevision is the kind of the look-up of an object's revisions: app, kind, name.
const byRevision = 'v'

func (s *Store) openRevisions(length int64, allowShort bool) (err error) {
	s.revisions, err = segment.Open(s.path(revisionsName), segment.Options{
		Kind: revisionKind, SegmentBytes: max(min(s.cfg.SegmentBytes, revisionSegment, s.cfg.RevisionBytes/16), 4<<10), Length: length, AllowShort: allowShort,
	})
	return err
}

// Revisions returns the revisions of an object, newest first, at most limit (1 to 1000)
// of them. They begin at a cursor that the previous page returned; "" is the newest
// revision. next is the cursor of the next page, "" if there is none.
//
// Readers find the newest 100 revisions of an object, and of those of its app the newest
// up to the limit of the app, or [Config.RevisionBytes]. An object that has revision 1 again is
// a new object with the name of an older one, whose revisions are not returned. If revisions
// were lost, the older ones are not returned either: without the lost ones they lead to no
// content.
func (s *Store) Revisions(app, kind, name, cursor string, limit int) (revs []StoredRevision, next string, err error) {
	revs, next, err = s.revisionsOf(object{app, kind, name}, cursor, limit)
	if err != nil {
		return nil, "", fmt.Errorf("store: revisions: %w", err)
	}
	return revs, next, nil
}

// object is the full name of a definition that has revisions.
type object struct{ app, kind, name string }

func (o object) key() uint64 { return lookup{byRevision, o.app, o.kind, o.name}.hash() }

func (s *Store) revisionsOf(o object, cursor string, limit int) (revs []StoredRevision, next string, err error) {
	if limit < 1 || limit > revisionsPage {
		return nil, "", fmt.Errorf("a page of %d revisions: want 1 to %d", limit, revisionsPage)
	}
	at, err := parseRevisionCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	since, floor := s.retention.of(o.app).revisionsFrom(), s.shares.floor(o.app)
	for b, err := range s.revisions.Find([][]uint64{{o.key()}}, at.before()) {
		var damaged *segment.DamagedError
		if err == nil && b.Pos < floor || errors.As(err, &damaged) && damaged.Span.From < floor {
			break
		}
		var found []StoredRevision
		if err == nil {
			found, err = parseRevisions(b, o)
		}
		if err != nil {
			if len(revs) > 0 && errors.Is(err, ErrCorrupt) {
				return revs, at.String(), nil // the next page reports the damage
			}
			if errors.Is(err, ErrCorrupt) {
				err = fmt.Errorf("%w: restore the file from a copy, or give up its revisions with `wheelwork store repair`", err)
			}
			return nil, "", err
		}
		for _, r := range slices.Backward(found) {
			if at.number != 0 && r.Number >= at.number {
				continue // it is on a page already, or twice in the log
			}
			if at.number != 0 && r.Number < at.number-1 {
				if b.Pos >= s.shares.floor(o.app) { // otherwise they were removed meanwhile
					s.cfg.Logger.Warn("store: revisions are missing, so older ones are not shown", "app", o.app, "kind", o.kind, "name", o.name, "after", r.Number, "before", at.number)
				}
				return revs, "", nil
			}
			if at.newest == 0 {
				at.newest = r.Number
			}
			if r.AtMs < since {
				return revs, "", nil
			}
			if len(revs) == limit {
				return revs, at.String(), nil
			}
			revs = append(revs, r)
			at.pos, at.number = b.Pos, r.Number
			if r.Number == max(1, at.newest-visibleRevisions+1) {
				return revs, "", nil // the last one
			}
		}
	}
	return revs, "", nil
}

// revisionCursor is the place of the last revision on a page.
type revisionCursor struct {
	pos    int64 // of its block
	number int64 // its number; 0: there was no page
	newest int64 // number of the first revision on the first page
}

// before returns the position before which blocks are of interest.
func (c revisionCursor) before() int64 {
	if c.number == 0 {
		return segment.End
	}
	return c.pos + 1
}

func (c revisionCursor) String() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.pos))
	b = binary.BigEndian.AppendUint64(b, uint64(c.number))
	b = binary.BigEndian.AppendUint64(b, uint64(c.newest))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseRevisionCursor(s string) (revisionCursor, error) {
	if s == "" {
		return revisionCursor{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 28 || crc32.ChecksumIEEE(b[:24]) != binary.BigEndian.Uint32(b[24:]) {
		return revisionCursor{}, ErrCursor
	}
	be := binary.BigEndian
	c := revisionCursor{int64(be.Uint64(b)), int64(be.Uint64(b[8:])), int64(be.Uint64(b[16:]))}
	if c.pos < 0 || c.pos > newest.pos || c.number < 1 || c.newest < c.number {
		return revisionCursor{}, ErrCursor
	}
	return c, nil
}
