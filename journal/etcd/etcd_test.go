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

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/conform"
)

// dir is the directory of the etcd that the tests share.
var dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "etcd"); err != nil {
		panic(err)
	}
	code := m.Run()
	if one.member != nil {
		one.member.Close()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestConform(t *testing.T) {
	conform.Run(t, func(t *testing.T) conform.Open {
		endpoint, prefix := shared(t)
		return func(t *testing.T) journal.Journal {
			t.Helper()
			return own(t, connect(t, "s1", prefix, endpoint), "app.0")
		}
	})
}

// TestStaleOwnerIsFenced checks the promise of the package: a server that has lost the
// ownership, and has not noticed, writes nothing.
func TestStaleOwnerIsFenced(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	old := own(t, a, "app.0")
	other := own(t, a, "app.1") // it shares transactions with the lost journal
	mustPut(t, old, "one", "two")
	var held *OwnedError
	if _, err := b.Own(within(t, 10*time.Second), "app.0"); !errors.As(err, &held) || held.Owner.Server != "a" || held.Owner.Address != "a.test:1" || held.Owner.Epoch != old.Epoch() {
		t.Fatalf("a second owner: %v", err)
	}
	// End the ownership without the knowledge of its owner.
	if _, err := b.client.Delete(context.Background(), b.key("o", "app.0")); err != nil {
		t.Fatal(err)
	}
	fresh := own(t, b, "app.0")
	if fresh.Epoch() <= old.Epoch() || fresh.Next() != 3 {
		t.Fatalf("epoch %d after %d, next %d", fresh.Epoch(), old.Epoch(), fresh.Next())
	}
	var wg sync.WaitGroup
	wg.Add(3)
	for i, j := range []*Journal{old, other, old} {
		told := func(err error) {
			defer wg.Done()
			if (j == old) != errors.Is(err, journal.ErrFenced) || j == other && err != nil {
				t.Errorf("the append %d to %s: %v", i, j.Name(), err)
			}
		}
		if _, err := j.Append([]journal.Record{rec(fmt.Sprint("late", i))}, told); err != nil {
			told(err) // it has noticed already
		}
	}
	wg.Wait()
	<-old.Lost()
	if err := put(t, old, "later"); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("after that: %v", err)
	}
	if err := old.Trim(2); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("trimming: %v", err)
	}
	mustPut(t, fresh, "three")
	if got := bodies(t, b, "app.0", 1); got != "one two three" {
		t.Fatalf("the journal holds %q", got)
	}
	if got := bodies(t, b, "app.1", 1); got != "late1" {
		t.Fatalf("the other journal holds %q", got)
	}
	select {
	case <-other.Lost():
		t.Fatal("the other journal was lost with it")
	default:
	}
}

func TestStaleTrimIsFenced(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	old := own(t, a, "x")
	mustPut(t, old, "one")
	mustPut(t, old, "two")
	if _, err := b.client.Delete(context.Background(), b.key("o", "x")); err != nil {
		t.Fatal(err)
	}
	own(t, b, "x")
	if err := old.Trim(2); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("a trim by the last owner: %v", err)
	}
	if got := bodies(t, b, "x", 1); got != "one two" {
		t.Fatalf("the journal holds %q", got)
	}
}

// TestLostLease ends the lease of a server, as happens to a process that was suspended
// for longer than its lease.
func TestLostLease(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	j := own(t, a, "x")
	mustPut(t, j, "one")
	a.mu.Lock()
	l := a.lease
	a.mu.Unlock()
	waited := make(chan error, 1)
	go func() { waited <- b.Free(within(t, 20*time.Second), "x") }()
	if _, err := b.client.Revoke(context.Background(), l.id); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	next := own(t, b, "x")
	if err := put(t, j, "late"); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("an append after the lease: %v", err)
	}
	<-l.gone // the server also notices without an append
	mustPut(t, next, "two")
	if got := bodies(t, b, "x", 1); got != "one two" {
		t.Fatalf("the journal holds %q", got)
	}
	if err := next.Close(); err != nil { // ends the ownership at once
		t.Fatal(err)
	}
	again := own(t, a, "x") // under a new lease
	if again.Epoch() <= next.Epoch() {
		t.Fatalf("epoch %d after %d", again.Epoch(), next.Epoch())
	}
	mustPut(t, again, "three")
}

