package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wheelworkhq/wheelwork/journal"
)

// writer appends numbered records, one after the other, until it is stopped or an append
// fails. It records which ones were acknowledged.
type writer struct {
	j     *Journal
	stop  chan struct{}
	over  chan struct{}
	mu    sync.Mutex
	more  *sync.Cond
	acked []string
	err   error
}

func write(j *Journal, prefix string) *writer {
	w := &writer{j: j, stop: make(chan struct{}), over: make(chan struct{})}
	w.more = sync.NewCond(&w.mu)
	go func() {
		defer close(w.over)
		for i := 0; ; i++ {
			select {
			case <-w.stop:
				return
			default:
			}
			body := fmt.Sprint(prefix, i)
			done := make(chan error, 1)
			_, err := j.Append([]journal.Record{rec(body)}, func(err error) { done <- err })
			if err == nil {
				err = <-done
			}
			w.mu.Lock()
			if err == nil {
				w.acked = append(w.acked, body)
			}
			w.err = err
			w.more.Broadcast()
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w
}

// next waits until n more records are acknowledged, or until an append fails.
func (w *writer) next(n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for want := len(w.acked) + n; len(w.acked) < want && w.err == nil; {
		w.more.Wait()
	}
	return w.err
}

func (w *writer) end() []string {
	close(w.stop)
	<-w.over
	return w.acked
}

// holds fails unless the journal has all records of want, in this order, and no record
// twice.
func holds(t *testing.T, c *Cluster, name string, want []string) {
	t.Helper()
	got := strings.Fields(bodies(t, c, name, 1))
	seen := map[string]bool{}
	for _, b := range got {
		if seen[b] {
			t.Fatalf("%s is there twice", b)
		}
		seen[b] = true
	}
	at := 0
	for _, b := range want {
		for at < len(got) && got[at] != b {
			at++
		}
		if at == len(got) {
			t.Fatalf("%s was acknowledged, and is not there in its place", b)
		}
	}
}

// TestMemberLoss stops each of three members in turn, the leader among them: the
// acknowledged records stay, and the owner stays the owner.
func TestMemberLoss(t *testing.T) { eachWay(t, testMemberLoss) }

func testMemberLoss(t *testing.T, connect func(*ensemble, Config) *Cluster) {
	t.Parallel()
	e := begin(t, 3, nil)
	c := connect(e, Config{Keep: time.Hour})
	j := own(t, c, "x")
	epoch := j.Epoch()
	w := write(j, "r")
	for i := range 3 {
		if err := w.next(20); err != nil {
			t.Fatal(err)
		}
		e.stop(i)
		if err := w.next(20); err != nil {
			t.Fatalf("without member %d: %v", i, err)
		}
		e.start(t, i)
	}
	if err := w.next(20); err != nil {
		t.Fatal(err)
	}
	acked := w.end()
	holds(t, c, "x", acked)
	if j.Epoch() != epoch || j.Err() != nil {
		t.Fatalf("the ownership changed: %d, %v", j.Epoch(), j.Err())
	}
}

// TestNoQuorum: without two of three members no append is acknowledged, and Refuses gives
// the reason. The owner continues when one member is back.
func TestNoQuorum(t *testing.T) { eachWay(t, testNoQuorum) }

func testNoQuorum(t *testing.T, connect func(*ensemble, Config) *Cluster) {
	t.Parallel()
	e := begin(t, 3, nil)
	c := connect(e, Config{Keep: time.Hour})
	j := own(t, c, "x")
	mustPut(t, j, "one")
	if err := j.Refuses(); err != nil {
		t.Fatal(err)
	}
	e.stop(0)
	e.stop(1)
	result := make(chan error, 1)
	if _, err := j.Append([]journal.Record{rec("two")}, func(err error) { result <- err }); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error)
	go func() {
		for j.Refuses() == nil {
			c.pause(10 * time.Millisecond)
		}
		refused <- j.Refuses()
	}()
	select {
	case err := <-result:
		t.Fatalf("without a majority: %v", err)
	case err := <-refused:
		if !strings.Contains(err.Error(), "majority") {
			t.Fatal(err)
		}
	}
	// The records that may wait are bounded; beyond the bound Append returns ErrFull.
	big := rec(strings.Repeat("b", 1<<20))
	n := 0
	for ; ; n++ {
		room := j.Room()
		if _, err := j.AppendLazy([]journal.Record{big}); errors.Is(err, journal.ErrFull) {
			if room > 1<<20+100 {
				t.Fatalf("refused with room for %d", room)
			}
			break
		} else if err != nil || n > 100 {
			t.Fatalf("%d: %v", n, err)
		}
	}
	e.start(t, 0)
	if err := <-result; err != nil {
		t.Fatalf("after the majority was back: %v", err)
	}
	mustPut(t, j, "three")
	if j.Refuses() != nil || j.Room() < 32<<20 {
		t.Fatalf("after that: %v, room %d", j.Refuses(), j.Room())
	}
	got := 0
	err := c.Read(context.Background(), "x", 1, func(uint64, journal.Slot, []byte) error { got++; return nil })
	if err != nil || got != n+3 {
		t.Fatalf("%d records of %d, %v", got, n+3, err)
	}
}

// TestPartition cuts an owner off from etcd for longer than its lease, while another
// server takes the journal. The former owner writes nothing after that.
func TestPartition(t *testing.T) {
	t.Parallel()
	e := begin(t, 3, nil)
	var ways []*proxy
	var urls []string
	for i := range e.client {
		p := newProxy(t, strings.TrimPrefix(e.client[i].url(), "http://"))
		ways, urls = append(ways, p), append(urls, p.url())
	}
	// The client does not update its endpoints from the members, so it uses these proxies
	// only.
	a := connectFor(t, 2*time.Second, "a", "w/", urls...)
	b := connect(t, "b", "w/", e.urls()...)
	old := own(t, a, "x")
	w := write(old, "old")
	if err := w.next(10); err != nil {
		t.Fatal(err)
	}
	for _, p := range ways {
		p.set(true)
	}
	if err := b.Free(within(t, 30*time.Second), "x"); err != nil {
		t.Fatal(err)
	}
	fresh := own(t, b, "x")
	mustPut(t, fresh, "new0", "new1")
	for _, p := range ways {
		p.set(false)
	}
	<-w.over
	if !errors.Is(w.err, journal.ErrFenced) {
		t.Fatalf("the old owner was told %v", w.err)
	}
	mustPut(t, fresh, "new2")
	holds(t, b, "x", append(w.acked, "new0", "new1", "new2"))
	got := strings.Fields(bodies(t, b, "x", 1))
	if late := len(got) - len(w.acked) - 3; late < 0 || late > 1 { // the append that was under way may have arrived
		t.Fatalf("%d records, %d acknowledged", len(got), len(w.acked))
	}
}

// TestPartitionedMembers cuts members off from each other, the leader first: the other
// members continue, and the acknowledged records hold after they are connected again.
func TestPartitionedMembers(t *testing.T) { eachWay(t, testPartitionedMembers) }

func testPartitionedMembers(t *testing.T, connect func(*ensemble, Config) *Cluster) {
	t.Parallel()
	e := begin(t, 3, nil)
	c := connect(e, Config{Keep: time.Hour})
	j := own(t, c, "x")
	w := write(j, "r")
	for i := range 3 {
		if err := w.next(10); err != nil {
			t.Fatal(err)
		}
		e.peer[i].set(true) // no other member reaches it
		if err := w.next(10); err != nil {
			t.Fatal(err)
		}
		e.peer[i].set(false)
	}
	if err := w.next(10); err != nil {
		t.Fatal(err)
	}
	holds(t, c, "x", w.end())
}

// TestRestartOfAll stops every member and starts them again from their disks.
func TestRestartOfAll(t *testing.T) {
	t.Parallel()
	e := begin(t, 3, nil)
	c := connect(t, "a", "w/", e.urls()...)
	j := own(t, c, "x")
	big := strings.Repeat("b", 3<<20)
	mustPut(t, j, "one", big, "two")
	for i := range 3 {
		e.stop(i)
	}
	result := make(chan error, 1)
	if _, err := j.Append([]journal.Record{rec("three")}, func(err error) { result <- err }); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 3 {
		e.configs[i].Members = nil // its disk has the members
		e.configs[i].Join = []string{"http://127.0.0.1:1"}
		wg.Go(func() { e.start(t, i) })
	}
	wg.Wait()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if got := bodies(t, c, "x", 1); got != "one "+big+" two three" {
		t.Fatalf("%d bytes are there", len(got))
	}
}

// TestWipedMember: a member that lost its disk joins again as a new one, and after that
// the cluster survives the loss of another member.
func TestWipedMember(t *testing.T) {
	t.Parallel()
	e := begin(t, 3, nil)
	c := connect(t, "a", "w/", e.urls()...)
	j := own(t, c, "x")
	mustPut(t, j, "one")
	e.stop(2)
	e.configs[2].Dir = t.TempDir()
	e.configs[2].Members, e.configs[2].Join = nil, e.urls()[:2]
	e.start(t, 2)
	if t.Failed() {
		return
	}
	list, err := c.client.MemberList(within(t, 10*time.Second))
	if err != nil || len(list.Members) != 3 {
		t.Fatalf("members: %v, %v", list, err)
	}
	w := write(j, "r")
	if err := w.next(10); err != nil {
		t.Fatal(err)
	}
	e.stop(0)
	if err := w.next(10); err != nil { // needs the replaced member
		t.Fatal(err)
	}
	holds(t, c, "x", append([]string{"one"}, w.end()...))
}

// TestQuota fills an etcd with a small quota: Append returns ErrFull, no record is lost,
// and after a trim the journal continues without an operator.
func TestQuota(t *testing.T) { eachWay(t, testQuota) }

func testQuota(t *testing.T, connect func(*ensemble, Config) *Cluster) {
	const quota = 24 << 20
	e := begin(t, 1, func(c *MemberConfig) { c.Quota = quota })
	c := connect(e, Config{Keep: 50 * time.Millisecond})
	j := own(t, c, "x")
	if room := j.Room(); room <= 0 || room > quota {
		t.Fatalf("room for %d bytes of a quota of %d", room, quota)
	}
	body := strings.Repeat("q", 400<<10)
	results := make(chan error, 200)
	taken := 0
	for ; taken < 200; taken++ { // without a check of Room, unlike a correct caller
		if _, err := j.Append([]journal.Record{rec(fmt.Sprint(taken, " ", body))}, func(err error) { results <- err }); errors.Is(err, journal.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if c.full.Load() && taken > 70 {
			taken++
			break
		}
	}
	for !c.full.Load() {
		c.pause(10 * time.Millisecond)
	}
	if err := j.Refuses(); !errors.Is(err, journal.ErrFull) || j.Room() != 0 {
		t.Fatalf("full: %v, room %d", err, j.Room())
	}
	durable := 0
	for end, _, err := c.position(context.Background(), "x"); ; end, _, err = c.position(context.Background(), "x") {
		if err != nil {
			t.Fatal(err)
		}
		if durable = int(end.next) - 1; durable > 0 {
			break
		}
	}
	if durable >= taken {
		t.Fatalf("all %d were written into %d bytes", taken, quota)
	}
	if err := j.Trim(uint64(durable)); err != nil {
		t.Fatal(err)
	}
	trim := func() {
		end, _, err := c.position(context.Background(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Trim(end.next); err != nil {
			t.Fatal(err)
		}
	}
	// The waiting appends may fill it again, so the owner continues to trim.
	await := func(i int) {
		for {
			select {
			case err := <-results:
				if err != nil {
					t.Fatalf("append %d: %v", i, err)
				}
				return
			case <-time.After(200 * time.Millisecond):
				trim()
			}
		}
	}
	for i := range taken {
		await(i)
	}
	if j.Next() != uint64(taken)+1 {
		t.Fatalf("next is %d after %d", j.Next(), taken)
	}
	for {
		_, err := j.Append([]journal.Record{rec("after")}, func(err error) { results <- err })
		if err == nil {
			break
		}
		if !errors.Is(err, journal.ErrFull) {
			t.Fatal(err)
		}
		trim()
		c.pause(10 * time.Millisecond)
	}
	await(taken)
}

// TestUpkeep: etcd compacts the history of trimmed records.
func TestUpkeep(t *testing.T) {
	e := begin(t, 1, nil)
	c, err := Connect(within(t, 10*time.Second), Config{Endpoints: e.urls(), Server: "a", Keep: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	j := own(t, c, "x")
	mustPut(t, j, "one")
	r, err := c.client.Get(context.Background(), "nothing")
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, j, "two")
	ctx := within(t, 20*time.Second)
	for {
		_, err := c.client.Get(ctx, "nothing", clientv3.WithRev(r.Header.Revision))
		if err != nil && strings.Contains(err.Error(), "compacted") {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		c.pause(10 * time.Millisecond)
	}
	o, ok, err := c.owner(ctx, c.cfg.Prefix+"keeper")
	if err != nil || !ok || o.Server != "a" {
		t.Fatalf("the keeper is %v, %v, %v", o, ok, err)
	}
}

func TestWasteful(t *testing.T) {
	for _, tt := range []struct {
		size, used, quota int64
		want              bool
	}{
		{1 << 30, 1 << 30, 8 << 30, false},
		{1 << 30, 1 << 20, 8 << 30, false}, // far from the quota
		{5 << 30, 1 << 30, 8 << 30, true},
		{5 << 30, 4 << 30, 8 << 30, false},
		{7 << 30, 6 << 30, 8 << 30, true},
		{7 << 30, 7<<30 - 1, 8 << 30, false}, // it would free nothing
	} {
		if got := wasteful(member{size: tt.size, used: tt.used}, tt.quota); got != tt.want {
			t.Errorf("%d used of %d with a quota of %d: %v", tt.used, tt.size, tt.quota, got)
		}
	}
}

func TestMemberConfigs(t *testing.T) {
	good := MemberConfig{Name: "m", Dir: "d", Client: "http://127.0.0.1:2379", Peer: "http://[::1]:2380"}
	for _, tt := range []struct {
		change func(*MemberConfig)
		want   string
	}{
		{func(*MemberConfig) {}, ""},
		{func(c *MemberConfig) { c.Name = "a=b,c" }, "is not a member's name"},
		{func(c *MemberConfig) { c.Client = "http://10.0.0.1:2379" }, "TLS is required"},
		{func(c *MemberConfig) { c.Peer = "http://example.com:2380" }, "TLS is required"},
		{func(c *MemberConfig) { c.ListenPeer = "http://0.0.0.0:2380" }, "TLS is required"},
		{func(c *MemberConfig) { c.Client = "127.0.0.1:2379" }, "no URL"},
		{func(c *MemberConfig) { c.Client = "http://127.0.0.1" }, "is not http://HOST:PORT"},
		{func(c *MemberConfig) { c.Client = "https://127.0.0.1:2379" }, "is not http://HOST:PORT"},
		{func(c *MemberConfig) { c.Client = "http://127.0.0.1:2379/x" }, "is not http://HOST:PORT"},
		{func(c *MemberConfig) { c.Cert = "cert.pem" }, "all three or none"},
		{func(c *MemberConfig) { c.Cert, c.Key, c.CA = "c", "k", "a" }, "is not https://HOST:PORT"},
		{func(c *MemberConfig) { c.Members = map[string]string{"other": c.Peer} }, "do not include"},
		{func(c *MemberConfig) { c.Members = map[string]string{"m": "http://127.0.0.1:1"} }, "do not include"},
		{func(c *MemberConfig) { c.Members = map[string]string{"m": c.Peer}; c.Join = []string{"x"} }, "either begins a cluster or joins one"},
	} {
		c := good
		tt.change(&c)
		_, err := c.check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", c, err, tt.want)
		}
	}
	c := good
	c.Dir = "/dev/null/x"
	if m, err := Start(within(t, 10*time.Second), c); err == nil {
		m.Close()
		t.Error("it started without a directory")
	}
	if _, err := os.Stat("d"); err == nil {
		t.Error("a check made a directory")
	}
}
