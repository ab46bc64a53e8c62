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
	// minLifetime is the lifetime after which a process counts as started successfully, so
	// that backoff starts again with its shortest wait.
	minLifetime = time.Minute
	// soon is the longest wait for a start during which tasks wait too. During a longer
	// wait they fail, so that they can run on another host.
	soon = 500 * time.Millisecond
)

// backoff returns the wait before the next start. last is the wait before the previous
// start, and lived the lifetime of that process.
func backoff(last, lived time.Duration) time.Duration {
	if last == 0 || lived >= minLifetime {
		return firstBackoff
	}
	return min(2*last, longestBackoff)
}

// supervise runs one process of a plugin, and restarts it until ctx is done.
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

// pause waits for the next start. During a pause longer than soon, the plugin expects no
// process from this supervisor.
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
	p.expected += n
	p.changedLocked()
	p.turn(p.up && (p.expected > 0 || len(p.ready) > 0))
}

// turn sets whether the plugin is up. The caller must hold p.mu; turn unlocks it.
func (p *plugin) turn(up bool) {
	turned := p.up != up
	p.up = up
	p.mu.Unlock()
	if turned {
		p.turned()
	}
}

// join makes an instance available to tasks.
func (p *plugin) join(i *instance) {
	p.mu.Lock()
	p.ready = append(p.ready, i)
	p.changedLocked()
	p.turn(true)
}

// leave makes an instance unavailable to tasks. A nil instance records only the reason.
func (p *plugin) leave(i *instance, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = slices.DeleteFunc(p.ready, func(r *instance) bool { return r == i })
	if why != nil {
		p.down = why
	}
}

// maxUnhealthy is the number of failed health checks in a row after which a plugin is
// killed.
const maxUnhealthy = 3

// watch returns when the instance has to end, with the reason, or with nil when the host
// shuts down.
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
			i.stream.cancel() // another process may hold the plugin's end of the connection open
			<-i.stream.done   // then its last output has been read
			return i.stream.err
		case <-i.stream.done:
			return i.stream.err
		case <-tick.C:
		}
		check, cancel := context.WithTimeout(ctx, p.spec.HealthEvery)
		answer, err := health.Check(check, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
		cancel()
		if err == nil && answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("it reports the status %s", answer.Status)
		}
		if err == nil {
			unhealthy = 0
			continue
		}
		if unhealthy++; unhealthy == maxUnhealthy {
			select {
			case <-i.child.Done(): // the end of the process explains the failed check
			default:
				return fmt.Errorf("it did not pass %d health checks: %w", unhealthy, err)
			}
		}
	}
}

// errClosing is the reason for the end of all instances when the host shuts down.
var errClosing = errors.New("the host is shutting down")
