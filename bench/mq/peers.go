package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/dgraph-io/badger/v4"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	pebbleName    = "pebble"
	etcdName      = "etcd-wal"
	badgerName    = "badger"
	jetStreamName = "jetstream"
	redisName     = "redis"
)

// peers are stores that acknowledge a message only when it is durable, like the log. Each
// is called in the fastest way that its own interface offers for single messages.
var peers = []candidate{
	{name: pebbleName, open: openPebble, note: "Set with Sync: its own group commit"},
	{name: etcdName, open: openEtcd, note: "one Save for all who came meanwhile"},
	{name: badgerName, open: openBadger, note: "SyncWrites, one WriteBatch for all who came meanwhile"},
	{name: jetStreamName, open: openJetStream, note: "embedded, file storage, sync_interval always"},
	{name: redisName, open: openRedis, note: "appendfsync always, XADD: another process over a unix socket, so this only informs"},
}

// single adapts a store that takes one message at a time.
func single(put func(i int, body []byte) error) runner {
	return closedLoop(func(i int, bodies [][]byte) producer {
		return func() error {
			for _, body := range bodies {
				if err := put(i, body); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

func openPebble(_ context.Context, dir string) (store, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: silent{}})
	if err != nil {
		return store{}, err
	}
	var seq atomic.Uint64
	return store{
		run: single(func(_ int, body []byte) error {
			return db.Set(binary.BigEndian.AppendUint64(nil, seq.Add(1)), body, pebble.Sync)
		}),
		close: db.Close,
	}, nil
}

// silent is a pebble.Logger. It panics on a fatal error, after which pebble cannot
// continue.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic("pebble: " + fmt.Sprintf(format, args...)) }

func openEtcd(_ context.Context, dir string) (store, error) {
	w, err := wal.Create(nil, filepath.Join(dir, "wal"), nil)
	if err != nil {
		return store{}, err
	}
	var index uint64
	g := newGroup(func(bodies [][]byte) error {
		entries := make([]*raftpb.Entry, len(bodies))
		for i, body := range bodies {
			index++
			term, at := uint64(1), index
			entries[i] = &raftpb.Entry{Term: &term, Index: &at, Data: body}
		}
		return w.Save(&raftpb.HardState{}, entries)
	})
	return store{run: single(g.put), close: g.closeBefore(w.Close)}, nil
}

func openBadger(_ context.Context, dir string) (store, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).WithSyncWrites(true).WithLogger(nil).
		WithDetectConflicts(false).WithMetricsEnabled(false))
	if err != nil {
		return store{}, err
	}
	var seq uint64
	g := newGroup(func(bodies [][]byte) error {
		batch := db.NewWriteBatch()
		defer batch.Cancel()
		for _, body := range bodies {
			seq++
			if err := batch.Set(binary.BigEndian.AppendUint64(nil, seq), body); err != nil {
				return err
			}
		}
		return batch.Flush()
	})
	return store{run: single(g.put), close: g.closeBefore(db.Close)}, nil
}

func openJetStream(ctx context.Context, dir string) (_ store, err error) {
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: true,
		JetStreamMaxStore: 8 << 30, JetStreamMaxMemory: 1 << 30, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return store{}, err
	}
	go s.Start()
	var conns [4]*nats.Conn
	var streams [len(conns)]jetstream.JetStream
	shut := func() error {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	}
	defer func() {
		if err != nil {
			_ = shut()
		}
	}()
	if !s.ReadyForConnections(10 * time.Second) {
		return store{}, errors.New("the embedded NATS server did not start within 10 s")
	}
	for i := range conns {
		if conns[i], err = nats.Connect("", nats.InProcessServer(s)); err != nil {
			return store{}, err
		}
		if streams[i], err = jetstream.New(conns[i]); err != nil {
			return store{}, err
		}
	}
	_, err = streams[0].CreateStream(ctx, jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage, Replicas: 1,
	})
	if err != nil {
		return store{}, err
	}
	return store{
		run: single(func(i int, body []byte) error {
			_, err := streams[i%len(streams)].Publish(ctx, "s", body)
			return err
		}),
		close: shut,
	}, nil
}

// group lets producers share the writes of a store without a group commit. One goroutine
// writes all bodies that arrived during its previous write.
type group struct {
	mu    sync.Mutex
	open  *flight
	wake  chan struct{} // one token
	ended chan struct{}
}

// flight holds the bodies of one write.
type flight struct {
	bodies [][]byte
	landed chan struct{} // closed after err is set
	err    error
}

func newFlight() *flight { return &flight{landed: make(chan struct{})} }

func newGroup(write func(bodies [][]byte) error) *group {
	g := &group{open: newFlight(), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		for range g.wake {
			g.mu.Lock()
			f := g.open
			g.open = newFlight()
			g.open.bodies = make([][]byte, 0, len(f.bodies))
			g.mu.Unlock()
			f.err = write(f.bodies)
			close(f.landed)
		}
	}()
	return g
}

// put returns when the body is written. The group owns the body until then.
func (g *group) put(_ int, body []byte) error {
	g.mu.Lock()
	f := g.open
	f.bodies = append(f.bodies, body)
	first := len(f.bodies) == 1
	g.mu.Unlock()
	if first {
		g.wake <- struct{}{}
	}
	<-f.landed
	return f.err
}

// closeBefore stops the group, and then closes its store. No call of put may be in
// progress.
func (g *group) closeBefore(closeStore func() error) func() error {
	return func() error {
		close(g.wake)
		<-g.ended
		return closeStore()
	}
}
