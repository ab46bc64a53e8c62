package sdk

import (
	"context"
	"errors"
	"io"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Backup writes a backup of the server to w, in the format that `wheelwork restore`
// reads. It contains everything that was acknowledged before the call, and the server's
// keys. After an error the bytes in w are not a valid backup.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.backups.Backup(ctx, &apiv1.BackupRequest{})
	for err == nil {
		var chunk *apiv1.BackupChunk
		if chunk, err = stream.Recv(); err == nil {
			if _, err := w.Write(chunk.GetData()); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return c.callError(ctx, "back up the server", err)
}
