package projection

import (
	"errors"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// keyRoom collects the idempotency keys of one app that become a keyChunk.
type keyRoom struct {
	bytes []byte // of an apiv1.KeyRow
	atMs  int64  // time of the youngest key
	slots uint32 // a bit for each slot that has a key here
}

// keyChunk describes an entry in the store's log of keys: idempotency keys of one app
// that were written together.
type keyChunk struct {
	at    int64 // position in the log: behind the chunk before, and not behind this one
	atMs  int64 // time of its youngest key
	app   *App
	slots uint32            // a bit for each slot that has a key in the chunk
	until [job.Slots]uint32 // by slot: one more than the number of its last key
}

func (k *keyRoom) chunk(a *App, at int64) keyChunk {
	c := keyChunk{at: at, atMs: k.atMs, app: a, slots: k.slots}
	for i, s := range a.Slots {
		_, c.until[i] = s.KeyNumbers()
	}
	return c
}

// over reports whether every key of the chunk is forgotten, because it is too old or
// because its slot has received too many keys since. At a hundred thousand runs a second
// a chunk is over after ten seconds; the keys of all ten minutes would be gigabytes.
func (c *keyChunk) over(nowMs int64) bool {
	if nowMs-c.atMs > job.KeyWindow.Milliseconds() {
		return true
	}
	for i, s := range c.app.Slots {
		if first, _ := s.KeyNumbers(); c.slots&(1<<i) != 0 && int32(first-c.until[i]) < 0 { // the numbers wrap at 2³²
			return false
		}
	}
	return true
}

// loadKeys loads the idempotency keys of an encoded apiv1.KeyRow into the slots, the
// oldest first, and calls each for every key unless each is nil.
func (a *App) loadKeys(value []byte, each func(hash [16]byte, id job.RunID, atMs int64, input uint32)) (keyRoom, error) {
	row := &apiv1.KeyRow{}
	if err := proto.Unmarshal(value, row); err != nil || len(row.Keys) == 0 {
		return keyRoom{}, errors.Join(err, errors.New("no keys in it"))
	}
	loaded := keyRoom{atMs: row.Keys[len(row.Keys)-1].AtMs}
	for _, k := range row.Keys {
		hash, id := [16]byte(k.Hash), job.RunID(k.Run)
		a.Slots[id.Slot()].LoadKey(hash, id, k.AtMs, k.Input)
		loaded.slots |= 1 << id.Slot()
		if each != nil {
			each(hash, id, k.AtMs, k.Input)
		}
	}
	return loaded, nil
}
