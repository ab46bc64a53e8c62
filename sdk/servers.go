package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	maxServers = 64   // with an open connection in one client
	maxOwners  = 4096 // apps with a remembered owner

	// ownerFor is how long the client caches the owner of an app.
	ownerFor = time.Minute

	// takeover is how long a call waits for the successor of a lost server of a cluster,
	// whose lease lasts for three seconds.
	takeover      = 6 * time.Second
	takeoverAgain = 200 * time.Millisecond

	minRest = time.Second // after a failure, while other servers are preferred; doubled each time
	maxRest = time.Minute
)

// servers holds the servers of one installation that Dial was given. It replaces a
// connection to one server, and moves calls from unreachable servers to others. With one
// server it only passes calls on.
//
// A server that another server names is used only if Dial was given it: the client sends
// its token to no address that the program did not choose. Any server forwards a call to
// the server that has to answer it.
type servers struct {
	connect  func(url string) (*grpc.ClientConn, error) // does not wait for the server
	patience time.Duration                              // how long a server may take to name the owner of an app
	takeover time.Duration                              // how long a call waits for a successor
	program  string                                     // that makes the calls, for the revisions of definitions

	mu     sync.Mutex
	list   []*server        // does not change
	last   *server          // the server that answered last; searches begin with it
	owners map[string]owner // by app
}

type server struct {
	url  string
	conn *grpc.ClientConn

	failures int       // number since its last answer; guarded by servers.mu
	rests    time.Time // until then others are preferred; guarded by servers.mu
}

type owner struct {
	*server
	until time.Time
}

// newServers parses the addresses that Dial was given.
func newServers(addresses string, connect func(string) (*grpc.ClientConn, error), patience time.Duration) (*servers, error) {
	s := &servers{connect: connect, patience: patience, owners: map[string]owner{}}
	for address := range strings.SplitSeq(addresses, ",") {
		if err := s.add(strings.TrimSpace(address)); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// add adds a server, unless it is in the list already.
func (s *servers) add(url string) error {
	if s.given(url) != nil {
		return nil
	}
	if len(s.list) == maxServers {
		return fmt.Errorf("%d servers are more than a client connects to: name some of them", maxServers+1)
	}
	conn, err := s.connect(url)
	if err != nil {
		return err
	}
	s.list = append(s.list, &server{url: url, conn: conn})
	return nil
}

// given returns the server at a URL if Dial was given it, otherwise nil.
func (s *servers) given(url string) *server {
	i := slices.IndexFunc(s.list, func(k *server) bool { return strings.TrimSuffix(k.url, "/") == strings.TrimSuffix(url, "/") })
	if i < 0 {
		return nil
	}
	return s.list[i]
}

func (s *servers) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, at := range s.list {
		errs = append(errs, at.conn.Close())
	}
	return errors.Join(errs...)
}

// String returns the addresses of the servers that Dial was given.
func (s *servers) String() string {
	var urls []string
	for _, at := range s.list {
		urls = append(urls, at.url)
	}
	return strings.Join(urls, ", ")
}

// heard records the outcome of a call to a server: nil, or the reason to prefer others
// for a while.
func (s *servers) heard(at *server, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		at.failures, at.rests, s.last = 0, time.Time{}, at
		return
	}
	at.rests = time.Now().Add(min(minRest<<min(at.failures, 10), maxRest))
	at.failures++
}

// order returns the servers in the order in which a call should try them. First come the
// servers that do not rest, starting with the one that answered last. Then come the
// resting servers, earliest end of rest first.
//
// A server whose last attempt failed comes after those without a failure. Otherwise a
// call that waits for a silent server while another one's rest ends would alternate
// between the two and never reach a third.
func (s *servers) order() []*server {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := max(slices.Index(s.list, s.last), 0)
	list := slices.Concat(s.list[from:], s.list[:from])
	now := time.Now()
	slices.SortStableFunc(list, func(a, b *server) int {
		return cmp.Or(cmp.Compare(max(a.rests.Sub(now), 0), max(b.rests.Sub(now), 0)), cmp.Compare(a.failures, b.failures))
	})
	return list
}

func (s *servers) resting(at *server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(at.rests)
}

// pick returns the server for an app's commands: its owner where a server knows it,
// otherwise the next server that does not rest. "" is any app. If all servers rest, pick
// returns the one whose rest ends first. The result may be wrong; the server then
// forwards or refuses the commands.
func (s *servers) pick(ctx context.Context, app string) *server {
	order := s.order()
	if len(order) == 1 {
		return order[0]
	}
	if at := s.ownerOf(app); at != nil {
		return at
	}
	for i, at := range order {
		if ctx.Err() != nil || s.resting(at) && i > 0 {
			continue
		}
		if to := s.ask(ctx, at, app); to != nil {
			return to
		}
	}
	return order[0]
}

// ask asks a server which server to use for an app's commands. If Dial was not given the
// owner, the result is the asked server, which forwards the commands. nil: it is out of
// reach.
func (s *servers) ask(ctx context.Context, at *server, app string) *server {
	if app != "" {
		owner, err := s.route(ctx, at, app)
		switch {
		case err == nil && owner != nil && !s.resting(owner):
			return owner
		case err == nil:
			return at
		case lost(err):
			if ctx.Err() == nil {
				s.heard(at, err)
			}
			return nil
		}
	}
	return at // it does not know the owners, but Dial was told to use it
}

