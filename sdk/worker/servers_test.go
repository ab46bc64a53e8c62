package worker_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// fleet is a network of servers that only accept workers.
type fleet struct {
	mu      sync.Mutex
	members map[string]*member
	joined  chan string // the address of a server that a worker has joined
}

type member struct {
	apiv1.UnimplementedWorkerServer
	apiv1.UnimplementedNameserverServer
	f       *fleet
	address string
	lis     *memconn.Listener
	g       *grpc.Server
	names   string // its assignment as a nameserver; "": it is none
	works   bool
	news    chan *apiv1.Assignment // its later assignments as a nameserver
}

func newFleet() *fleet { return &fleet{members: map[string]*member{}, joined: make(chan string, 100)} }

// add starts a server; names is its assignment.
func (f *fleet) add(address, names string, works bool) *member {
	m := &member{f: f, address: address, lis: memconn.Listen(1 << 16), g: grpc.NewServer(), names: names, works: works, news: make(chan *apiv1.Assignment, 1)}
	if works {
		apiv1.RegisterWorkerServer(m.g, m)
	}
	if names != "" {
		apiv1.RegisterNameserverServer(m.g, m)
	}
	go m.g.Serve(m.lis) //nolint:errcheck // ends with Stop
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[address] = m
	return m
}

func (f *fleet) remove(address string) {
	f.mu.Lock()
	m := f.members[address]
	delete(f.members, address)
	f.mu.Unlock()
	m.g.Stop()
}

func (f *fleet) dial(ctx context.Context, address string) (net.Conn, error) {
	f.mu.Lock()
	m := f.members[address]
	f.mu.Unlock()
	if m == nil {
		return nil, errors.New("nobody is there")
	}
	return m.lis.DialContext(ctx)
}

func (m *member) Work(stream apiv1.Worker_WorkServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&apiv1.WorkDown{Welcome: &apiv1.Welcome{Server: m.address}}); err != nil {
		return err
	}
	m.f.joined <- m.address
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

func (m *member) Watch(_ *apiv1.WatchRequest, stream apiv1.Nameserver_WatchServer) error {
	for _, a := range []string{"", m.names} { // at first it knows no server
		if err := stream.Send(&apiv1.Assignment{Address: a, Epoch: 5}); err != nil {
			return err
		}
	}
	for {
		select {
		case a := <-m.news:
			if err := stream.Send(a); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// follow runs a worker with some addresses and returns where it joins.
func (f *fleet) follow(addresses string) (next func() string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, worker.Options{Address: addresses, Dialer: f.dial, Logger: slog.New(slog.DiscardHandler)},
			worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil }))
	}()
	next = func() string {
		select {
		case at := <-f.joined:
			return at
		case err := <-done:
			done <- err
			return "ended"
		case <-time.After(10 * time.Minute):
			return "nobody"
		}
	}
	return next, func() { cancel(); <-done }
}

func TestServers(t *testing.T) {
	const a, b, c = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
	for name, tt := range map[string]struct {
		addresses string
		start     func(f *fleet)
		joins     string
		then      func(f *fleet)
		joinsThen string
	}{
		"one": {"http://" + a, func(f *fleet) { f.add(a, "", true) }, a, func(f *fleet) { f.remove(a); f.add(a, "", true) }, a},
		"the next when one is down": {
			"http://" + a + ", http://" + b, func(f *fleet) { f.add(b, "", true) }, b,
			func(f *fleet) { f.add(a, "", true); f.remove(b) }, a,
		},
		"a nameserver says where": {"http://" + a, func(f *fleet) { f.add(a, c, false); f.add(c, "", true) }, c, func(f *fleet) {
			f.remove(a)
			f.remove(c)
			f.add(a, b, false)
			f.add(b, "", true)
		}, b},
		"a server says another":                  {"http://" + a, func(f *fleet) { f.add(a, c, true); f.add(c, "", true) }, c, nil, ""},
		"a server says itself":                   {"http://" + a + "/", func(f *fleet) { f.add(a, a, true) }, a, nil, ""},
		"a server says one that is out of reach": {"http://" + a, func(f *fleet) { f.add(a, c, true) }, a, nil, ""},
		"a server says nonsense":                 {"http://" + a, func(f *fleet) { f.add(a, "::x::", true) }, a, nil, ""},
		"a nameserver says one that comes later": {"http://" + a, func(f *fleet) { f.add(a, c, false) }, "nobody", func(f *fleet) { f.add(c, "", true) }, c},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				defer func() {
					for address := range f.members {
						f.remove(address)
					}
				}()
				tt.start(f)
				next, stop := f.follow(tt.addresses)
				defer stop()
				if at := next(); at != tt.joins {
					t.Fatalf("it joined %s, want %s", at, tt.joins)
				}
				if tt.then == nil {
					return
				}
				tt.then(f)
				if at := next(); at != tt.joinsThen {
					t.Fatalf("then it joined %s, want %s", at, tt.joinsThen)
				}
			})
		})
	}
}

// TestSilentServer checks that a worker leaves a silent server with an open connection
// when another server names its successor. The worker ignores older assignments, and an
// assignment of its current server.
func TestSilentServer(t *testing.T) {
	const a, b, c = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
	for name, tt := range map[string]struct {
		addresses string
		asked     string // the server that sends the news
		says      *apiv1.Assignment
		joins     string
	}{
		"another server knows":              {"http://" + a + ",http://" + b, b, &apiv1.Assignment{Address: c, Epoch: 6}, c},
		"it is the successor itself":        {"http://" + a + ",http://" + b, b, &apiv1.Assignment{Address: b, Epoch: 6}, b},
		"a nameserver knows":                {"http://" + b, b, &apiv1.Assignment{Address: c, Epoch: 6}, c},
		"what is late":                      {"http://" + a + ",http://" + b, b, &apiv1.Assignment{Address: c, Epoch: 5}, ""},
		"the same server again":             {"http://" + a + ",http://" + b, b, &apiv1.Assignment{Address: a, Epoch: 6}, ""},
		"nobody":                            {"http://" + a + ",http://" + b, b, &apiv1.Assignment{Epoch: 6}, ""},
		"the server itself, nobody else is": {"http://" + a, a, &apiv1.Assignment{Address: c, Epoch: 6}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				defer func() {
					for address := range f.members {
						f.remove(address)
					}
				}()
				first, second := f.add(a, a, true), f.add(b, a, true)
				f.add(c, c, true)
				next, stop := f.follow(tt.addresses)
				defer stop()
				if at := next(); at != a {
					t.Fatalf("it joined %s, want %s", at, a)
				}
				synctest.Wait() // the watch has asked the other server
				for _, m := range []*member{first, second} {
					m.names = cmp.Or(tt.says.Address, a) // the answer to later requests
				}
				f.members[tt.asked].news <- tt.says
				begin := time.Now()
				at := ""
				select {
				case at = <-f.joined:
				case <-time.After(time.Minute):
				}
				if at != tt.joins {
					t.Fatalf("it joined %q, want %q", at, tt.joins)
				}
				if took := time.Since(begin); at != "" && took > time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
