package node

import (
	"context"
	"errors"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// Reload asks a running process to put those settings of Config into effect that need no
// restart, and to read their files again: tokens, certificates, the authority, limits and the
// servers that jobs may call. The process ignores the other settings.
type Reload[C any] struct {
	Config C
	// Done is called once, with nil or with the reason why the process keeps every setting that
	// it had.
	Done func(error)
}

// reloads carries out requests until ctx ends. prepare reads and checks what a request needs,
// and returns the function that puts it into effect, which cannot fail.
func reloads[C any](ctx context.Context, requests <-chan Reload[C], prepare func(C) (func(), error)) error {
	for {
		select {
		case r := <-requests:
			commit, err := prepare(r.Config)
			if err == nil {
				commit()
			}
			r.Done(err)
		case <-ctx.Done():
			return nil
		}
	}
}

// changes are the steps of a reload. All of them take effect, or none.
type changes struct {
	steps []func()
	errs  []error
}

// add adds a step that was prepared, or the reason why it could not be.
func (c *changes) add(step func(), err error) {
	c.steps, c.errs = append(c.steps, step), append(c.errs, err)
}

// commit returns the function that carries out all steps, or an error if one was not prepared.
func (c *changes) commit() (func(), error) {
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return func() {
		for _, step := range c.steps {
			step()
		}
	}, nil
}

// renewListener prepares the certificate and the limits of a listener.
func (c *changes) renewListener(ln *transport.Port, server *transport.Server, cert, key string, limits transport.Limits) {
	if err := credential.CheckKeyFile("--tls-key", key); err != nil {
		c.add(nil, err)
		return
	}
	c.add(ln.Renew(cert, key))
	c.add(func() {
		ln.SetLimits(limits)
		server.SetLimits(limits)
	}, limits.Check())
}
