package wire

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestFields checks that fields are written as protobuf's own package writes them, and
// are read back, for all sizes of numbers and contents.
func TestFields(t *testing.T) {
	for _, n := range []protowire.Number{1, 2, 15, 16, 17, 127, 128, 2047, 2048, protowire.MaxValidNumber} {
		for _, v := range []int64{1, 127, 128, 1 << 14, 1_763_900_000_000, math.MaxInt64, -1} {
			want := protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), uint64(v))
			got := Int(nil, n, v)
			r := NewReader(got)
			if !bytes.Equal(got, want) || !r.Next() || r.Field != n || r.Int() != v || r.Next() || r.Failed() {
				t.Errorf("field %d, %d: % x, want % x", n, v, got, want)
			}
		}
		r := NewReader(Int(Text(nil, n, "passed over"), n, 7))
		r.Next()
		r.Skip()
		if !r.Next() || r.Int() != 7 || r.Failed() {
			t.Errorf("field %d was not passed over", n)
		}
		if got, want := Bool(nil, n, true), append(protowire.AppendTag(nil, n, protowire.VarintType), 1); !bytes.Equal(got, want) {
			t.Errorf("field %d: % x, want % x", n, got, want)
		}
		for _, size := range []int{1, 127, 128, 1 << 14, 1 << 21} {
			text := strings.Repeat("x", size)
			want := protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), text)
			inner, from := Begin(nil, n)
			for what, got := range map[string][]byte{
				"text": Text(nil, n, text), "texts": Texts(nil, n, []string{text}), "bytes": Bytes(nil, n, []byte(text)),
				"message": End(append(inner, text...), from),
			} {
				r := NewReader(got)
				if !bytes.Equal(got, want) || !r.Next() || r.Field != n || r.Text() != text || r.Next() || r.Failed() {
					t.Errorf("field %d, %s of %d: begins % x, want % x", n, what, size, got[:8], want[:8])
				}
			}
		}
	}
	if b := Int(Text(Bytes(Bool(nil, 1, false), 1, nil), 1, ""), 1, 0); len(b) > 0 {
		t.Errorf("zero values are written: % x", b)
	}
}

// TestNoField checks that bytes without a valid field are a failure.
func TestNoField(t *testing.T) {
	for _, bad := range []string{"\x00", "\x07", "\x80", "\x80\x80", "\x0a", "\x0a\x05abcd", "\x08\x80", "\x0a\xff\xff\xff\xff\x0f"} {
		r := NewReader([]byte(bad))
		for r.Next() {
			if r.Int(); r.Failed() {
				r = NewReader([]byte(bad))
				r.Next()
				r.Text()
			}
		}
		if !r.Failed() {
			t.Errorf("%q was read", bad)
		}
		for r = NewReader([]byte(bad)); r.Next(); {
			r.Skip()
		}
		if !r.Failed() {
			t.Errorf("%q was passed over", bad)
		}
	}
}
