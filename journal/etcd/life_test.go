package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal"
)

// TestGrowing: two members join a cluster of one at once, while its owner writes. In the
// end they are voters: the first member can be lost.
func TestGrowing(t *testing.T) {
	t.Parallel()
	e := begin(t, 1, nil)
	c := connect(t, "a", "w/", e.urls()...)
	w := write(own(t, c, "x"), "r")
	first := e.urls()
	for i := 1; i < 3; i++ {
		cfg := e.configs[0]
		client, peer := testkit.FreeAddress(t), testkit.FreeAddress(t)
		e.client, e.peer = append(e.client, newProxy(t, client)), append(e.peer, newProxy(t, peer))
		cfg.Name, cfg.Dir, cfg.Members, cfg.Join = fmt.Sprintf("m%d", i), t.TempDir(), nil, first
		cfg.Client, cfg.Peer = e.client[i].url(), e.peer[i].url()
		cfg.ListenClient, cfg.ListenPeer = "http://"+client, "http://"+peer
		e.configs, e.members = append(e.configs, cfg), append(e.members, nil)
	}
	var wg sync.WaitGroup
	for i := 1; i < 3; i++ {
		wg.Go(func() { e.start(t, i) })
	}
	if wg.Wait(); t.Failed() {
		t.FailNow()
	}
	if got := e.members[2].Endpoints(); len(got) < 2 || got[0] != e.configs[2].Client {
		t.Errorf("the endpoints of a member: %v", got)
	}
	if err := w.next(5); err != nil {
		t.Fatal(err)
	}
	list, err := Members(within(t, 10*time.Second), Access{Endpoints: e.urls()})
	states := map[string]int{}
	for _, m := range list {
		states[m.State]++
	}
	if err != nil || len(list) != 3 || states["leader"] != 1 || states["follower"] != 2 || list[2].Name != "m2" || list[2].Bytes == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := RemoveMember(within(t, 10*time.Second), Access{Endpoints: e.urls()}, "m0"); err == nil || !strings.Contains(err.Error(), "stop its server first") {
		t.Errorf("a member that lives: %v", err)
	}
	written := w.end()
	e.stop(0)
	c2 := connect(t, "b", "w/", e.urls()[1:]...)
	if err := c2.Depose(within(t, 20*time.Second), "x"); err != nil {
		t.Fatal(err)
	}
	j2 := own(t, c2, "x")
	mustPut(t, j2, "last")
	got := bodies(t, c2, "x", 1)
	for _, b := range append(written, "last") {
		if !strings.Contains(" "+got+" ", " "+b+" ") {
			t.Errorf("%s is missing in %s", b, got)
		}
	}
	at := Access{Endpoints: e.urls()[1:]}
	list, err = Members(within(t, 20*time.Second), at)
	if err != nil || list[0].State != "absent" || list[0].Error == "" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := RemoveMember(within(t, 20*time.Second), at, "m0"); err != nil {
		t.Fatal(err)
	}
	if err := RemoveMember(within(t, 20*time.Second), at, "m0"); err == nil || !strings.Contains(err.Error(), "no member m0") {
		t.Errorf("twice: %v", err)
	}
	if list, err = Members(within(t, 10*time.Second), at); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestJoinBrokenOff: a member that is added and does not start stops no other member, and
// joins when it is started later. So does one that was killed before it became a voter.
func TestJoinBrokenOff(t *testing.T) {
	t.Parallel()
	e := begin(t, 1, nil)
	c := connect(t, "a", "w/", e.urls()...)
	j := own(t, c, "x")
	client, peer := testkit.FreeAddress(t), testkit.FreeAddress(t)
	cfg := e.configs[0]
	cfg.Name, cfg.Dir, cfg.Members, cfg.Join = "m1", t.TempDir(), nil, e.urls()
	cfg.Client, cfg.Peer, cfg.ListenClient, cfg.ListenPeer = "http://"+client, "http://"+peer, "", ""
	if _, err := c.client.MemberAddAsLearner(t.Context(), []string{cfg.Peer}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, j, "one") // with one more voter it would have no majority
	// Start it and end it, as a crash would, before it is a voter.
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	e.client[0].set(true) // cuts the way to ask for its promotion
	done := make(chan error, 1)
	cfg.Logger = nil
	go func() {
		broken := cfg
		broken.Join = []string{"http://" + strings.TrimPrefix(e.configs[0].ListenClient, "http://")}
		m, err := Start(ctx, broken)
		if err == nil {
			m.Close()
		}
		done <- err
	}()
	direct := connect(t, "c", "other/", e.configs[0].ListenClient)
	for { // until it is up
		list, err := direct.client.MemberList(within(t, 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Members) == 2 && (list.Members[0].IsLearner && list.Members[0].Name != "" || list.Members[1].IsLearner && list.Members[1].Name != "") {
			break
		}
		if err := pause(t.Context(), joinPause/10); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	// Where the start was at that time depends on chance: the member is up before it asks
	// for its promotion.
	if err := <-done; err == nil || !strings.Contains(err.Error(), "voter") && !errors.Is(err, context.Canceled) {
		t.Fatalf("without a way to the others: %v", err)
	}
	e.client[0].set(false)
	mustPut(t, j, "two")
	cfg.Join = nil // it knows the members by now
	m, err := Start(within(t, 30*time.Second), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // a test's
	list, err := Members(within(t, 10*time.Second), Access{Endpoints: []string{m.Client()}})
	if err != nil || len(list) != 2 || list[0].State == "learner" || list[1].State == "learner" {
		t.Fatalf("%+v, %v", list, err)
	}
}

// TestSeed: a journal begins at the sequence at which a store ends.
func TestSeed(t *testing.T) {
	t.Parallel()
	endpoint, prefix := shared(t)
	c := connect(t, "a", prefix, endpoint)
	ctx := within(t, 30*time.Second)
	for _, next := range []uint64{7, 1001} { // again with a higher sequence: the standalone server was used meanwhile
		if err := c.Seed(ctx, "x", next); err != nil {
			t.Fatal(err)
		}
	}
	j := own(t, c, "x")
	if j.Next() != 1001 || j.Bytes() != 0 {
		t.Fatalf("it begins at %d with %d bytes", j.Next(), j.Bytes())
	}
	if err := c.Seed(ctx, "x", 2000); !errors.Is(err, ErrHasRecords) {
		t.Errorf("a journal with an owner: %v", err)
	}
	mustPut(t, j, "a", "b")
	if got := bodies(t, c, "x", 1001); got != "a b" {
		t.Errorf("read %q", got)
	}
	if err := c.Read(ctx, "x", 1, func(uint64, journal.Slot, []byte) error { return nil }); err == nil {
		t.Error("what is before the beginning was read")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Seed(ctx, "x", 2000); !errors.Is(err, ErrHasRecords) {
		t.Errorf("a journal with records: %v", err)
	}
	// A part without a head: an owner was lost in its first batch.
	p := part{created: 1, body: []byte{1}}
	if _, err := c.client.Put(ctx, partKey(prefix, "y", 1, 0), string(p.encode())); err != nil {
		t.Fatal(err)
	}
	if err := c.Seed(ctx, "y", 5); !errors.Is(err, ErrHasRecords) {
		t.Errorf("a journal with a part: %v", err)
	}
	for _, bad := range []string{"", "a/b"} {
		if err := c.Seed(ctx, bad, 1); err == nil {
			t.Errorf("%q was begun", bad)
		}
	}
	if err := c.Seed(ctx, "z", 0); err == nil {
		t.Error("0 is no sequence")
	}
}

// TestForms: versions that understand the form of the journal share it, and other
// versions refuse to start and say what to do.
func TestForms(t *testing.T) {
	t.Parallel()
	endpoint, prefix := shared(t)
	open := func(oldest, newest int, prefix string) (*Cluster, error) {
		c, err := Connect(within(t, 20*time.Second), Config{Endpoints: []string{endpoint}, Prefix: prefix, Server: fmt.Sprintf("v%d", newest), Keep: time.Hour, oldest: oldest, newest: newest})
		if err == nil {
			t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
		}
		return c, err
	}
	// A cluster that a version without the key began has form 1.
	old := prefix + "old/"
	c, err := open(1, 1, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Put(t.Context(), old+"h/x", head{next: 3}.encode()); err != nil {
		t.Fatal(err)
	}
	if _, err := open(2, 3, old); !isForm(err, 1) || !strings.Contains(err.Error(), "the version before this one") {
		t.Errorf("too new for it: %v", err)
	}
	neighbour, err := open(1, 2, old)
	if err != nil {
		t.Fatal(err)
	}
	same, err := open(1, 1, old)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, own(t, neighbour, "x"), "from the newer one")
	if got := bodies(t, same, "x", 3); got != "from the newer one" {
		t.Errorf("the older one reads %q", got)
	}
	// A new cluster has the oldest form of the server that begins it, until it needs a
	// newer one.
	fresh := prefix + "new/"
	newer, err := open(1, 2, fresh)
	if err != nil {
		t.Fatal(err)
	}
	older, err := open(1, 1, fresh)
	if err != nil {
		t.Fatalf("before it was raised: %v", err)
	}
	if err := older.Raise(t.Context(), 2); !isForm(err, 2) {
		t.Errorf("raised by one that does not know the form: %v", err)
	}
	for range 2 {
		if err := newer.Raise(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(1, 1, fresh); !isForm(err, 2) || !strings.Contains(err.Error(), "as new as those of the other servers") {
		t.Errorf("too old for it: %v", err)
	}
	newest, err := open(1, 3, fresh)
	if err != nil {
		t.Fatal(err)
	}
	if err := newest.Raise(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if err := newest.Raise(t.Context(), 2); err != nil { // it already has a newer form
		t.Error(err)
	}
	second, err := open(1, 3, fresh)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Raise(t.Context(), 2); err != nil { // it has not read the newer form yet
		t.Error(err)
	}
	if _, err := open(1, 2, fresh); !isForm(err, 3) {
		t.Errorf("a form was taken back: %v", err)
	}
	if _, err := c.client.Put(t.Context(), fresh+"form", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(1, 2, fresh); err == nil || !strings.Contains(err.Error(), "not a number") {
		t.Errorf("a broken key: %v", err)
	}
	resp, err := c.client.Get(t.Context(), old+"form")
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "1" {
		t.Errorf("%v, %v", resp, err)
	}
	if resp, err := c.client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil || resp.Count < 4 {
		t.Errorf("%v, %v", resp, err)
	}
}

func isForm(err error, form int) bool {
	f := (*FormError)(nil)
	return errors.As(err, &f) && f.Form == form
}
