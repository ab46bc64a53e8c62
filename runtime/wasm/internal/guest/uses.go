package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// Uses is the use of services by one task.
type Uses struct {
	Enqueued  int // successful enqueues. A failed one may have reached its job, so the next one reuses its number
	Mapped    int // inputs of successful maps
	Responses Responses

	calls  int64
	ctx    context.Context // ends with the task; nil until it is needed
	cancel context.CancelFunc
}

func (u *Uses) close() {
	u.Responses.close()
	if u.cancel != nil {
		u.cancel()
	}
}

// A Response is an open response to a request.
type Response struct {
	Head []byte // JSON
	Body io.ReadCloser
	Err  error // reported after the data that was read with it
}

// Responses are the open responses of one task, by their handles. A handle is never reused,
// so that a closed one cannot refer to another response.
type Responses struct {
	open map[int32]*Response
	last int32 // the handle that was returned last
}

// Len returns the number of open responses.
func (r *Responses) Len() int { return len(r.open) }

// Add stores a response and returns its handle.
func (r *Responses) Add(answer *runtime.Response) (handle int32) {
	head, err := json.Marshal(struct {
		Status  int                 `json:"status"`
		Headers map[string][]string `json:"headers"`
	}{answer.Status, answer.Header})
	if err != nil {
		panic(fmt.Sprintf("numbers and strings do not encode: %v", err))
	}
	if r.open == nil {
		r.open = make(map[int32]*Response)
	}
	r.last++
	r.open[r.last] = &Response{Head: head, Body: answer.Body}
	return r.last
}

// Get returns the response of a handle, or nil.
func (r *Responses) Get(handle int32) *Response { return r.open[handle] }

// Close closes the response of a handle; false: there is none.
func (r *Responses) Close(handle int32) bool {
	x := r.open[handle]
	if x == nil {
		return false
	}
	delete(r.open, handle)
	_ = x.Body.Close() // the guest needs no more of the body
	return true
}

func (r *Responses) close() {
	for _, x := range r.open {
		_ = x.Body.Close() // the rest of the response is not needed
	}
	r.open = nil
}
