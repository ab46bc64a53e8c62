package inspect

import "testing"

// command is a module whose _start does nothing.
var command = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x04\x01\x60\x00\x00" + // a type: () -> ()
	"\x03\x02\x01\x00" + // a function
	"\x07\x0a\x01\x06_start\x00\x00" +
	"\x0a\x04\x01\x02\x00\x0b")

// FuzzDecodeRewritten decodes files of the compile cache. An incomplete file must be
// refused, and any other must be decoded to the same code after it is encoded again.
func FuzzDecodeRewritten(f *testing.F) {
	p, err := Rewrite(command, DefaultLimits())
	if err != nil {
		f.Fatal(err)
	}
	file, err := p.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, ok := DecodeRewritten(data)
		if !ok {
			return
		}
		again, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if q, ok := DecodeRewritten(again); !ok || string(q.Code) != string(p.Code) {
			t.Fatal("it does not come back")
		}
	})
}
