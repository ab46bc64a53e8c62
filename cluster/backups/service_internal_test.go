package backups

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/store"
)

// replica is a partition that this server does not own.
type replica struct{}

func (replica) Name() string                          { return "main" }
func (replica) Store() *store.Store                   { return nil }
func (replica) Serving() *router.Services             { return nil }
func (replica) Code() *modules.Store                  { return nil }
func (replica) CopyOut(context.Context, string) error { return nil }

// viewOf returns the view of a server that receives nothing from etcd.
func viewOf(partitions ...string) *cluster.View {
	r := cluster.NewView(nil, "main", "me", "h:0", slog.New(slog.DiscardHandler))
	r.Partitions = partitions
	return r
}

// partitionServer is a server that owns a partition, or did.
type partitionServer struct {
	apiv1.UnimplementedBackupsServer
	mu    sync.Mutex
	asked int
	give  func(send func(*apiv1.BackupChunk) error) error
	met   chan struct{} // closed at the first request
}

func (d *partitionServer) FetchState(_ *apiv1.FetchStateRequest, stream apiv1.Backups_FetchStateServer) error {
	d.mu.Lock()
	if d.asked++; d.asked == 1 {
		close(d.met)
	}
	d.mu.Unlock()
	return d.give(stream.Send)
}

// TestCopyFollowsItsUnit: a partition that has moved before its copy begins is copied at
// its next owner. If it moves during the copy, the copy fails. An answer of a server that
// leaves out the code of modules is refused.
func TestCopyFollowsItsUnit(t *testing.T) {
	whole := func(modules, cut bool) func(func(*apiv1.BackupChunk) error) error {
		return func(send func(*apiv1.BackupChunk) error) error {
			w, err := backup.NewWriter(archive.Chunks(send), backup.Info{Applied: 3, Modules: modules})
			if err == nil {
				_, err = w.Create("store/history/00000000000000000000.seg")
			}
			if err == nil {
				_, err = w.Write([]byte("rows"))
			}
			if cut {
				return status.Error(codes.Unavailable, "the partition goes to another server")
			}
			_, cerr := w.Close()
			return errors.Join(err, cerr)
		}
	}
	gone := func(func(*apiv1.BackupChunk) error) error {
		return &router.Redirect{To: &apiv1.Assignment{Server: "next", Address: "h:1", Unit: "main"}}
	}
	for name, c := range map[string]struct {
		first, then func(func(*apiv1.BackupChunk) error) error
		code        codes.Code
		files       int
	}{
		"it has gone on":              {gone, whole(true, false), codes.OK, 1},
		"it goes while it is copied":  {whole(true, true), whole(true, false), codes.Unavailable, 1},
		"without the code of modules": {whole(false, false), whole(true, false), codes.Unimplemented, 0},
	} {
		var doors []*partitionServer
		var at []string
		for _, give := range []func(func(*apiv1.BackupChunk) error) error{c.first, c.then} {
			d := &partitionServer{give: give, met: make(chan struct{})}
			g := grpc.NewServer()
			apiv1.RegisterBackupsServer(g, d)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go g.Serve(ln) //nolint:errcheck // ends with Stop
			defer g.Stop()
			doors, at = append(doors, d), append(at, ln.Addr().String())
		}
		own, err := transport.NewIdentity("ws_key", "")
		if err != nil {
			t.Fatal(err)
		}
		r := viewOf("main")
		u := replica{}
		a := &Service{View: r, Router: &router.Router{Forwarder: router.Forwarder{View: r, Partitions: map[string]router.Hosted{"main": u}, Peers: &router.Peers{Own: own, Key: own}}}, Partitions: []Partition{u}, Logger: slog.New(slog.DiscardHandler)}
		r.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "was", Address: at[0]}})
		go func() {
			<-doors[0].met
			r.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "next", Address: at[1]}})
		}()
		begun, files := 0, 0
		err = a.copyOf(u)(t.Context(), func(store.Copied) error { begun++; return nil }, func(string) (io.Writer, error) {
			files++
			return io.Discard, nil
		})
		if status.Code(err) != c.code || begun > 1 || files != c.files {
			t.Errorf("%s: %v, begun %d times, %d files", name, err, begun, files)
		}
	}
}
