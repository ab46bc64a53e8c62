package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

func fetchModule(ctx context.Context, from apiv1.WorkerClient, to *modules.Store, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := from.FetchModule(ctx, &apiv1.FetchModuleRequest{Digest: digest})
	if err != nil {
		return err
	}
	var code bytes.Buffer
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		code.Write(chunk.GetData())
	}
	if got := modules.Digest(code.Bytes()); got != digest {
		return fmt.Errorf("the server sent other bytes: %s", got)
	}
	_, err = to.Put(code.Bytes())
	return err
}
