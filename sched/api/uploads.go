package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

const (
	// maxUploadsOfApp bounds the uploads of an app: one is in the upload verifier, and
	// one waits behind it.
	maxUploadsOfApp = 2
	// maxUploads bounds the uploads of all apps together, and so the disk space that they
	// need.
	maxUploads = 8
)

// uploads admits uploads and orders them: only one upload of an app is in the upload
// verifier at a time, so that apps take turns there. It is safe for concurrent use.
type uploads struct {
	// blobs is locked for reading from the time that the bytes of an upload are stored
	// until a version names them. It is locked for writing while bytes are removed that
	// no version names. Otherwise a collection could remove the bytes of an upload.
	blobs sync.RWMutex

	mu   sync.Mutex
	apps map[string]*appUploads // of apps with admitted uploads
	all  int                    // admitted uploads
}

// appUploads has the admitted uploads of one app.
type appUploads struct {
	n    int           // admitted uploads
	turn chan struct{} // capacity 1: the upload that has put in a token is in the verifier
}

// admit admits an upload before any of its bytes are read, or fails with
// ResourceExhausted. The caller calls leave at the end of the upload.
func (u *uploads) admit(app string) (of *appUploads, leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of = u.apps[app]
	switch {
	case of != nil && of.n >= maxUploadsOfApp:
		return nil, nil, busy(10*time.Second, "an upload of app %s is looked at and another one waits: try again when one of them has ended", app)
	case u.all >= maxUploads:
		return nil, nil, busy(time.Minute, "%d uploads of all apps wait or are looked at, the limit of a server: try again in a minute", u.all)
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

// busy returns the error for an upload that exceeds a limit. after is when a retry may
// succeed.
func busy(after time.Duration, format string, args ...any) error {
	return core.Refused(codes.ResourceExhausted, fmt.Sprintf(format, args...), &apiv1.Refusal{Reason: core.ReasonBusy, RetryAfterS: int32(after.Seconds())})
}

// enter waits for the app's turn in the upload verifier. The caller calls leave
// afterwards.
func (a *appUploads) enter(ctx context.Context) (leave func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
