package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
)

// source is a server that answers every request with chunks and an error.
type source struct {
	grpc.ServerStreamingClient[apiv1.ModuleChunk]
	chunks [][]byte
	err    error // io.EOF: the end
	ctx    context.Context
}

func (s *source) FetchModule(ctx context.Context, _ *apiv1.FetchModuleRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[apiv1.ModuleChunk], error) {
	s.ctx = ctx
	return s, nil
}

func (s *source) Recv() (*apiv1.ModuleChunk, error) {
	if len(s.chunks) == 0 {
		return nil, s.err
	}
	chunk := s.chunks[0]
	s.chunks = s.chunks[1:]
	return &apiv1.ModuleChunk{Data: chunk}, nil
}

// TestSendAndFetch sends modules in chunks of the API's limit and fetches them again.
func TestSendAndFetch(t *testing.T) {
	for _, size := range []int{0, 1, transfer.ChunkBytes, transfer.ChunkBytes + 1, 5*transfer.ChunkBytes - 7} {
		code := bytes.Repeat([]byte{byte(size), 1, 2}, size/3+1)[:size]
		s := &source{err: io.EOF}
		err := transfer.Send(code, func(chunk []byte) error {
			if len(chunk) > transfer.ChunkBytes {
				t.Errorf("a chunk has %d bytes", len(chunk))
			}
			s.chunks = append(s.chunks, chunk)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := transfer.Fetch(t.Context(), s, modules.Digest(code))
		if err != nil || !bytes.Equal(got, code) {
			t.Errorf("%d bytes came back as %d: %v", size, len(got), err)
		}
		if s.ctx.Err() == nil {
			t.Error("the stream is open after the end")
		}
	}
}

func TestSendStopsAtAnError(t *testing.T) {
	broken, calls := errors.New("broken"), 0
	err := transfer.Send(make([]byte, 3*transfer.ChunkBytes), func([]byte) error {
		calls++
		return broken
	})
	if !errors.Is(err, broken) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestFetchRefuses fetches from servers that send too much, other bytes, or an error.
func TestFetchRefuses(t *testing.T) {
	lost := status.Error(codes.Unavailable, "gone")
	digest := modules.Digest([]byte("code"))
	for name, tt := range map[string]struct {
		source source
		want   string
	}{
		"without end":      {source{chunks: slices.Repeat([][]byte{make([]byte, 1<<20)}, 300), err: io.EOF}, "larger than 256 MiB"},
		"other bytes":      {source{chunks: [][]byte{[]byte("coda")}, err: io.EOF}, "the server sent " + modules.Digest([]byte("coda"))},
		"a part":           {source{chunks: [][]byte{[]byte("co")}, err: lost}, "gone"},
		"nothing":          {source{err: io.EOF}, "the server sent sha256:e3b0"},
		"an error at once": {source{err: lost}, "gone"},
	} {
		code, err := transfer.Fetch(t.Context(), &tt.source, digest)
		if err == nil || !strings.Contains(err.Error(), tt.want) || code != nil {
			t.Errorf("%s: %d bytes, %v; want an error with %q", name, len(code), err, tt.want)
		}
		if tt.source.ctx.Err() == nil {
			t.Errorf("%s: the stream is open after the error", name)
		}
	}
}

// server is the server's side of an upload, which answers after a number of messages.
type server struct {
	grpc.ClientStreamingClient[apiv1.PushModuleRequest, apiv1.PushModuleResponse]
	takes    int
	head     *apiv1.PushModuleRequest_Head
	received []byte
	most     int // bytes of a chunk
}

func (s *server) Send(m *apiv1.PushModuleRequest) error {
	if s.takes == 0 {
		return io.EOF
	}
	s.takes--
	if h := m.GetHead(); h != nil {
		s.head = h
	}
	s.received = append(s.received, m.GetChunk()...)
	s.most = max(s.most, len(m.GetChunk()))
	return nil
}

func (s *server) CloseAndRecv() (*apiv1.PushModuleResponse, error) {
	return &apiv1.PushModuleResponse{Result: "created"}, nil
}

func TestPush(t *testing.T) {
	head := &apiv1.PushModuleRequest_Head{Name: "m"}
	code := bytes.Repeat([]byte("wheel"), 1000)
	for name, from := range map[string]io.Reader{
		"at once":         bytes.NewReader(code),
		"byte for byte":   iotest.OneByteReader(bytes.NewReader(code)),
		"end with a part": iotest.DataErrReader(bytes.NewReader(code)),
	} {
		s := &server{takes: 1000}
		answer, err := transfer.Push(s, head, from, 64)
		if err != nil || answer.GetResult() != "created" || s.head != head || !bytes.Equal(s.received, code) || s.most != 64 {
			t.Errorf("%s: %v %v, %d bytes in chunks of %d, head %v", name, answer, err, len(s.received), s.most, s.head)
		}
	}
	early := &server{takes: 3}
	if answer, err := transfer.Push(early, head, bytes.NewReader(code), 64); err != nil || answer.GetResult() != "created" || len(early.received) != 128 {
		t.Errorf("an answer before the end: %v, %v after %d bytes", answer, err, len(early.received))
	}
	// A body that was cut off must not become a module.
	cut := io.MultiReader(bytes.NewReader(code), iotest.ErrReader(io.ErrUnexpectedEOF))
	if answer, err := transfer.Push(&server{takes: 1000}, head, cut, 64); !errors.Is(err, io.ErrUnexpectedEOF) || answer != nil {
		t.Errorf("a body that was cut off: %v, %v", answer, err)
	}
}

// client is the client's side of an upload: it sends chunks of size bytes with pauses.
type client struct {
	grpc.ClientStreamingServer[apiv1.PushModuleRequest, apiv1.PushModuleResponse]
	chunks, size int
	pause        time.Duration
	err          error
	ended        chan struct{} // closed when the call has ended
}

func (c *client) Recv() (*apiv1.PushModuleRequest, error) {
	select {
	case <-time.After(c.pause):
	case <-c.ended:
		return nil, status.Error(codes.Canceled, "the call has ended")
	}
	if c.chunks == 0 {
		return nil, c.err
	}
	c.chunks--
	return &apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Chunk{Chunk: make([]byte, c.size)}}, nil
}

// TestReceive receives uploads of different speeds and sizes.
func TestReceive(t *testing.T) {
	lost := status.Error(codes.Canceled, "gone")
	for name, tt := range map[string]struct {
		client client
		code   codes.Code
		size   int64
	}{
		"complete":              {client{chunks: 10, size: 1000, err: io.EOF}, codes.OK, 10_000},
		"slow but fast enough":  {client{chunks: 100, size: 10_000, pause: 2 * time.Second, err: io.EOF}, codes.OK, 1_000_000},
		"slower than the rate":  {client{chunks: 100, size: 1000, pause: 2 * time.Second, err: io.EOF}, codes.DeadlineExceeded, -1},
		"silent":                {client{pause: time.Hour}, codes.DeadlineExceeded, 0},
		"broken off":            {client{chunks: 3, size: 10, err: lost}, codes.Canceled, 30},
		"of the largest size":   {client{chunks: 64, size: 1 << 20, err: io.EOF}, codes.OK, 64 << 20},
		"larger than the limit": {client{chunks: 65, size: 1 << 20, err: io.EOF}, codes.InvalidArgument, 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := modules.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				to, err := store.NewUpload()
				if err != nil {
					t.Fatal(err)
				}
				defer to.Close() //nolint:errcheck // a test's
				tt.client.ended = make(chan struct{})
				err = transfer.Receive(&tt.client, to)
				close(tt.client.ended)
				if status.Code(err) != tt.code || tt.size >= 0 && to.Size() != tt.size {
					t.Errorf("%v with %d bytes, want %v with %d", err, to.Size(), tt.code, tt.size)
				}
			})
		})
	}
}
