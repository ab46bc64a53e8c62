package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
)

const (
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 30 * time.Second
	// settled is how long a process has to live to be none that cannot start.
	settled = time.Minute
	// soon is a wait that tasks wait for. When it is longer they fail, so that
	// they can go to another host.
	soon = 500 * time.Millisecond
)

// backoff returns how long to wait before the next start, from the wait before
// the last one and how long that process lived.
func backoff(last, lived time.Duration) time.Duration {
	if last == 0 || lived >= settled {
		return firstBackoff
	}
	return min(2*last, longestBackoff)
}

// supervise keeps one process of a plugin running until ctx ends.
func (p *plugin) supervise(ctx context.Context) {
	var wait time.Duration
	for {
		start := time.Now()
		i, err := p.launch(ctx)
		if err == nil {
			p.log.Info("plugin ready", "pid", i.child.PID(), "version", i.about.Version, "sha256", i.digest, "handlers", i.about.Handlers, "concurrency", i.limit)
			p.join(i)
			err = p.watch(ctx, i)
			p.leave(i, err)
			i.close(err)
		} else {
			p.leave(nil, err)
		}
		if ctx.Err() == nil {
			wait = backoff(wait, time.Since(start))
			p.log.Error("plugin ended", "error", err, "again_in", wait)
			p.pause(ctx, wait)
		}
		if ctx.Err() != nil {
			p.leave(nil, errClosing)
			p.hope(-1)
			return
		}
	}
}

// pause waits for the next start.
func (p *plugin) pause(ctx context.Context, wait time.Duration) {
	if wait > soon {
		p.hope(-1)
		defer p.hope(+1)
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

func (p *plugin) hope(n int) {
	p.mu.Lock()
	p.hopeful += n
	p.changedLocked()
	p.turn(p.up && (p.hopeful > 0 || len(p.ready) > 0))
}

// turn sets whether the plugin is up and gives mu, which the caller holds, back.
func (p *plugin) turn(up bool) {
	turned := p.up != up
	p.up = up
	p.mu.Unlock()
	if turned {
		p.turned()
	}
}

// join lets tasks go to an instance.
func (p *plugin) join(i *instance) {
	p.mu.Lock()
	p.ready = append(p.ready, i)
	p.changedLocked()
	p.turn(true)
}

// leave lets no more tasks go to an instance, which may not have come to be.
func (p *plugin) leave(i *instance, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = slices.DeleteFunc(p.ready, func(r *instance) bool { return r == i })
	if why != nil {
		p.down = why
	}
}

// maxUnhealthy is how many health checks in a row may fail.
const maxUnhealthy = 3

// watch returns when an instance has to end, and why; nil when the host does.
func (p *plugin) watch(ctx context.Context, i *instance) error {
	tick := time.NewTicker(p.spec.HealthEvery)
	defer tick.Stop()
	health := grpc_health_v1.NewHealthClient(i.conn)
	unhealthy := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.child.Done():
			i.stream.cancel() // somebody else may hold its end of the connection
			<-i.stream.done   // then its last words are read
			return i.stream.err
		case <-i.stream.done:
			return i.stream.err
		case <-tick.C:
		}
		check, cancel := context.WithTimeout(ctx, p.spec.HealthEvery)
		answer, err := health.Check(check, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
		cancel()
		if err == nil && answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("it says that it is %s", answer.Status)
		}
		if err == nil {
			unhealthy = 0
			continue
		}
		if unhealthy++; unhealthy == maxUnhealthy {
			select {
			case <-i.child.Done(): // that is why it did not answer
			default:
				return fmt.Errorf("it did not pass %d health checks: %w", unhealthy, err)
			}
		}
	}
}

// errClosing is why the instances of a host that ends are closed.
var errClosing = errors.New("the host is shutting down")
