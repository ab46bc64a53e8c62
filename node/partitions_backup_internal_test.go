package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/store"
)

// TestPlacesStay: a backup of several partitions succeeds only if nothing that was in one
// of them at its beginning has moved by its end. Apps that were added meanwhile are
// included.
func TestPlacesStay(t *testing.T) {
	for name, c := range map[string]struct {
		after map[string]string
		ok    bool
	}{
		"nothing happens": {map[string]string{"app/a": "main", "app/b": "main.1"}, true},
		"an app comes":    {map[string]string{"app/a": "main", "app/b": "main.1", "app/c": "main"}, true},
		"an app moves":    {map[string]string{"app/a": "main.1", "app/b": "main.1"}, false},
		"an app goes":     {map[string]string{"app/a": "main"}, false},
		// A desired placement does not affect the copies. The move of a slot does, even
		// if it is the first.
		"an app is to be split":           {map[string]string{"app/a": "main", "app/b": "main.1", "split/a": "{}"}, true},
		"a slot moves for the first time": {map[string]string{"app/a": "main", "app/b": "main.1", "had/a/main.1": "1", "slot/a/3": "main.1 1"}, false},
	} {
		asked := 0
		s := &state{id: "s", rows: func(context.Context) (map[string]string, error) {
			if asked++; asked == 1 {
				return map[string]string{"app/a": "main", "app/b": "main.1"}, nil
			}
			return maps.Clone(c.after), nil
		}}
		for _, u := range []placedPartition{{"main", 7}, {"main.1", 9}} {
			p := part{partition: u.Name, copy: func(_ context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
				if asked != 1 {
					t.Errorf("%s: the places were read %d times before a partition", name, asked)
				}
				if err := begin(store.Copied{Applied: u.Applied}); err != nil {
					return err
				}
				_, err := create("store/history/00000000000000000000.seg")
				return err
			}}
			if u.Name != "main" {
				p.dir = "units/" + u.Name + "/"
			}
			s.parts = append(s.parts, p)
		}
		var made bytes.Buffer
		_, err := s.write(t.Context(), &made)
		if !c.ok {
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "again") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, split := c.after["split/a"]
		if bytes.Contains(made.Bytes(), []byte("form 2\n")) != split { // older programs must refuse such a backup
			t.Errorf("%s: that an app is split is told: %v", name, !split)
		}
		x := &restore{}
		if res, err := x.read(t.Context(), &made); err != nil || res.Units != 2 || res.Applied != 7 || !maps.Equal(x.placed.Rows, c.after) || x.placed.Units[1].Applied != 9 {
			t.Errorf("%s: %+v, %+v, %v", name, res, x.placed, err)
		}
	}
	s := &state{rows: func(context.Context) (map[string]string, error) { return nil, errors.New("etcd does not answer") }, parts: []part{{}, {}}}
	if _, err := s.write(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("without etcd: %v", err)
	}
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
			w, err := backup.NewWriter(chunks(send), backup.Info{Applied: 3, Modules: modules})
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
		return router.ElsewherePartition("", &apiv1.Assignment{Server: "next", Address: "h:1", Unit: "main"})
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
		r := viewOf("main")
		u := &partition{name: "main", peers: &router.Peers{Token: "shared", Key: "ws_key"}}
		a := &partitionBackups{m: &memberParts{view: r, partitions: []*partition{u}, router: &router.Router{View: r, Partitions: map[string]router.Hosted{"main": u}}}, log: slog.New(slog.DiscardHandler)}
		r.HearOwners(map[string]etcd.Owner{"main": {Server: "was", Address: at[0]}})
		go func() {
			<-doors[0].met
			r.HearOwners(map[string]etcd.Owner{"main": {Server: "next", Address: at[1]}})
		}()
		begun, files := 0, 0
		err := a.copyOf(u)(t.Context(), func(store.Copied) error { begun++; return nil }, func(string) (io.Writer, error) {
			files++
			return io.Discard, nil
		})
		if status.Code(err) != c.code || begun > 1 || files != c.files {
			t.Errorf("%s: %v, begun %d times, %d files", name, err, begun, files)
		}
	}
}
