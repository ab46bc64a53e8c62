package cpython

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// newHost returns a host with one slot.
func newHost() *guest.Host { return &guest.Host{Slots: make(chan struct{}, 1)} }

// TestSourceFS checks the file system of scripts with the standard library's test.
func TestSourceFS(t *testing.T) {
	files := sourceFS{"main.py": "x = 1\n", "lib/a.py": "", "lib/deep/b.py": "y", "lib.py": "z"}
	if err := fstest.TestFS(files, "main.py", "lib/a.py", "lib/deep/b.py", "lib.py"); err != nil {
		t.Error(err)
	}
	if _, err := fs.Stat(files, "li"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a part of a name: %v", err)
	}
}

// FuzzBridge writes arbitrary bytes to the stream of the Python SDK. The host must answer
// them, or end the guest for a misuse.
func FuzzBridge(f *testing.F) {
	request := func(name string, args ...string) []byte {
		body := append([]byte{byte(len(name))}, name...)
		body = append(body, byte(len(args)))
		for _, a := range args {
			body = append(body, a...)
		}
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	f.Add(request("input_len"), 3)
	f.Add(request("input_read", "i\x00\x00\x00\x00\x00\x00\x00\x00", "o\x04\x00\x00\x00"), 1)
	f.Add(request("log", "i\x01\x00\x00\x00\x00\x00\x00\x00", "b\x02\x00\x00\x00hi"), 100)
	f.Add(request("param_get", "b\x03\x00\x00\x00job", "o\x08\x00\x00\x00"), 7)
	f.Add(request("done", "i\x02\x00\x00\x00\x00\x00\x00\x00"), 5)
	f.Add(request("metric_add", "b\x01\x00\x00\x00m", "i\x00\x00\x00\x00\x00\x00\x00\x00", "f\x00\x00\x00\x00\x00\x00\xf0\x3f"), 9)
	f.Add(request("kv_get", "b\x01\x00\x00\x00b", "b\x01\x00\x00\x00k", "o\x08\x00\x00\x00", "p\x08\x00\x00\x00"), 9)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		task := runtime.Task{Input: []byte("input"), Job: "settle"}
		ctx, cancel := context.WithCancel(context.Background())
		c := guest.NewCall(ctx, &task, guest.Discard{}, newHost())
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cancel() // calls that wait, such as sleep, end at once
		b := NewBridge(c)
		defer func() {
			if r := recover(); r != nil && (c.Cause() == nil || r != any(c.Cause())) {
				panic(r) // the panic is not the host's way to end the guest
			}
		}()
		piece = max(1, min(piece, len(data)))
		for len(data) > 0 {
			n := min(piece, len(data))
			if _, err := b.Write(data[:n]); err != nil {
				t.Fatal(err)
			}
			data = data[n:]
			if answer, err := io.ReadAll(b); err != nil || len(answer) > 0 && len(answer) < 8 {
				t.Fatalf("answer of %d bytes: %v", len(answer), err)
			}
		}
	})
}

// TestBridge checks requests with their answers, and requests that end the guest.
func TestBridge(t *testing.T) {
	serve := func(request []byte) (answer []byte, ended string, b *Bridge) {
		task := runtime.Task{Input: []byte("input"), Job: "settle"}
		c := guest.NewCall(context.Background(), &task, guest.Discard{}, newHost())
		b = NewBridge(c)
		defer func() {
			if r := recover(); r != nil {
				ended = fmt.Sprint(r)
			}
		}()
		if _, err := b.Write(request); err != nil {
			t.Fatal(err)
		}
		answer, _ = io.ReadAll(b)
		return answer, "", b
	}
	const one, zero = "i\x01\x00\x00\x00\x00\x00\x00\x00", "i\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, tt := range []struct {
		name, request, answer, ended string
	}{
		{"a number", "\x09input_len\x00", "\x05\x00\x00\x00\x00\x00\x00\x00", ""},
		{"a buffer", "\x0ainput_read\x02" + one + "o\x03\x00\x00\x00", "\x04\x00\x00\x00\x00\x00\x00\x00npu", ""},
		{"an error", "\x09param_get\x02b\x01\x00\x00\x00xo\x01\x00\x00\x00", "\xd4\xff\xff\xff\xff\xff\xff\xff\x00", ""},
		{"a pointer alone", "\x0ainput_read\x03" + zero + "p\x03\x00\x00\x00" + "i\x03\x00\x00\x00\x00\x00\x00\x00", "\x05\x00\x00\x00\x00\x00\x00\x00inp", ""},
		{"the end", "\x04done\x01" + one, "\x00\x00\x00\x00\x00\x00\x00\x00", ""},
		{"no such function", "\x04open\x00", "", `no function "open" with 0 parameters`},
		{"too few parameters", "\x0ainput_read\x01" + one, "", `no function "input_read" with 1 parameters`},
		{"too many parameters", "\x09input_len\x01" + one, "", `no function "input_len" with 1 parameters`},
		{"the end of nothing", "\x04done\x00", "", "done has 1 parameter"},
		{"a tag that is none", "\x09input_len\x01x", "", "not what the SDK writes"},
		{"an argument cut off", "\x03log\x02" + one + "b\x09\x00\x00\x00hi", "", "not what the SDK writes"},
		{"more than its arguments", "\x09input_len\x00rest", "", "not what the SDK writes"},
		{"too many arguments", "\x03log\x14" + strings.Repeat(one, 20), "", "not what the SDK writes"},
		{"a buffer beyond measure", "\x0ainput_read\x02" + one + "o\xff\xff\xff\xff", "", "not what the SDK writes"},
		{"a pointer of its own", "\x0ainput_read\x03" + zero + zero + "i\xff\xff\xff\xff\x00\x00\x00\x00", "", "outside the memory"},
		{"nothing", "", "", "not what the SDK writes"},
	} {
		request := append(binary.LittleEndian.AppendUint32(nil, uint32(len(tt.request))), tt.request...)
		answer, ended, b := serve(request)
		if string(answer) != tt.answer || (tt.ended == "") != (ended == "") || !strings.Contains(ended, tt.ended) {
			t.Errorf("%s: answer %q, ended %q; want %q, %q", tt.name, answer, ended, tt.answer, tt.ended)
		}
		if tt.name == "the end" && (b == nil || !b.done || b.status != 1) {
			t.Errorf("the end: %+v", b)
		}
	}
	if _, ended, _ := serve(binary.LittleEndian.AppendUint32(nil, maxRequest+1)); !strings.Contains(ended, "print writes to the log") {
		t.Errorf("a request beyond measure: %q", ended)
	}
	if answer, ended, _ := serve([]byte{9, 0, 0}); len(answer) > 0 || ended != "" {
		t.Errorf("a part of a request: %q, %q", answer, ended)
	}
}