func (s *servers) ownerOf(app string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.owners[app]
	if now := time.Now(); !ok || now.After(o.until) || now.Before(o.rests) {
		return nil
	}
	return o.server
}

// route asks a server which server owns an app; nil: one that Dial was not given.
func (s *servers) route(ctx context.Context, at *server, app string) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	a, err := apiv1.NewNameserverClient(at.conn).Route(ctx, &apiv1.RouteRequest{App: app})
	if err != nil {
		return nil, err
	}
	to := s.given(at.beside(a.GetAddress()))
	if to != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rememberLocked(app, to)
	}
	return to, nil
}

// maxHops bounds the redirects of a call: two servers that name each other would
// otherwise retain it forever.
const maxHops = 3

// hint returns the owner of an app that a refusal names, or nil for other errors.
func hint(err error) *apiv1.Assignment {
	if status.Code(err) != codes.FailedPrecondition {
		return nil
	}
	for _, d := range status.Convert(err).Details() {
		if a, ok := d.(*apiv1.Assignment); ok && a.GetAddress() != "" {
			return a
		}
	}
	return nil
}

// moving reports whether a partition is moving to another server, or its owner was lost.
// Meanwhile servers name each other, or name the partition in their refusals.
func moving(err error) bool {
	if status.Code(err) != codes.Unavailable {
		return hint(err).GetUnit() != ""
	}
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		a, ok := d.(*apiv1.Assignment)
		return ok && a.GetUnit() != ""
	})
}

// follow returns the server that another one named as the owner of an app, and remembers
// it. It returns nil if Dial was not given that server.
func (s *servers) follow(at *server, app string, err error) *server {
	a := hint(err)
	if a == nil {
		return nil
	}
	to := s.given(at.beside(a.GetAddress()))
	if to == nil || to == at {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to.rests = time.Time{} // only this server can help, and it may be back
	s.rememberLocked(app, to)
	return to
}

func (s *servers) rememberLocked(app string, at *server) {
	if app == "" {
		return
	}
	if len(s.owners) >= maxOwners {
		clear(s.owners)
	}
	s.owners[app] = owner{at, time.Now().Add(ownerFor)}
}

// beside returns the URL of another server of the same installation.
func (at *server) beside(hostPort string) string {
	scheme, _, _ := strings.Cut(at.url, "://")
	return scheme + "://" + hostPort
}

// lost reports whether a call did not reach a live server.
func lost(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// headed adds to a call the trace and the note of its context, and the program that makes it.
func (s *servers) headed(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(noted(traced(ctx)), causeHeader, s.program)
}

// Invoke makes one call, and sends it to the next server when one is out of reach. It
// tries each server at most once, with one exception. While the owner of a partition is
// out of reach, the other servers of its cluster name it until one of them takes over.
// Every call of this package can be repeated.
func (s *servers) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx = s.headed(ctx)
	return s.try(ctx, appIn(ctx, args), func(at *server) error {
		return at.conn.Invoke(ctx, method, args, reply, opts...)
	})
}

// NewStream opens a stream with the retries of [servers.Invoke]. The caller reopens a
// stream that breaks later.
func (s *servers) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (stream grpc.ClientStream, err error) {
	ctx = s.headed(ctx)
	app := appIn(ctx, nil)
	err = s.try(ctx, app, func(at *server) error {
		inner, err := at.conn.NewStream(ctx, desc, method, opts...)
		stream = &heeding{inner, s, at, app}
		return err
	})
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// heeding is a stream that remembers the owner that a server names in an error, so that
// the client opens the next stream at that owner.
type heeding struct {
	grpc.ClientStream
	s   *servers
	at  *server
	app string
}

func (h *heeding) RecvMsg(m any) error {
	err := h.ClientStream.RecvMsg(m)
	if err != nil {
		h.s.follow(h.at, h.app, err)
	}
	return err
}

func (s *servers) try(ctx context.Context, app string, call func(*server) error) error {
	hops, begin, owned := 0, time.Now(), false
	var to *server // the owner that the last server named; nil: none
	for left := len(s.list); ; left-- {
		at := to
		if at == nil {
			at = s.pick(ctx, app)
		}
		err := call(at)
		owned = owned || moving(err)
		if to = s.follow(at, app, err); to != nil && hops < maxHops && ctx.Err() == nil {
			hops++
			left++
			continue
		}
		if status.Code(err) != codes.Unavailable && !moving(err) || ctx.Err() != nil {
			if err == nil {
				s.heard(at, nil)
			}
			return err
		}
		if moving(err) { // it names itself, or a server that names it
			err = status.Error(codes.Unavailable, status.Convert(err).Message())
		} else {
			s.heard(at, err)
		}
		if left <= 1 {
			if !owned || time.Since(begin) >= s.takeover || sleep(ctx, jitter(takeoverAgain)) != nil {
				return err
			}
			hops, left = 0, len(s.list)+1
		}
	}
}

type appKey struct{}

// forApp sets the app of a call whose message does not contain it.
func forApp(ctx context.Context, app string) context.Context {
	return context.WithValue(ctx, appKey{}, appOf(app))
}

func appIn(ctx context.Context, message any) string {
	if m, ok := message.(interface{ GetApp() string }); ok {
		return m.GetApp()
	}
	app, _ := ctx.Value(appKey{}).(string)
	return app
}

// jitter spreads a pause over its upper half, so that clients which lost a server
// together do not return together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
