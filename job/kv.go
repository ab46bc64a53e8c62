package job

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Limits of the state that a slot holds for handlers.
const (
	MaxKey        = 256      // bytes
	MaxValue      = 64 << 10 // bytes; also of a checkpoint and of a secret
	MaxSecrets    = 1000     // per app
	DefaultKVSize = 64 << 20 // bytes of the keys and values of an app
)

type valueKey struct{ bucket, key string }

// Bucket counts the values of a bucket in one slot.
type Bucket struct {
	Entries int64
	Bytes   int64 // of keys and values
}

// SlotOfValue returns the slot of a value. The mapping never changes.
func SlotOfValue(bucket, key string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(bucket)) //nolint:errcheck // a hash never fails
	h.Write([]byte{0})      //nolint:errcheck // a hash never fails
	h.Write([]byte(key))    //nolint:errcheck // a hash never fails
	return uint8(h.Sum32() % Slots)
}

// CheckKey refuses a bucket or a key that is not valid.
func CheckKey(bucket, key string) error {
	if err := naming.Check("bucket", bucket); err != nil {
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

// CheckValue refuses a value over the limit. what names the value in the message.
func CheckValue(what string, n int) error {
	if n > MaxValue {
		return fmt.Errorf("the %s is %d bytes, the limit is %d (64 KiB): keep a reference to larger data instead", what, n, MaxValue)
	}
	return nil
}

// parseValueKey splits the part of a row key behind the app into bucket and key. A bucket
// has no slash; a key may have some.
func parseValueKey(rest string) (valueKey, bool) {
	bucket, key, ok := strings.Cut(rest, "/")
	return valueKey{bucket, key}, ok && CheckKey(bucket, key) == nil
}

// size is the number of bytes that a value counts against the quota of the app.
func (k valueKey) size(row *apiv1.ValueRow) int64 {
	if row == nil {
		return 0
	}
	return int64(len(k.bucket) + len(k.key) + len(row.Value))
}

// Value returns the row of a value, or nil. The caller does not modify it.
func (s *Slot) Value(bucket, key string) *apiv1.ValueRow {
	return s.guests.values[valueKey{bucket, key}]
}

// ValueBytes returns the bytes of all keys and values of the slot.
func (s *Slot) ValueBytes() int64 { return s.guests.valueBytes }

// Buckets calls fn for each bucket of the slot, in no order.
func (s *Slot) Buckets(fn func(name string, b Bucket)) {
	for name, b := range s.guests.buckets {
		fn(name, *b)
	}
}

// NextVersion returns the version of the next value that is put. It is higher than all
// earlier versions of the slot, so that a client that compares versions never confuses a
// new value with an earlier one under the same key.
func (s *Slot) NextVersion() uint64 { return s.guests.version + 1 }

// GrowsBy returns the change of ValueBytes by a put, in bytes.
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

// Swap reports whether a value may be replaced or deleted. expect is nil for any value, 0
// for no value, or the expected version.
func Swap(row *apiv1.ValueRow, expect *uint64) bool {
	return expect == nil || row.GetVersion() == *expect
}
