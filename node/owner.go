package node

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// owner keeps a server from doing what is another server's: without it, an app
// would come to be on two servers as soon as a caller does not know which one
// is right. A server does what concerns the apps that are on its disk; for any
// other one it asks the nameserver, and refuses with the answer when that names
// somebody else. The answer is the detail of the error, an Assignment, which
// clients follow.
type owner struct {
	id    string // the server's
	names apiv1.NameserverClient
	holds func(ctx context.Context, app string) (bool, error) // whether it is on the disk

	mu     sync.Mutex
	mine   map[string]bool // it stays: nothing takes an app from a server
	others map[string]foreign
}

// foreign is an app of another server.
type foreign struct {
	*apiv1.Assignment
	until time.Time
}

const (
	// ownerKept is how long the owner of an app is taken for granted.
	ownerKept = time.Second
	// ownerPatience is how long a call waits while nobody can be named: a server
	// that has just started is not known yet, and a nameserver that has, knows
	// nobody for a lease.
	ownerPatience = 5 * time.Second
	ownerAgain    = 50 * time.Millisecond
	maxForeign    = 4096
)

func newOwner(id string, names grpc.ClientConnInterface, holds func(context.Context, string) (bool, error)) *owner {
	return &owner{id: id, names: apiv1.NewNameserverClient(names), holds: holds, mine: map[string]bool{}, others: map[string]foreign{}}
}

// appsOf returns the apps that a request is about; none: it is about the
// server, or the installation.
func appsOf(m any) []string {
	switch r := m.(type) {
	case *apiv1.RouteRequest:
		return nil // it is the question itself
	case *apiv1.ApplyJobRequest:
		return []string{r.GetJob().GetApp()}
	case *apiv1.PutCalendarRequest:
		return []string{r.GetCalendar().GetApp()}
	case *apiv1.PutGrantsRequest:
		return []string{r.GetGrants().GetApp()}
	case *apiv1.PushModuleRequest:
		if h := r.GetHead(); h != nil { // what follows belongs to it
			return []string{h.GetApp()}
		}
		return nil
	case *apiv1.PutAppRequest:
		return []string{r.GetApp().GetName()}
	case *apiv1.GetAppRequest:
		return []string{r.GetName()}
	case *apiv1.ProduceRequest:
		var apps []string
		for _, c := range r.GetCommands() {
			switch k := c.GetKind().(type) {
			case *apiv1.Command_Apply:
				apps = append(apps, k.Apply.GetApp())
			case *apiv1.Command_Delete:
				apps = append(apps, k.Delete.GetApp())
			case *apiv1.Command_Trigger:
				apps = append(apps, k.Trigger.GetApp())
			}
		}
		return apps
	case interface{ GetApp() string }:
		return []string{r.GetApp()}
	}
	return nil
}

func (o *owner) check(ctx context.Context, m any) error {
	for _, app := range appsOf(m) {
		if err := o.checkApp(ctx, app); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) checkApp(ctx context.Context, app string) error {
	if app == "" {
		app = "default"
	}
	o.mu.Lock()
	mine, other := o.mine[app], o.others[app]
	o.mu.Unlock()
	switch {
	case mine:
		return nil
	case time.Now().Before(other.until):
		return elsewhere(app, other.Assignment)
	}
	held, err := o.holds(ctx, app)
	if err != nil {
		return err
	}
	if held {
		o.learn(app, nil)
		return nil
	}
	a, err := o.ask(ctx, app)
	switch {
	case err != nil:
		return err
	case a.Server == o.id:
		o.learn(app, nil)
		return nil
	}
	o.learn(app, a)
	return elsewhere(app, a)
}

// learn notes whose an app is; nil: this server's.
func (o *owner) learn(app string, a *apiv1.Assignment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a == nil {
		o.mine[app] = true
		delete(o.others, app)
		return
	}
	if len(o.others) >= maxForeign { // callers may invent names
		clear(o.others)
	}
	o.others[app] = foreign{a, time.Now().Add(ownerKept)}
}

// ask asks the nameserver, for a while, as long as it can name nobody.
func (o *owner) ask(ctx context.Context, app string) (*apiv1.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	for {
		a, err := o.names.Route(ctx, &apiv1.RouteRequest{App: app})
		if err == nil {
			return a, nil
		}
		if status.Code(err) != codes.Unavailable {
			return nil, status.Errorf(codes.Unavailable, "whose app %s is, the nameserver could not say: %s", app, status.Convert(err).Message())
		}
		select {
		case <-time.After(ownerAgain):
		case <-ctx.Done():
			return nil, status.Errorf(codes.Unavailable, "the app %s is not on this server, and the nameserver cannot say whose it is: try again when it is in reach, and the app's server too", app)
		}
	}
}

func elsewhere(app string, a *apiv1.Assignment) error {
	s := status.Newf(codes.FailedPrecondition, "the app %s is on the server %s: use %s", app, a.GetServer(), a.GetAddress())
	if with, err := s.WithDetails(a); err == nil {
		s = with
	}
	return s.Err()
}

func (o *owner) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := o.check(ctx, req); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (o *owner) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, &ownedStream{s, o})
}

// ownedStream looks at every message that comes in: one that is not this
// server's ends the stream before anybody has seen it.
type ownedStream struct {
	grpc.ServerStream
	o *owner
}

func (s *ownedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.o.check(s.Context(), m)
}
