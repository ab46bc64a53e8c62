package hostabi

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tetratelabs/wazero/experimental/wazerotest"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// subscriptionBytes is the size of a subscription of preview 1.
const subscriptionBytes = 48

// polling calls poll_oneoff.
func polling(t *testing.T, files bool, subscriptions ...[subscriptionBytes]byte) (result uint64, events []string, took time.Duration) {
	t.Helper()
	mem := wazerotest.NewMemory(2 * 65536)
	const in, out, count = 100, 70000, 90000
	for i, s := range subscriptions {
		copy(mem.Bytes[in+i*subscriptionBytes:], s[:])
	}
	c := guest.NewCall(context.Background(), &runtime.Task{}, guest.Discard{}, &guest.Host{Slots: make(chan struct{}, 1)})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p := poll{c: c, mem: mem, layout: subscription1, files: files, in: in, out: out, n: uint32(len(subscriptions))}
	result = p.run(count)
	n, _ := mem.ReadUint32Le(count)
	for i := range n {
		e := mem.Bytes[out+i*eventBytes:]
		events = append(events, fmt.Sprintf("%s/%d/%d", strings.TrimRight(string(e[:8]), "\x00"), e[10], binary.LittleEndian.Uint16(e[8:])))
	}
	return result, events, time.Since(start)
}

// sub returns a subscription with a name of up to eight letters.
func sub(name string, kind byte, fd uint32, wait int64, flags uint16) (s [subscriptionBytes]byte) {
	copy(s[:8], name)
	s[8] = kind
	binary.LittleEndian.PutUint32(s[16:], fd)
	binary.LittleEndian.PutUint64(s[24:], uint64(wait))
	binary.LittleEndian.PutUint16(s[40:], flags)
	return s
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := int64(time.Second)
		wall := func(wait int64) [subscriptionBytes]byte {
			return sub("wall", eventClock, clockReal, wait, 1)
		}
		for name, tt := range map[string]struct {
			files  bool
			subs   [][subscriptionBytes]byte
			result uint64
			events string
			took   time.Duration
		}{
			"nothing":           {result: wasiInvalid, events: "[]"},
			"too many":          {subs: make([][subscriptionBytes]byte, maxSubscriptions+1), result: wasiInvalid, events: "[]"},
			"many":              {subs: make([][subscriptionBytes]byte, 3), events: "[/0/0 /0/0 /0/0]"},
			"a while":           {subs: [][subscriptionBytes]byte{sub("a", eventClock, 1, second, 0)}, events: "[a/0/0]", took: time.Second},
			"the first of two":  {subs: [][subscriptionBytes]byte{sub("a", eventClock, 1, 2*second, 0), sub("b", eventClock, 0, second, 0)}, events: "[b/0/0]", took: time.Second},
			"two at once":       {subs: [][subscriptionBytes]byte{sub("a", eventClock, 1, second, 0), sub("b", eventClock, 0, second, 0)}, events: "[a/0/0 b/0/0]", took: time.Second},
			"a wall time":       {subs: [][subscriptionBytes]byte{wall(3 * second)}, events: "[wall/0/0]", took: 3 * time.Second},
			"a time gone by":    {subs: [][subscriptionBytes]byte{wall(-second), sub("b", eventClock, 0, second, 0)}, events: "[wall/0/0]"},
			"input":             {subs: [][subscriptionBytes]byte{sub("late", eventClock, 1, second, 0), sub("in", eventRead, 0, 0, 0)}, events: "[in/1/0]"},
			"output":            {subs: [][subscriptionBytes]byte{sub("out", eventWrite, 2, 0, 0), sub("now", eventClock, 0, 0, 0)}, events: "[out/2/0 now/0/0]"},
			"no such file":      {subs: [][subscriptionBytes]byte{sub("f", eventRead, 7, 0, 0)}, events: "[f/1/8]"},
			"a file":            {files: true, subs: [][subscriptionBytes]byte{sub("f", eventRead, 7, 0, 0)}, events: "[f/1/0]"},
			"another kind":      {subs: [][subscriptionBytes]byte{sub("f", 3, 0, 0, 0)}, result: wasiInvalid, events: "[]"},
			"a clock with more": {subs: [][subscriptionBytes]byte{sub("f", eventClock, 0, 0, 2)}, result: wasiInvalid, events: "[]"},
		} {
			for i, s := range tt.subs {
				if binary.LittleEndian.Uint16(s[40:]) != 1 {
					continue
				}
				binary.LittleEndian.PutUint64(tt.subs[i][24:], uint64(time.Now().UnixNano())+binary.LittleEndian.Uint64(s[24:]))
			}
			result, events, took := polling(t, tt.files, tt.subs...)
			if result != tt.result || fmt.Sprint(events) != tt.events || took != tt.took {
				t.Errorf("%s: %d %v after %v, want %d %s after %v", name, result, events, took, tt.result, tt.events, tt.took)
			}
		}
	})
}