// TestIdleOwnerNoticesThatItsLeaseIsGone: Lost is closed although the owner writes
// nothing.
func TestIdleOwnerNoticesThatItsLeaseIsGone(t *testing.T) {
	endpoint, prefix := shared(t)
	a := connect(t, "a", prefix, endpoint)
	j := own(t, a, "x")
	if _, err := a.client.Revoke(context.Background(), j.lease.id); err != nil {
		t.Fatal(err)
	}
	select {
	case <-j.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("it did not notice")
	}
	if err := j.Err(); !errors.Is(err, journal.ErrFenced) {
		t.Fatal(err)
	}
}

// TestRestartedServerTakesItsOwnBack: a restarted server does not wait for the lease of
// its former process.
func TestRestartedServerTakesItsOwnBack(t *testing.T) {
	endpoint, prefix := shared(t)
	a := connect(t, "a", prefix, endpoint)
	j := own(t, a, "x")
	mustPut(t, j, "one")
	again := own(t, connect(t, "a", prefix, endpoint), "x")
	if again.Epoch() <= j.Epoch() || again.Next() != 2 {
		t.Fatalf("epoch %d after %d, next %d", again.Epoch(), j.Epoch(), again.Next())
	}
	if err := put(t, j, "late"); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("the process before: %v", err)
	}
	if _, err := connect(t, "b", prefix, endpoint).Own(within(t, 10*time.Second), "x"); err == nil {
		t.Fatal("another server took it")
	}
}

// TestKilledIsNotOrderly: the records that a killed owner had not written are unknown.
// Orderly stays false for later owners until one of them calls Settle.
func TestKilledIsNotOrderly(t *testing.T) {
	endpoint, prefix := shared(t)
	killed := own(t, connect(t, "a", prefix, endpoint), "x")
	mustPut(t, killed, "one")
	j := own(t, connect(t, "a", prefix, endpoint), "x")
	for i, settled := range []bool{false, false, true} {
		if j.Orderly() != settled {
			t.Errorf("owner %d after the one that was killed: orderly is %v", i+1, !settled)
		}
		if i == 1 {
			j.Settle()
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			j = own(t, connect(t, "a", prefix, endpoint), "x")
		}
	}
}

// TestUnconfirmedEnd: a journal was closed, and etcd did not confirm that it has no owner
// now. The server's lease keeps the ownership alive, so Release ends it, and its epoch is
// not used again.
func TestUnconfirmedEnd(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	unconfirmed := func() *Journal {
		j := own(t, a, "x")
		j.mu.Lock()
		j.c = &Cluster{cfg: a.cfg, client: a.client, log: a.log, kick: a.kick, began: a.began} // its requests fail: their context has ended
		j.c.ctx, j.c.cancel = context.WithCancel(t.Context())
		j.c.cancel()
		j.mu.Unlock()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		a.forget(j)
		if o, ok, err := b.Owner(t.Context(), "x"); err != nil || !ok || o.Server != "a" || o.Epoch != j.Epoch() {
			t.Fatalf("the end was not to be confirmed: %v, %v, %v", o, ok, err)
		}
		return j
	}
	first := unconfirmed()
	second := unconfirmed()
	if second.Epoch() <= first.Epoch() {
		t.Errorf("the number %d after %d", second.Epoch(), first.Epoch())
	}
	if err := a.Release(t.Context(), "x", first.Epoch()); err != nil {
		t.Fatal(err)
	}
	if o, ok, err := b.Owner(t.Context(), "x"); err != nil || !ok || o.Epoch != second.Epoch() {
		t.Fatalf("another ownership was ended: %v, %v, %v", o, ok, err)
	}
	if err := a.Release(t.Context(), "x", second.Epoch()); err != nil {
		t.Fatal(err)
	}
	own(t, b, "x")
}

