package fault

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/history"
)

// sender is a server that sends tasks to each host that joins.
type sender struct {
	apiv1.UnimplementedWorkerServer
	tasks []*apiv1.Task
	got   chan *apiv1.WorkUp
}

func (s *sender) Work(stream apiv1.Worker_WorkServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&apiv1.WorkDown{Welcome: &apiv1.Welcome{Server: "s", Epoch: 4}}); err != nil {
		return err
	}
	for _, m := range s.tasks {
		if err := stream.Send(&apiv1.WorkDown{Tasks: []*apiv1.Task{m}}); err != nil {
			return err
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		s.got <- m
	}
}

// FetchModule sends bytes that a tap could mistake for a task.
func (s *sender) FetchModule(_ *apiv1.FetchModuleRequest, stream apiv1.Worker_FetchModuleServer) error {
	return stream.Send(&apiv1.ModuleChunk{Data: bytes.Repeat([]byte{1}, 100_000)})
}

func id(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }

// TestTap observes a session of a real client with a real server.
func TestTap(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{got: make(chan *apiv1.WorkUp), tasks: []*apiv1.Task{
		{Run: id(1), App: "a", Attempt: 1, Epoch: 4},
		{Run: id(2), App: "a", Attempt: 2, Epoch: 4, Input: bytes.Repeat([]byte("x"), 200_000)}, // over many frames
		{Run: id(3), App: "b", Attempt: 1, Epoch: 5},
		{Run: id(1), App: "a", Attempt: 1, Epoch: 4}, // once more
	}}
	server := grpc.NewServer()
	apiv1.RegisterWorkerServer(server, s)
	go server.Serve(ln) //nolint:errcheck // it is stopped
	defer server.Stop()
	w := newWire()
	l := newLink(t, ln.Addr().String(), w.tap)
	conn, err := grpc.NewClient(l.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test's
	c := apiv1.NewWorkerClient(conn)
	for _, digest := range []string{"", "sha256:0", strings.Repeat("\n", 30)} { // the last one looks like a hello
		chunks, err := c.FetchModule(ctx, &apiv1.FetchModuleRequest{Digest: digest})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, reader{chunks}); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := c.Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&apiv1.WorkUp{Hello: &apiv1.Hello{Host: "host-1", Name: "h", Session: "life", Running: []*apiv1.Running{{Run: id(9)}}}}); err != nil {
		t.Fatal(err)
	}
	for range len(s.tasks) + 1 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Send(&apiv1.WorkUp{Results: []*apiv1.TaskResult{{Run: id(3), App: "b", Attempt: 1, Epoch: 5}, {Run: id(1), App: "a", Attempt: 2, Epoch: 4}}}); err != nil {
		t.Fatal(err)
	}
	<-s.got
	got, err := w.heard()
	if err != nil {
		t.Fatal(err)
	}
	want := []history.Dispatch{
		{Host: "life", Group: "a", Run: runID(id(1)), Attempt: 1, Epoch: 4},
		{Host: "life", Group: "a", Run: runID(id(2)), Attempt: 2, Epoch: 4},
		{Host: "life", Group: "b", Run: runID(id(3)), Attempt: 1, Epoch: 5, Taken: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("heard %+v, want %+v", got, want)
	}

	// The link knows the host by now, so it can be cut for this host alone.
	l.sever(loud, "another")
	if err := stream.Send(&apiv1.WorkUp{Credits: 1}); err != nil {
		t.Fatal(err)
	}
	if m := <-s.got; m.Credits != 1 {
		t.Errorf("the server got %v", m)
	}
	l.sever(loud, "h")
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if err == io.EOF {
		t.Error("the stream ended in order")
	}
}

type reader struct {
	stream grpc.ServerStreamingClient[apiv1.ModuleChunk]
}

func (r reader) Read(p []byte) (int, error) {
	m, err := r.stream.Recv()
	return copy(p, m.GetData()), err
}

// TestFramesInPieces feeds a direction in small pieces, with padding and with several
// messages in a frame.
func TestFramesInPieces(t *testing.T) {
	message := func(s string) []byte { return append([]byte{0, 0, 0, 0, byte(len(s))}, s...) }
	frame := func(kind, flags, stream byte, body []byte) []byte {
		return append([]byte{0, 0, byte(len(body)), kind, flags, 0, 0, 0, stream}, body...)
	}
	two := append(message("one"), message("two")...)
	all := slices.Concat(
		frame(4, 0, 0, []byte("settings")),
		frame(dataFrame, 0, 1, two[:6]),
		frame(dataFrame, 0, 3, message("other")),
		frame(dataFrame, padded, 1, append(append([]byte{2}, two[6:]...), 0, 0)),
		frame(dataFrame, endOfStream, 3, message("")),
	)
	for _, step := range []int{1, 2, 7, len(all)} {
		var f frames
		var got []string
		for part := range slices.Chunk(all, step) {
			f.feed(part, func(stream uint32, m []byte, err error) {
				if err != nil {
					t.Error(err)
				}
				got = append(got, string(m)+string(rune('0'+stream)))
			})
		}
		if want := []string{"other3", "one1", "two1", "3"}; !slices.Equal(got, want) {
			t.Errorf("in steps of %d: %q, want %q", step, got, want)
		}
	}
	var f frames
	said := false
	f.feed(frame(dataFrame, 0, 1, []byte{1, 0, 0, 0, 1, 9}), func(_ uint32, _ []byte, err error) { said = err != nil })
	if !said {
		t.Error("a compressed message was taken for one that is not")
	}
}

// TestLink cuts a link in both ways.
func TestLink(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer ln.Close() //nolint:errcheck // a test's
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				io.Copy(c, c) //nolint:errcheck // an echo
				c.Close()     //nolint:errcheck // a test's
			})
		}
	})
	l := newLink(t, ln.Addr().String(), nil)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.address())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // a test's
		return c
	}
	say := func(c net.Conn, word string) {
		t.Helper()
		if _, err := c.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(c net.Conn, word string) {
		t.Helper()
		got := make([]byte, len(word))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
			t.Fatalf("heard %q, %v, want %q", got, err, word)
		}
	}
	old := dial()
	defer old.Close() //nolint:errcheck // a test's
	say(old, "a")
	hear(old, "a")
	l.sever(silent, "")
	fresh := dial()     // it is accepted but not forwarded
	defer fresh.Close() //nolint:errcheck // a test's
	for _, c := range []net.Conn{old, fresh} {
		say(c, "b")
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) //nolint:errcheck // a test's
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || !err.(net.Error).Timeout() {
			t.Errorf("a silent link gave %d bytes, %v", n, err)
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // a test's
	}
	l.heal("")
	hear(old, "b")
	hear(fresh, "b")
	l.sever(loud, "")
	if n, err := old.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("a link that is cut loudly gave %d bytes, %v", n, err)
	}
	if n, err := dial().Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("and a new connection %d bytes, %v", n, err)
	}
	l.heal("")
	again := dial()
	defer again.Close() //nolint:errcheck // a test's
	say(again, "c")
	hear(again, "c")
}