// TestPollOfASteadyTime polls for times of the monotonic clock. That clock counts from the
// start of the process, so the test runs in real time and waits for no time to come.
func TestPollOfASteadyTime(t *testing.T) {
	steady := func(at int64) [subscriptionBytes]byte { return sub("steady", eventClock, 1, at, 1) }
	past, future := steady(guest.Nanotime()), steady(guest.Nanotime()+int64(time.Hour))
	if result, events, _ := polling(t, false, future, past); result != wasiOK || fmt.Sprint(events) != "[steady/0/0]" {
		t.Errorf("a time gone by: %d %v", result, events)
	}
	if wait, errno := subscription1.wait(future[:]); errno != wasiOK || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("an hour ahead: %v, %d", wait, errno)
	}
}

func TestPollOutsideTheMemory(t *testing.T) {
	mem := wazerotest.NewMemory(65536)
	c := guest.NewCall(context.Background(), &runtime.Task{}, guest.Discard{}, &guest.Host{Slots: make(chan struct{}, 1)})
	for _, p := range []poll{{in: 65530, n: 1}, {out: 65530, n: 1}, {in: 0xffffffff, n: 1}} {
		p.c, p.mem, p.layout = c, mem, subscription1
		if got := p.run(100); got != wasiFault {
			t.Errorf("in %d out %d: %d", p.in, p.out, got)
		}
	}
	p := poll{c: c, mem: mem, layout: subscription1, n: 1}
	if got := p.run(65533); got != wasiFault {
		t.Errorf("a count outside: %d", got)
	}
}

func TestReadStdin(t *testing.T) {
	mem := wazerotest.NewMemory(65536)
	c := guest.NewCall(context.Background(), &runtime.Task{}, guest.Discard{}, &guest.Host{Slots: make(chan struct{}, 1)})
	c.SetInput([]byte("hello, vectors"))
	vectors := func(list ...uint32) (at, n uint32) {
		for i, v := range list {
			mem.WriteUint32Le(1000+4*uint32(i), v)
		}
		return 1000, uint32(len(list) / 2)
	}
	read := func(list ...uint32) (result uint64, got uint32) {
		at, n := vectors(list...)
		result = readStdin(c, mem, 0, at, n, 8)
		got, _ = mem.ReadUint32Le(8)
		return result, got
	}
	if result, got := read(100, 3, 200, 0, 300, 4); result != wasiOK || got != 7 || string(mem.Bytes[100:103])+string(mem.Bytes[300:304]) != "hello, " {
		t.Errorf("first: %d, %d bytes", result, got)
	}
	if result, got := read(100, 5, 300, 50); result != wasiOK || got != 7 || string(mem.Bytes[100:105])+string(mem.Bytes[300:302]) != "vectors" {
		t.Errorf("second: %d, %d bytes", result, got)
	}
	if result, got := read(100, 5); result != wasiOK || got != 0 {
		t.Errorf("at the end: %d, %d bytes", result, got)
	}
	if result, _ := read(65530, 10); result != wasiFault {
		t.Errorf("outside: %d", result)
	}
	for fd, want := range map[uint32]uint64{1: wasiNoSys, 2: wasiNoSys, 3: wasiBadFD, 0xffffffff: wasiBadFD} {
		if got := readStdin(c, mem, fd, 0, 0, 8); got != want {
			t.Errorf("file descriptor %d: %d, want %d", fd, got, want)
		}
	}
	if got := readStdin(c, mem, 0, 0, maxVectors+1, 8); got != wasiInvalid {
		t.Errorf("too many vectors: %d", got)
	}
	if got := readStdin(c, mem, 0, 0, 0, 65534); got != wasiFault {
		t.Errorf("a count outside: %d", got)
	}
}