// TestEpochsOfARestoredCluster: a cluster that begins later, on an etcd with lower
// revisions, has higher epochs, and all of its servers count from the same origin. A
// cluster that is older than the key of the origin counts from zero, and continues to.
func TestEpochsOfARestoredCluster(t *testing.T) {
	endpoint, prefix := shared(t)
	old := connect(t, "a", prefix, endpoint)
	first := own(t, old, "x")
	for range 20 {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		first = own(t, old, "x")
	}
	at := testkit.FreeAddress(t)
	m, err := Start(t.Context(), MemberConfig{Name: "two", Dir: t.TempDir(), Client: "http://" + at, Peer: "http://" + testkit.FreeAddress(t), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	a, b := connect(t, "a", "p/", m.Client()), connect(t, "b", "p/", m.Client())
	j := own(t, a, "x")
	if j.created >= first.created || j.Epoch() <= first.Epoch() {
		t.Errorf("after a restore the epoch is %d of revision %d, before it was %d of %d", j.Epoch(), j.created, first.Epoch(), first.created)
	}
	if o, ok, err := b.Owner(t.Context(), "x"); err != nil || !ok || o.Epoch != j.Epoch() {
		t.Errorf("another server has the owner %+v, %v, %v, want the epoch %d", o, ok, err, j.Epoch())
	}

	if _, err := a.client.Put(t.Context(), "older/form", "1"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c := connect(t, "a", "older/", m.Client())
		if k := own(t, c, "x"); k.Epoch() != uint64(k.created) {
			t.Errorf("in an older cluster the epoch is %d of revision %d", k.Epoch(), k.created)
		}
	}
	if _, err := a.client.Put(t.Context(), "older/began", "yesterday"); err != nil {
		t.Fatal(err)
	}
	if c, err := Connect(within(t, 20*time.Second), Config{Endpoints: []string{m.Client()}, Prefix: "older/", Server: "a"}); err == nil {
		c.Close() //nolint:errcheck // the test has failed
		t.Error("a cluster that began yesterday was taken")
	}
}

// TestUnfinishedBatch: an owner dies after the first part of a batch. No reader sees the
// part, and the next owner writes in its place.
func TestUnfinishedBatch(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	j := own(t, a, "x")
	mustPut(t, j, "one")
	p := part{created: uint64(j.created), before: j.end.bytes, body: []byte{200, 1, 0, 0}}
	if _, err := a.client.Put(context.Background(), partKey(prefix, "x", 2, 0), string(p.encode())); err != nil {
		t.Fatal(err)
	}
	if got := bodies(t, b, "x", 1); got != "one" {
		t.Fatalf("a reader sees %q", got)
	}
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	var seen []string
	followed := make(chan error, 1)
	go func() {
		followed <- b.Follow(ctx, "x", 1, func(_ uint64, _ journal.Slot, body []byte) error {
			if seen = append(seen, string(body)); string(body) == "end" {
				cancel()
			}
			return nil
		})
	}()
	if _, err := a.client.Delete(context.Background(), a.key("o", "x")); err != nil {
		t.Fatal(err)
	}
	next := own(t, b, "x")
	if next.Next() != 2 {
		t.Fatalf("the next owner begins at %d", next.Next())
	}
	mustPut(t, next, "two", "end")
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := strings.Join(seen, " "); got != "one two end" {
		t.Fatalf("a follower saw %q", got)
	}
	if got := bodies(t, b, "x", 1); got != "one two end" {
		t.Fatalf("a reader sees %q", got)
	}
}

// TestFollowerMeetsAnUnfinishedBatch: a follower has seen the first part of a batch when
// the last one arrives.
func TestFollowerMeetsAnUnfinishedBatch(t *testing.T) {
	endpoint, prefix := shared(t)
	a := connect(t, "a", prefix, endpoint)
	j := own(t, a, "x")
	mustPut(t, j, "one")
	batch := encodeBatch(rec("two"), rec("three"))
	parts := [][]byte{batch[:7], batch[7:9], batch[9:]}
	write := func(i int) {
		p := part{created: uint64(j.created), before: 9, body: parts[i], last: i == 2}
		if _, err := a.client.Put(context.Background(), partKey(prefix, "x", 2, i), string(p.encode())); err != nil {
			t.Error(err)
		}
	}
	write(0)
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	var seen []string
	err := a.Follow(ctx, "x", 1, func(seq uint64, _ journal.Slot, body []byte) error {
		seen = append(seen, fmt.Sprint(seq, string(body)))
		switch seq {
		case 1: // the page with this record includes part 0
			write(1)
			write(2)
		case 3:
			cancel()
		}
		return nil
	})
	if got := strings.Join(seen, " "); !errors.Is(err, context.Canceled) || got != "1one 2two 3three" {
		t.Fatalf("followed %q, %v", got, err)
	}
}

// TestLostAnswer: a transaction was applied and its answer lost. If its own bytes are
// found, the append succeeds; other bytes are not overwritten.
func TestLostAnswer(t *testing.T) {
	endpoint, prefix := shared(t)
	c := connect(t, "a", prefix, endpoint)
	j := own(t, c, "x")
	mustPut(t, j, "one")
	c.mu.Lock() // keeps the committer from gathering parts
	result := make(chan error, 1)
	if _, err := j.Append([]journal.Record{rec("two")}, func(err error) { result <- err }); err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	j.cut()
	applied := j.now
	j.mu.Unlock()
	if _, err := c.client.Put(context.Background(), partKey(prefix, "x", 2, 0), string(applied.parts[0])); err != nil {
		t.Fatal(err)
	}
	c.mu.Unlock()
	if err := <-result; err != nil {
		t.Fatalf("what was written already: %v", err)
	}
	if _, err := c.client.Put(context.Background(), partKey(prefix, "x", 3, 0), "foreign"); err != nil {
		t.Fatal(err)
	}
	if err := put(t, j, "three"); err == nil || !strings.Contains(err.Error(), "a program other than a server") {
		t.Fatalf("foreign bytes in the way: %v", err)
	}
	if err := c.Read(context.Background(), "x", 1, func(uint64, journal.Slot, []byte) error { return nil }); err == nil {
		t.Fatal("foreign bytes were read")
	}
}

func TestFollow(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	j := own(t, a, "x")
	own(t, a, "x.y") // a name with the same beginning
	want := ""
	for i := range 10 {
		mustPut(t, j, fmt.Sprint("r", i))
	}
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	var got []string
	caught := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- b.Follow(ctx, "x", 4, func(seq uint64, slot journal.Slot, body []byte) error {
			if slot.App != "app" || slot.Index != 3 || seq != uint64(len(got)+4) {
				return fmt.Errorf("record %d of %v", seq, slot)
			}
			got = append(got, string(body[:min(len(body), 8)]))
			switch len(got) {
			case 7:
				close(caught)
			case 27:
				cancel()
			}
			return nil
		})
	}()
	<-caught
	big := strings.Repeat("b", 1<<20)
	for i := 10; i < 30; i++ {
		if i == 15 { // compact history that a follower may still need
			r, err := a.client.Get(ctx, "nothing")
			if err == nil {
				_, err = a.client.Compact(ctx, r.Header.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
			mustPut(t, j, "r15"+big)
			continue
		}
		mustPut(t, j, fmt.Sprint("r", i))
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for i := 3; i < 30; i++ {
		name := fmt.Sprint("r", i)
		if i == 15 {
			name = "r15bbbbb"
		}
		want += name + " "
	}
	if strings.Join(got, " ")+" " != want {
		t.Fatalf("followed %q", got)
	}
	failed := errors.New("no")
	if err := b.Follow(within(t, 10*time.Second), "x", 1, func(uint64, journal.Slot, []byte) error { return failed }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if err := j.Trim(9); err != nil {
		t.Fatal(err)
	}
	if err := b.Follow(within(t, 10*time.Second), "x", 1, nil); !errors.Is(err, journal.ErrTrimmed) {
		t.Fatalf("following what was trimmed: %v", err)
	}
	if err := b.Follow(within(t, 10*time.Second), "x", 99, nil); err == nil {
		t.Fatal("following from behind the end, as the disk of another cluster asks for")
	}
}

// TestTrimWaitsForStandbys: Trim keeps the records that a standby lacks, as long as the
// standby lives.
func TestTrimWaitsForStandbys(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	j := own(t, a, "x")
	for i := range 10 {
		mustPut(t, j, fmt.Sprint(i))
	}
	ctx := within(t, 20*time.Second)
	begins := func(want uint64) {
		t.Helper()
		end, mark, err := a.position(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		if at, err := a.begin(ctx, "x", mark, end); err != nil || at != want || mark.next != want {
			t.Fatalf("it begins at %d, the mark is %d, want %d, %v", at, mark.next, want, err)
		}
	}
	if err := b.Checkpoint(ctx, "x", 4); err != nil {
		t.Fatal(err)
	}
	if err := j.Trim(8); err != nil {
		t.Fatal(err)
	}
	begins(4)
	if err := b.Checkpoint(ctx, "x", 6); err != nil {
		t.Fatal(err)
	}
	if err := j.Trim(8); err != nil {
		t.Fatal(err)
	}
	begins(6)
	if err := b.Close(); err != nil { // a standby that is gone keeps no records
		t.Fatal(err)
	}
	if err := j.Trim(8); err != nil {
		t.Fatal(err)
	}
	begins(8)
}

// TestKeyBelowTheMark: a write that was under way for long may be applied after its key
// was trimmed.
func TestKeyBelowTheMark(t *testing.T) {
	endpoint, prefix := shared(t)
	c := connect(t, "a", prefix, endpoint)
	j := own(t, c, "x")
	mustPut(t, j, "one")
	first, err := c.client.Get(context.Background(), partKey(prefix, "x", 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, j, "two")
	mustPut(t, j, "three")
	if err := j.Trim(3); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Put(context.Background(), string(first.Kvs[0].Key), string(first.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(context.Background(), "x", 1, func(uint64, journal.Slot, []byte) error { return nil }); !errors.Is(err, journal.ErrTrimmed) {
		t.Fatalf("from the beginning: %v", err)
	}
	if got := bodies(t, c, "x", 3); got != "three" {
		t.Fatalf("it holds %q", got)
	}
	mustPut(t, j, "four")
	if err := j.Trim(4); err != nil {
		t.Fatal(err)
	}
	r, err := c.client.Get(context.Background(), prefix+"j/x/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || r.Count != 1 {
		t.Fatalf("%d keys are left, %v", r.Count, err)
	}
}

func TestOwners(t *testing.T) {
	endpoint, prefix := shared(t)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	own(t, a, "x")
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	tables := make(chan string)
	go func() {
		defer close(tables)
		b.Owners(ctx, func(m map[string]Owner) { //nolint:errcheck // it ends with ctx
			tables <- fmt.Sprint(len(m), m["x"].Server, m["y"].Server)
		})
	}()
	if got := <-tables; got != "1a" {
		t.Fatal(got)
	}
	y := own(t, b, "y")
	if got := <-tables; got != "2a b" && got != "2ab" {
		t.Fatal(got)
	}
	if o, ok, err := a.Owner(ctx, "y"); err != nil || !ok || o.Server != "b" || o.Epoch != y.Epoch() {
		t.Fatal(o, ok, err)
	}
	y.Close()
	if got := <-tables; got != "1a" {
		t.Fatal(got)
	}
	if _, ok, err := a.Owner(ctx, "y"); err != nil || ok {
		t.Fatal(ok, err)
	}
	cancel()
	for range tables {
	}
}

func TestBadNames(t *testing.T) {
	endpoint, prefix := shared(t)
	c := connect(t, "a", prefix, endpoint)
	for _, name := range []string{"", "a/b", "a b", "ü", strings.Repeat("a", 201)} {
		if _, err := c.Own(context.Background(), name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
	if _, err := c.Own(context.Background(), "good"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Own(context.Background(), "good"); err == nil {
		t.Error("one server took a journal twice")
	}
	for _, cfg := range []Config{
		{Server: "a"},
		{Server: "a/b", Endpoints: []string{endpoint}},
		{Server: "a", Endpoints: []string{endpoint}, Lease: 1500 * time.Millisecond},
	} {
		if c, err := Connect(context.Background(), cfg); err == nil {
			c.Close()
			t.Errorf("%+v was taken", cfg)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if c, err := Connect(ctx, Config{Server: "a", Endpoints: []string{"http://" + testkit.FreeAddress(t)}}); err == nil {
		c.Close()
		t.Error("nobody is there, and it connected")
	}
}

// TestForeignKeys: foreign values below the prefix lead to an error that names them, not
// to records.
func TestForeignKeys(t *testing.T) {
	endpoint, prefix := shared(t)
	c := connect(t, "a", prefix, endpoint)
	for i, kv := range [][2]string{
		{"h/%s", "nonsense"},
		{"t/%s", "nonsense"},
		{"j/%s/0000000000000002/0000", "nonsense"},
		{"j/%s/0000000000000003/0000", ""},
		{"j/%s/zz", "x"},
		{"o/%s", "{}"},
		{"f/%s/b", "x"},
	} {
		name := fmt.Sprint("n", i)
		j := own(t, c, name)
		mustPut(t, j, "one")
		if _, err := c.client.Put(context.Background(), prefix+fmt.Sprintf(kv[0], name), kv[1]); err != nil {
			t.Fatal(err)
		}
		err := c.Read(context.Background(), name, 1, func(uint64, journal.Slot, []byte) error { return nil })
		_, _, oerr := c.Owner(context.Background(), name)
		if terr := j.Trim(2); err == nil && oerr == nil && terr == nil {
			t.Errorf("%v: nobody minds", kv)
		}
	}
}
