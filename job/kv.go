package job

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Limits of what handlers keep.
const (
	MaxKey        = 256      // bytes
	MaxValue      = 64 << 10 // bytes; of a checkpoint and of a secret as well
	MaxSecrets    = 1000     // of an app
	DefaultKVSize = 64 << 20 // bytes of an app's keys and values
)

type valueKey struct{ bucket, key string }

// Bucket counts the values of a bucket in one slot.
type Bucket struct {
	Entries int64
	Bytes   int64 // of keys and values
}

// SlotOfValue returns the slot of a value, the same for ever.
func SlotOfValue(bucket, key string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(bucket)) //nolint:errcheck // a hash never fails
	h.Write([]byte{0})      //nolint:errcheck // a hash never fails
	h.Write([]byte(key))    //nolint:errcheck // a hash never fails
	return uint8(h.Sum32() % Slots)
}

// CheckKey refuses what cannot name a value.
func CheckKey(bucket, key string) error {
	if err := CheckName("bucket", bucket); err != nil {
		return err
	}
	switch {
	case key == "":
		return fmt.Errorf("key is missing")
	case len(key) > MaxKey:
		return fmt.Errorf("the key is %d bytes, the limit is %d", len(key), MaxKey)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("key %q is not printable text: encode it, as base64 does", key)
	}
	return nil
}

// CheckValue refuses a value over the limit. what names it for the message.
func CheckValue(what string, n int) error {
	if n > MaxValue {
		return fmt.Errorf("the %s is %d bytes, the limit is %d (64 KiB): keep a reference to larger data instead", what, n, MaxValue)
	}
	return nil
}

// parseValueKey splits what follows the app in the key of a value's row. A
// bucket has no slash; a key may.
func parseValueKey(rest string) (valueKey, bool) {
	bucket, key, ok := strings.Cut(rest, "/")
	return valueKey{bucket, key}, ok && CheckKey(bucket, key) == nil
}

// size is what a value counts against the app's quota.
func (k valueKey) size(row *apiv1.ValueRow) int64 {
	if row == nil {
		return 0
	}
	return int64(len(k.bucket) + len(k.key) + len(row.Value))
}

// Value returns an entry, or nil. It is not to be written to.
func (s *Slot) Value(bucket, key string) *apiv1.ValueRow {
	return s.guests.values[valueKey{bucket, key}]
}

// ValueBytes is what the keys and values of the slot take.
func (s *Slot) ValueBytes() int64 { return s.guests.valueBytes }

// Buckets calls fn for each bucket of the slot, in no order.
func (s *Slot) Buckets(fn func(name string, b Bucket)) {
	for name, b := range s.guests.buckets {
		fn(name, *b)
	}
}

// NextVersion is the version of the next value that is put: higher than all that
// the slot ever gave, so that who compares versions never takes a new entry for
// the old one of its name.
func (s *Slot) NextVersion() uint64 { return s.guests.version + 1 }

// GrowsBy returns by how much a put changes ValueBytes.
func (s *Slot) GrowsBy(bucket, key string, value []byte) int64 {
	k := valueKey{bucket, key}
	return k.size(&apiv1.ValueRow{Value: value}) - k.size(s.guests.values[k])
}

func (s *Slot) keepValue(k valueKey, row *apiv1.ValueRow) {
	g := &s.guests
	old := g.values[k]
	b := g.buckets[k.bucket]
	if b == nil {
		b = &Bucket{}
		set(&g.buckets, k.bucket, b)
	}
	grown := k.size(row) - k.size(old)
	g.valueBytes += grown
	b.Bytes += grown
	switch {
	case row == nil:
		delete(g.values, k)
		if b.Entries--; b.Entries == 0 {
			delete(g.buckets, k.bucket)
		}
		return
	case old == nil:
		b.Entries++
	}
	set(&g.values, k, row)
	g.version = max(g.version, row.Version)
}

func (s *Slot) putValue(p *apiv1.ValuePut, fx []Effect) []Effect {
	k := valueKey{p.Bucket, p.Key}
	s.keepValue(k, p.Row)
	fx = s.changed(fx, rowValue, k.bucket+"/"+k.key, p.Row)
	return s.changed(fx, rowVersion, strconv.Itoa(int(s.Index)), &apiv1.VersionRow{Version: s.guests.version})
}

func (s *Slot) deleteValue(d *apiv1.ValueDelete, fx []Effect) []Effect {
	k := valueKey{d.Bucket, d.Key}
	if s.guests.values[k] == nil {
		return fx
	}
	s.keepValue(k, nil)
	return s.changed(fx, rowValue, k.bucket+"/"+k.key, nil)
}

// Swap says whether a value may be replaced or deleted under the terms of its
// caller: expect is nil for whatever is there, 0 for nothing, or a version.
func Swap(row *apiv1.ValueRow, expect *uint64) bool {
	return expect == nil || row.GetVersion() == *expect
}
