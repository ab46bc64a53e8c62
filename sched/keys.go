package sched

import (
	"crypto/sha256"
	"errors"
	"strconv"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// keyRoom is what becomes one chunk of idempotency keys.
type keyRoom struct {
	bytes []byte // of an apiv1.KeyRow
	atMs  int64  // of the youngest
	slots uint32 // a bit for each slot that has one in it
}

// keyChunk is idempotency keys of an app that stand in the store together.
type keyChunk struct {
	at    int64 // position in the store's log of keys: not behind the chunk, and behind the one before
	atMs  int64 // of its youngest key
	app   *app
	slots uint32
	until [job.Slots]uint32 // by slot: behind the number of its last key
}

func (k *keyRoom) chunk(a *app, at int64) keyChunk {
	c := keyChunk{at: at, atMs: k.atMs, app: a, slots: k.slots}
	for i, s := range a.slots {
		_, c.until[i] = s.KeyNumbers()
	}
	return c
}

// over reports whether every key of the chunk is forgotten: it is too old, or its
// slot had too many since. At a hundred thousand runs a second that is after ten
// seconds, and all of ten minutes would be gigabytes.
func (c *keyChunk) over(nowMs int64) bool {
	if nowMs-c.atMs > job.KeyWindow.Milliseconds() {
		return true
	}
	for i, s := range c.app.slots {
		if first, _ := s.KeyNumbers(); c.slots&(1<<i) != 0 && int32(first-c.until[i]) < 0 { // modulo 2³², like the numbers
			return false
		}
	}
	return true
}

// loadKeys puts the idempotency keys of an apiv1.KeyRow back, the oldest first.
func (a *app) loadKeys(value []byte, each func(hash [16]byte, id job.RunID, atMs int64, input uint32)) (keyRoom, error) {
	row := &apiv1.KeyRow{}
	if err := proto.Unmarshal(value, row); err != nil || len(row.Keys) == 0 {
		return keyRoom{}, errors.Join(err, errors.New("no keys in it"))
	}
	loaded := keyRoom{atMs: row.Keys[len(row.Keys)-1].AtMs}
	for _, k := range row.Keys {
		hash, id := [16]byte(k.Hash), job.RunID(k.Run)
		a.slots[id.Slot()].LoadKey(hash, id, k.AtMs, k.Input)
		loaded.slots |= 1 << id.Slot()
		if each != nil {
			each(hash, id, k.AtMs, k.Input)
		}
	}
	return loaded, nil
}

// keyHash is what is kept of an idempotency key.
func keyHash(name, key string) [16]byte {
	var room [2 * maxKey]byte
	b := strconv.AppendInt(room[:0], int64(len(name)), 10)
	b = append(append(append(b, ':'), name...), key...)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:])
}
