package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

// ChunkBytes is the size of the chunks in which a module is sent, in bytes. It is the limit
// of the API.
const ChunkBytes = 1 << 20

// Send calls send for each chunk of a module, up to the first error.
func Send(code []byte, send func(chunk []byte) error) error {
	for chunk := range slices.Chunk(code, ChunkBytes) {
		if err := send(chunk); err != nil {
			return err
		}
	}
	return nil
}

// A Source is a server that has modules.
type Source interface {
	FetchModule(context.Context, *apiv1.FetchModuleRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[apiv1.ModuleChunk], error)
}

// Fetch returns the bytes of the module that has the digest.
func Fetch(ctx context.Context, from Source, digest string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx) // ends a stream that is not read to its end
	defer cancel()
	stream, err := from.FetchModule(ctx, &apiv1.FetchModuleRequest{Digest: digest})
	if err != nil {
		return nil, err
	}
	var code []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		code = append(code, m.GetData()...)
		if err := modules.CheckSize(int64(len(code))); err != nil {
			return nil, err
		}
	}
	if got := modules.Digest(code); got != digest {
		return nil, fmt.Errorf("the server sent %s", got)
	}
	return code, nil
}
