package hostabi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime/manifest"
)

// TestEveryServedFunctionHasItsWritesListed keeps the fast path: after a call of a function
// that is not listed the whole memory is compared.
func TestEveryServedFunctionHasItsWritesListed(t *testing.T) {
	for _, f := range Functions() {
		listed, ok := hostWrites[f.Name]
		if !ok {
			t.Errorf("hostWrites does not say where %s writes", f.Name)
		}
		for _, w := range listed {
			if f.Params[w.Ptr] != i32 || w.Len >= 0 && f.Params[w.Len] != i32 {
				t.Errorf("%s: the parameters of %+v are no pointer and length", f.Name, w)
			}
		}
	}
	served := engineWASI()
	for name, listed := range wasiWrites {
		for _, w := range listed {
			if params := served[name].Params; w.Ptr >= len(params) || w.Len >= len(params) || params[w.Ptr] != i32 {
				t.Errorf("%s has no parameters %+v", name, w)
			}
		}
	}
}

func TestSplitInputsStopsAtTheLimit(t *testing.T) {
	if inputs, ok := splitInputs(make([]byte, 40*maxMapInputs)); !ok || len(inputs) != maxMapInputs+1 {
		t.Errorf("a list that is far too long was read to %d inputs, %v", len(inputs), ok)
	}
}

func FuzzSplitInputs(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 7, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		inputs, ok := splitInputs(data)
		if !ok {
			return
		}
		var again []byte
		for _, in := range inputs {
			again = append(binary.LittleEndian.AppendUint32(again, uint32(len(in))), in...)
		}
		if !bytes.HasPrefix(data, again) || len(inputs) <= maxMapInputs && len(again) != len(data) {
			t.Errorf("%x was read as %x", data, inputs)
		}
	})
}

func FuzzRequestHead(f *testing.F) {
	f.Add([]byte(`{"method":"POST","url":"https://api.example/","headers":{"A":"x","B":["y"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var head, again requestHead
		if manifest.Decode(text, &head) != nil {
			return
		}
		written, err := json.Marshal(struct {
			Method  string            `json:"method"`
			URL     string            `json:"url"`
			Headers map[string]values `json:"headers"`
		}(head))
		if err != nil {
			t.Fatal(err)
		}
		if err := manifest.Decode(written, &again); err != nil || cmp.Diff(head, again) != "" {
			t.Errorf("%q written as %s: %v", text, written, err)
		}
	})
}
