package fault

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/history"
)

// tap observes one connection between a host and a server, and records which tasks go to
// the host and which of them it executes. It parses HTTP/2: frames whose data are gRPC
// messages. It recognises the stream of the host's session by its first message, the
// hello.
type tap struct {
	to *wire

	mu       sync.Mutex
	preface  int // bytes of the client's preface that are still to come
	up, down frames
	session  string          // set by the host's hello
	work     uint32          // the stream of the session
	other    map[uint32]bool // the other streams
}

// wire holds the observations of all taps.
type wire struct {
	mu         sync.Mutex
	dispatches []history.Dispatch
	at         map[dispatch]int
	names      map[string]string // host names, by the session of one life of its process
	err        error             // the first error of a tap
}

type dispatch struct {
	host, run string
	attempt   int
	epoch     uint64
}

// crockford is the alphabet of run ids.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

func runID(run []byte) string { return crockford.EncodeToString(run) }

func newWire() *wire { return &wire{at: map[dispatch]int{}, names: map[string]string{}} }

func (w *wire) tap() *tap { return &tap{to: w, preface: 24, other: map[uint32]bool{}} }

// heard returns the tasks that were sent to hosts so far.
func (w *wire) heard() ([]history.Dispatch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]history.Dispatch(nil), w.dispatches...), w.err
}

func (w *wire) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// hearUp takes bytes from the host. It returns the name of the host when they contain its
// hello.
func (t *tap) hearUp(b []byte) (who string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	skip := min(t.preface, len(b))
	t.preface -= skip
	t.up.feed(b[skip:], func(stream uint32, message []byte, err error) {
		if t.other[stream] {
			return
		}
		if err != nil {
			t.to.fail(err)
			return
		}
		m := &apiv1.WorkUp{}
		if proto.Unmarshal(message, m) != nil || stream != t.work && (m.GetHello().GetSession() == "" || len(m.ProtoReflect().GetUnknown()) > 0) {
			t.other[stream] = true
			return
		}
		if h := m.Hello; h != nil {
			t.work, t.session, who = stream, h.Session, h.Name
			t.to.named(h.Session, h.Name)
			for _, r := range h.Running {
				t.to.taken(dispatch{t.session, runID(r.Run), int(r.Attempt), r.Epoch})
			}
		}
		for _, r := range m.Results {
			t.to.taken(dispatch{t.session, runID(r.Run), int(r.Attempt), r.Epoch})
		}
	})
	return who
}

// hearDown takes bytes from the server.
func (t *tap) hearDown(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down.feed(b, func(stream uint32, message []byte, err error) {
		if stream != t.work {
			return
		}
		m := &apiv1.WorkDown{}
		if err == nil {
			err = proto.Unmarshal(message, m)
		}
		if err != nil {
			t.to.fail(err)
			return
		}
		for _, task := range m.Tasks {
			t.to.sent(dispatch{t.session, runID(task.Run), int(task.Attempt), task.Epoch}, task.App)
		}
	})
}

func (w *wire) sent(d dispatch, app string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, again := w.at[d]; again {
		return
	}
	w.at[d] = len(w.dispatches)
	w.dispatches = append(w.dispatches, history.Dispatch{Host: d.host, Group: app, Run: d.run, Attempt: d.attempt, Epoch: d.epoch})
}

func (w *wire) named(session, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[session] = name
}

// holds returns how many of the latest 200 tasks were sent to a host that has not
// reported on them.
func (w *wire) holds(host string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.dispatches[max(0, len(w.dispatches)-200):] {
		if w.names[d.Host] == host && !d.Taken {
			n++
		}
	}
	return n
}

func (w *wire) taken(d dispatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := w.at[d]; ok {
		w.dispatches[i].Taken = true
	}
}

// frames splits one direction of a connection into the messages of its streams.
type frames struct {
	buf     []byte            // of an incomplete frame
	partial map[uint32][]byte // of an incomplete message, by stream
}

const (
	dataFrame   = 0
	endOfStream = 0x1
	padded      = 0x8
)

// feed calls each with every complete message.
func (f *frames) feed(b []byte, each func(stream uint32, message []byte, err error)) {
	f.buf = append(f.buf, b...)
	for len(f.buf) >= 9 {
		size := int(f.buf[0])<<16 | int(f.buf[1])<<8 | int(f.buf[2])
		if len(f.buf) < 9+size {
			break
		}
		kind, flags, stream := f.buf[3], f.buf[4], binary.BigEndian.Uint32(f.buf[5:])&(1<<31-1)
		body := f.buf[9 : 9+size]
		if kind == dataFrame {
			if flags&padded != 0 && len(body) > 0 && int(body[0]) < len(body) {
				body = body[1 : len(body)-int(body[0])]
			}
			f.data(stream, body, each)
			if flags&endOfStream != 0 {
				delete(f.partial, stream)
			}
		}
		f.buf = f.buf[9+size:]
	}
	if len(f.buf) == 0 {
		f.buf = nil
	}
}

func (f *frames) data(stream uint32, body []byte, each func(uint32, []byte, error)) {
	if f.partial == nil {
		f.partial = map[uint32][]byte{}
	}
	p := append(f.partial[stream], body...)
	for len(p) >= 5 {
		size := int(binary.BigEndian.Uint32(p[1:]))
		if p[0] != 0 {
			each(stream, nil, fmt.Errorf("stream %d has a compressed message, which nobody can read here", stream))
		} else if len(p) >= 5+size {
			each(stream, p[5:5+size], nil)
		}
		if len(p) < 5+size {
			break
		}
		p = p[5+size:]
	}
	f.partial[stream] = p
}
