package access

import (
	"cmp"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// StreamLimits bounds the streams that are open at one server, so that one app or one program
// cannot use up its memory. Streams of hosts and servers do not count.
type StreamLimits struct {
	PerApp    int // for one app, as followers of logs; 0: 512
	PerCaller int // of one principal, with all its tokens; 0: 4096
}

func (l StreamLimits) withDefaults() StreamLimits {
	return StreamLimits{PerApp: cmp.Or(l.PerApp, 512), PerCaller: cmp.Or(l.PerCaller, 4096)}
}

// Check returns an error if a limit is negative.
func (l StreamLimits) Check() error {
	if l.PerApp < 0 || l.PerCaller < 0 {
		return fmt.Errorf("%d streams of an app and %d of a caller: want positive numbers", l.PerApp, l.PerCaller)
	}
	return nil
}

// streams counts the open streams. It is safe for concurrent use.
type streams struct {
	mu       sync.Mutex
	limits   StreamLimits
	byApp    map[string]int
	byCaller map[string]int
}

// open counts one stream more under a name, unless there are as many as the limit, which it returns.
func (s *streams) open(of *map[string]int, name string, limitOf func(StreamLimits) int) (limit int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit = limitOf(s.limits.withDefaults()); (*of)[name] >= limit {
		return limit, false
	}
	if *of == nil {
		*of = map[string]int{}
	}
	(*of)[name]++
	return limit, true
}

// closed counts one stream less.
func (s *streams) closed(of map[string]int, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of[name]--; of[name] <= 0 {
		delete(of, name)
	}
}

// SetStreamLimits replaces the limits of open streams. Streams that are open stay open.
func (g *Guard) SetStreamLimits(l StreamLimits) {
	g.streams.mu.Lock()
	defer g.streams.mu.Unlock()
	g.streams.limits = l
}

// opens counts a stream of a caller. The caller of opens calls the result when the stream has
// ended.
func (g *Guard) opens(p *Principal) (end func(), err error) {
	if p.Process.Name != "" {
		return func() {}, nil
	}
	limit, ok := g.streams.open(&g.streams.byCaller, p.Name, func(l StreamLimits) int { return l.PerCaller })
	if !ok {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams open at this server, which is the limit: close some, or let an administrator start the server with a higher --max-streams-per-caller", p.title(), limit)
	}
	return func() { g.streams.closed(g.streams.byCaller, p.Name) }, nil
}

// opensFor counts a stream for an app.
func (g *Guard) opensFor(p *Principal, app string) (end func(), err error) {
	if p.Process.Name != "" || app == "" {
		return func() {}, nil
	}
	limit, ok := g.streams.open(&g.streams.byApp, app, func(l StreamLimits) int { return l.PerApp })
	if !ok {
		return nil, status.Errorf(codes.ResourceExhausted, "app %s has %d streams open at this server, which is the limit: close some, or let an administrator start the server with a higher --max-streams-per-app", app, limit)
	}
	return func() { g.streams.closed(g.streams.byApp, app) }, nil
}
