package sched

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

const (
	// maxUploadsOfApp: one is in the gate, and one waits behind it.
	maxUploadsOfApp = 2
	// maxUploads bounds those of all apps together, and with them what they take of
	// the disk.
	maxUploads = 8
)

// uploads admits uploads and orders them: one of an app is in the gate at a time,
// so that apps take turns there.
type uploads struct {
	// blobs is held for reading from the moment an upload's bytes are kept until a
	// version names them, and for writing while bytes are dropped that no version
	// names: else a collection could take the bytes of an upload.
	blobs sync.RWMutex

	mu   sync.Mutex
	apps map[string]*appUploads // of apps with uploads that were admitted
	all  int                    // uploads that were admitted
}

// appUploads are the uploads of one app.
type appUploads struct {
	n    int           // that were admitted
	turn chan struct{} // capacity 1: the upload that has put in a token is in the gate
}

// admit lets an upload in, before any of its bytes are read, or says why not. The
// caller ends it with leave.
func (u *uploads) admit(app string) (of *appUploads, leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of = u.apps[app]
	switch {
	case of != nil && of.n >= maxUploadsOfApp:
		return nil, nil, status.Errorf(codes.ResourceExhausted, "an upload of app %s is looked at and another one waits: try again when one of them has ended", app)
	case u.all >= maxUploads:
		return nil, nil, status.Errorf(codes.ResourceExhausted, "%d uploads of all apps wait or are looked at, the limit of a server: try again in a minute", u.all)
	case of == nil:
		of = &appUploads{turn: make(chan struct{}, 1)}
		if u.apps == nil {
			u.apps = map[string]*appUploads{}
		}
		u.apps[app] = of
	}
	of.n++
	u.all++
	return of, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.all--
		if of.n--; of.n == 0 {
			delete(u.apps, app)
		}
	}, nil
}

// enter waits for the app's turn in the upload gate.
func (a *appUploads) enter(ctx context.Context) (leave func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// receive writes the bytes of an upload to the disk.
func receive(stream apiv1.Modules_PushModuleServer, to *modules.Upload) error {
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		chunk := part.GetChunk()
		if to.Size()+int64(len(chunk)) > modules.MaxBytes {
			return status.Errorf(codes.InvalidArgument, "the module is larger than %d MiB, which is the limit", modules.MaxBytes>>20)
		}
		if _, err := to.Write(chunk); err != nil {
			return status.Error(codes.ResourceExhausted, err.Error())
		}
	}
}
