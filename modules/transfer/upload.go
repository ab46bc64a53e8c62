package transfer

import (
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

// minRate is the least mean rate of an upload, in bytes a second. grace is the time that
// each upload has in addition.
const (
	minRate = 4 << 10
	grace   = 30 * time.Second
)

// Push sends the head of an upload and the bytes of the module in chunks of at most
// chunkBytes, and returns the server's answer. It returns an error of from as it is.
func Push(stream grpc.ClientStreamingClient[apiv1.PushModuleRequest, apiv1.PushModuleResponse], head *apiv1.PushModuleRequest_Head, from io.Reader, chunkBytes int) (*apiv1.PushModuleResponse, error) {
	m := &apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: head}}
	chunk := make([]byte, chunkBytes)
	for {
		if err := stream.Send(m); errors.Is(err, io.EOF) {
			break // the server has answered already; CloseAndRecv returns the answer
		} else if err != nil {
			return nil, err
		}
		n, err := readFull(from, chunk)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		m = &apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Chunk{Chunk: chunk[:n]}}
	}
	return stream.CloseAndRecv()
}

// readFull fills p, or as much of it as there is. Unlike io.ReadFull it tells the end of a
// module from a reader that was cut off.
func readFull(from io.Reader, p []byte) (n int, err error) {
	for n < len(p) {
		got, err := from.Read(p[n:])
		n += got
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Receive writes the bytes of an upload, whose head was received, to the disk. Its errors
// are for the uploader. It refuses an upload that is slower than minRate, because a pending
// upload prevents the server from admitting others.
func Receive(stream grpc.ClientStreamingServer[apiv1.PushModuleRequest, apiv1.PushModuleResponse], to *modules.Upload) error {
	parts, stop := readParts(stream)
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for begin := time.Now(); ; {
		select {
		case p := <-parts:
			if errors.Is(p.err, io.EOF) {
				return nil
			}
			if p.err != nil {
				return p.err
			}
			_, err := to.Write(p.chunk)
			switch {
			case errors.Is(err, modules.ErrTooLarge):
				return status.Error(codes.InvalidArgument, err.Error())
			case err != nil:
				return status.Error(codes.ResourceExhausted, err.Error())
			}
		case <-tick.C:
			if time.Since(begin) > grace+time.Duration(to.Size()/minRate)*time.Second {
				return status.Errorf(codes.DeadlineExceeded, "the upload is slower than %d bytes a second: send it over a better connection, or make it smaller", minRate)
			}
		}
	}
}

// part is a message of an upload, or the error of its stream.
type part struct {
	chunk []byte
	err   error
}

// readParts reads a stream in a goroutine, up to its first error or until the caller calls
// stop. A Recv that waits at that time returns when the gRPC call ends.
func readParts(stream grpc.ClientStreamingServer[apiv1.PushModuleRequest, apiv1.PushModuleResponse]) (<-chan part, func()) {
	parts, done := make(chan part), make(chan struct{})
	go func() {
		for {
			m, err := stream.Recv()
			select {
			case parts <- part{m.GetChunk(), err}:
			case <-done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return parts, func() { close(done) }
}
