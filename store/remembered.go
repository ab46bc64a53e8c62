package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// Keys are idempotency keys of an app, in the caller's encoding. There may be one for
// each run. Single keys are never looked up, and all are useless after seconds or
// minutes. They are therefore in a log of their own. A starting server reads the log
// whole, and its segments are removed when their keys are forgotten.
type Keys struct {
	App   string
	Value []byte
}

// keySegment is the size of a segment of keys, in bytes. A starting server reads less
// than one segment of forgotten keys.
const keySegment = 16 << 20

func (s *Store) openRemembered(length int64, allowShort bool) (err error) {
	s.remembered, err = segment.Open(s.path(keysName), segment.Options{
		Kind: "keys", SegmentBytes: min(s.cfg.SegmentBytes, keySegment), Length: length, AllowShort: allowShort,
	})
	return err
}

// keyBlocks encodes keys, one block each, without copying them. Payload, little endian:
// length of the name of the app (2), the name, the value.
func keyBlocks(keys []Keys) ([]segment.Block, error) {
	blocks := make([]segment.Block, 0, len(keys))
	for i := range keys {
		k := &keys[i]
		if len(k.App) > maxKey {
			return nil, fmt.Errorf("the name of an app has %d bytes, over the limit of %d", len(k.App), maxKey)
		}
		head := binary.LittleEndian.AppendUint16(make([]byte, 0, 2+len(k.App)), uint16(len(k.App)))
		blocks = append(blocks, segment.Block{Payload: append(head, k.App...), Rest: [][]byte{k.Value}})
	}
	return blocks, nil
}

// KeysLength returns the length of the log of idempotency keys, in bytes since its
// beginning. Keys that are committed later are appended behind it.
func (s *Store) KeysLength() int64 { return s.remembered.Length() }

// EachKeys calls fn for all [Keys] in the log, oldest first, each with its position. Some
// of them may be forgotten keys. The value is valid until fn returns. An error ends the
// walk and is returned.
func (s *Store) EachKeys(fn func(k Keys, at int64) error) error {
	for b, err := range s.remembered.From(0) {
		if err != nil {
			return fmt.Errorf("store: idempotency keys: %w: without them a repeated trigger may run twice; restore the file from a copy, or give up its keys with `wheelwork store repair`", err)
		}
		p := b.Payload
		if len(p) < 2 || len(p)-2 < int(binary.LittleEndian.Uint16(p)) {
			return fmt.Errorf("store: idempotency keys: block at %d: it has no name of an app: %w", b.Pos, segment.ErrCorrupt)
		}
		name := 2 + int(binary.LittleEndian.Uint16(p))
		if err := fn(Keys{App: string(p[2:name]), Value: p[name:]}, b.Pos); err != nil {
			return err
		}
	}
	return nil
}

// trimKeys unlinks segments of forgotten keys. kept is the length in the newest snapshot.
// A store that is rebuilt from it must find the keys up to there, or at least the
// position where they end.
func (s *Store) trimKeys(kept int64) error {
	_, err := s.remembered.Trim(min(s.forgotten.Load(), kept))
	if err != nil {
		err = fmt.Errorf("remove forgotten idempotency keys: %w", err)
	}
	return err
}

var errForgotten = errors.New("keys can be forgotten up to the end of their log")
