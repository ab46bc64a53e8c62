package hostabi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

// requestHead is the JSON of http_send.
type requestHead struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]values `json:"headers"`
}

// values are the values of one header: a string, or a list of strings.
type values []string

// UnmarshalJSON accepts both forms.
func (v *values) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		*v = values{""}
		return json.Unmarshal(text, &(*v)[0])
	}
	return json.Unmarshal(text, (*[]string)(v))
}

func httpSend(c *guest.Call, mem Memory, stack []uint64) {
	text, fits := mem.bytes(stack[0], stack[1], maxHead)
	body, small := mem.bytes(stack[2], stack[3], maxBody)
	if !fits || !small {
		stack[0] = errno(abi.ErrnoOverflow)
		return
	}
	if c.Uses.Responses.Len() >= maxHandles {
		stack[0] = errno(abi.ErrnoHandles)
		return
	}
	var head requestHead
	if err := manifest.Decode(text, &head); err != nil {
		stack[0] = errno(c.Refused(mem.function, fmt.Errorf("%w: the head: %s", runtime.ErrInvalid, oneline.Printable(err.Error()))))
		return
	}
	request := runtime.Request{Method: cmp.Or(head.Method, "GET"), URL: head.URL, Header: make(map[string][]string, len(head.Headers)), Body: body}
	for name, v := range head.Headers {
		request.Header[name] = v
	}
	if e := allowed(c, mem.function, request); e != 0 {
		stack[0] = errno(e)
		return
	}
	var answer *runtime.Response
	e := c.Ask(mem.function, func(ctx context.Context, s runtime.Services) (err error) {
		answer, err = s.Send(ctx, c.Task, request)
		return err
	})
	if e != 0 {
		stack[0] = errno(e)
		return
	}
	stack[0] = result(c.Uses.Responses.Add(answer))
}

func httpHead(c *guest.Call, mem Memory, stack []uint64) {
	x := c.Uses.Responses.Get(handle(stack[0]))
	if x == nil {
		stack[0] = errno(abi.ErrnoBadHandle)
		return
	}
	stack[0] = mem.give(stack[1], stack[2], x.Head)
}

func httpRecv(c *guest.Call, mem Memory, stack []uint64) {
	x := c.Uses.Responses.Get(handle(stack[0]))
	if x == nil {
		stack[0] = errno(abi.ErrnoBadHandle)
		return
	}
	into := mem.read(stack[1], stack[2])
	if len(into) == 0 {
		stack[0] = errno(abi.ErrnoInvalid) // 0 would mean the end of the body
		return
	}
	// A buffer, not the guest's memory, because a transport may retain the slice.
	buf := make([]byte, min(len(into), maxReceive))
	n := 0
	e := c.Ask(mem.function, func(context.Context, runtime.Services) (err error) {
		for n == 0 && x.Err == nil {
			n, x.Err = x.Body.Read(buf)
		}
		if n > 0 || errors.Is(x.Err, io.EOF) {
			return nil
		}
		return x.Err
	})
	if e != 0 {
		stack[0] = errno(e)
		return
	}
	stack[0] = result(int32(copy(into, buf[:n])))
}

func httpClose(c *guest.Call, _ Memory, stack []uint64) {
	if !c.Uses.Responses.Close(handle(stack[0])) {
		stack[0] = errno(abi.ErrnoBadHandle)
		return
	}
	stack[0] = 0
}

func handle(v uint64) int32 { return int32(uint32(v)) }

// allowed checks a request against the grants. The service that sends the request checks
// again, for the address that it dials and for every redirect.
func allowed(c *guest.Call, name string, r runtime.Request) abi.Errno {
	u, err := url.Parse(r.URL)
	if err != nil {
		return c.Refused(name, fmt.Errorf("%w: the address is malformed", runtime.ErrInvalid))
	}
	if c.Task.Grants.Request(r.Method, u) == nil {
		return c.Refused(name, fmt.Errorf("%s: %w", oneline.Printable(fmt.Sprintf("%.20s %.40s://%.200s%.200s", r.Method, u.Scheme, u.Host, u.EscapedPath())), runtime.ErrNotGranted))
	}
	for _, list := range r.Header {
		for _, value := range list {
			for _, m := range secretName.FindAllStringSubmatch(value, -1) {
				if !c.Task.Grants.Secret(m[1]) {
					return c.Refused(name, fmt.Errorf("%s: %w", oneline.Printable(fmt.Sprintf("the secret %.60q", m[1])), runtime.ErrNotGranted))
				}
			}
		}
	}
	return 0
}

// secretName matches a placeholder that the host replaces in a header's value.
var secretName = regexp.MustCompile(`\{\{secret:([^{}]*)\}\}`)
