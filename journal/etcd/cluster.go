package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Config configures a server's access to the journals of its cluster.
type Config struct {
	Endpoints []string      // of etcd, as URLs; at least one
	Member    *Member       // of that etcd, in this process: it gets the requests while it can serve them; nil: there is none
	Prefix    string        // of all keys; default "wheelwork/"
	Grows     bool          // the members of etcd may change: the endpoints are updated from them every 10 s
	Server    string        // the server's id: required, and no two servers may share one
	Address   string        // address at which other processes reach the server; readers of the owner key see it
	Lease     time.Duration // how long a dead server stays the owner of its journals; default 3 s, whole seconds
	Quota     int64         // of etcd's database in bytes, if etcd does not report it; default 2 GiB, which is etcd's own default
	// Keep is the interval at which etcd is maintained: its history compacted, its room
	// measured, its files defragmented; default 5 s.
	Keep   time.Duration
	TLS    *tls.Config  // nil: none
	Logger *slog.Logger // default: discard

	oldest, newest int // forms that this server understands, see form.go; tests set them to simulate other versions
}

func (c *Config) defaults() error {
	switch {
	case len(c.Endpoints) == 0:
		return errors.New("etcd: no endpoint is given")
	case !validName(c.Server):
		return fmt.Errorf("etcd: %q is not a server's id: use 1 to 200 letters, digits and . _ - ~", c.Server)
	}
	c.Prefix, c.Lease, c.Keep = cmp.Or(c.Prefix, "wheelwork/"), cmp.Or(c.Lease, 3*time.Second), cmp.Or(c.Keep, 5*time.Second)
	if c.Lease < time.Second || c.Lease%time.Second != 0 {
		return fmt.Errorf("etcd: a lease of %v: use whole seconds, at least one", c.Lease)
	}
	c.Quota = cmp.Or(c.Quota, 2<<30)
	c.oldest, c.newest = cmp.Or(c.oldest, oldestForm), cmp.Or(c.newest, newestForm)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// validName reports whether a name can be a piece of a key.
func validName(s string) bool {
	return s != "" && len(s) <= 200 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-~") == ""
}

const (
	// maxTxn bounds the bytes of a transaction: etcd's own limit is 1.5 MiB.
	maxTxn = 2 * maxPart
	// maxJournals bounds the journals in a transaction: etcd's own limit is 128
	// operations, and each journal has up to four of a kind.
	maxJournals = 24

	syncEvery = 10 * time.Second // interval at which the endpoints are updated from the members

	minPause = 10 * time.Millisecond // after a transaction without an answer; doubled each time, up to maxPause
	maxPause = 500 * time.Millisecond
)

// Cluster is a server's access to the journals of its cluster. It is safe for
// concurrent use.
type Cluster struct {
	cfg    Config
	client *clientv3.Client
	near   *clientv3.Client // client of the member in this process; nil: there is none
	away   atomic.Pointer[absence]
	log    *slog.Logger
	began  int64 // the origin of epochs, see beganKey; only Connect writes it

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	kick chan struct{} // capacity 1: there may be records to write

	mu       sync.Mutex
	journals []*Journal // the owned journals
	turn     int        // index in journals at which the next gather starts
	lease    *lease     // nil: no lease now
	granting sync.Mutex // held while a lease is granted

	// silent is the time since which transactions have no answer, in Unix nanoseconds; 0:
	// etcd answers.
	silent atomic.Int64
	full   atomic.Bool   // etcd refuses writes: its quota is used up
	room   atomic.Int64  // bytes, as last measured, minus the bytes written since
	look   chan struct{} // capacity 1: measure now
	form   atomic.Int64  // the lowest form that the cluster can have, as far as Raise knows
}

// lease is the lease of the server's keys.
type lease struct {
	id   clientv3.LeaseID
	gone chan struct{} // closed when etcd has said that the lease has ended
}

// Connect opens the access. It returns when etcd has answered or when ctx ends.
func Connect(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	var sync time.Duration
	if cfg.Grows {
		sync = syncEvery
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, TLS: cfg.TLS, Logger: bridge(cfg.Logger), AutoSyncInterval: sync,
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		BackoffWaitBetween: minPause, MaxUnaryRetries: 3, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(passLeaderless)},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(cfg.Endpoints, ", "), err)
	}
	c := &Cluster{cfg: cfg, client: client, log: cfg.Logger, kick: make(chan struct{}, 1), look: make(chan struct{}, 1)}
	if cfg.Member != nil {
		c.near = nearClient(cfg.Member)
	}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.measure(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("etcd at %s does not answer: %w", strings.Join(cfg.Endpoints, ", "), err), c.closeClients())
	}
	err = c.checkForm(ctx)
	for start := time.Now(); passing(err) && ctx.Err() == nil && time.Since(start) < c.patience(); { // etcd elects another leader
		c.pause(maxPause)
		err = c.checkForm(ctx)
	}
	if err != nil {
		c.cancel()
		return nil, errors.Join(err, c.closeClients())
	}
	c.wg.Go(c.commit)
	c.wg.Go(c.upkeep)
	return c, nil
}

// Close closes the open journals, revokes the lease and ends all goroutines of c.
func (c *Cluster) Close() error {
	c.mu.Lock()
	open := append([]*Journal(nil), c.journals...)
	c.mu.Unlock()
	var errs []error
	for _, j := range open {
		errs = append(errs, j.Close())
	}
	c.mu.Lock()
	l := c.lease
	c.mu.Unlock()
	if l != nil {
		ctx, cancel := context.WithTimeout(c.ctx, c.patience())
		_, _ = c.nearest().Revoke(ctx, l.id) // if it fails, the lease expires by itself
		cancel()
	}
	c.cancel()
	c.wg.Wait()
	return errors.Join(append(errs, c.closeClients())...)
}

func (c *Cluster) closeClients() error {
	if c.near != nil {
		c.near.Close() //nolint:errcheck // it has no connection, and says that it ended
	}
	return c.client.Close()
}

// patience is how long one attempt may take. An attempt without an answer by then is
// repeated, usually with another member.
func (c *Cluster) patience() time.Duration { return c.cfg.Lease / 2 }

func (c *Cluster) key(kind, name string) string { return c.cfg.Prefix + kind + "/" + name }

func partKey(prefix, name string, seq uint64, index int) string {
	return fmt.Sprintf("%sj/%s/%016x/%04x", prefix, name, seq, index)
}

// parseKey parses the part of a key that follows the journal's name.
func parseKey(rest string) (seq uint64, index int, err error) {
	s, p, ok := strings.Cut(rest, "/")
	if ok && len(s) == 16 && len(p) == 4 {
		if _, err = fmt.Sscanf(s+" "+p, "%016x %04x", &seq, &index); err == nil && fmt.Sprintf("%016x/%04x", seq, index) == rest && seq > 0 {
			return seq, index, nil
		}
	}
	return 0, 0, fmt.Errorf("etcd has the key %q among the records: a newer version or a program other than a server wrote it", rest)
}

// grant returns the server's lease, or a new one if there is none.
func (c *Cluster) grant(ctx context.Context) (*lease, error) {
	c.granting.Lock()
	defer c.granting.Unlock()
	c.mu.Lock()
	l := c.lease
	c.mu.Unlock()
	if l != nil {
		return l, nil
	}
	resp, err := c.nearest().Grant(ctx, int64(c.cfg.Lease/time.Second))
	if err != nil {
		return nil, fmt.Errorf("ask etcd for a lease: %w", err)
	}
	l = &lease{resp.ID, make(chan struct{})}
	c.mu.Lock()
	c.lease = l
	c.mu.Unlock()
	c.wg.Go(func() { c.renew(l) })
	return l, nil
}

// renew renews a lease until etcd says that it has ended. A silence of etcd that is
// longer than the lease does not end it: without a quorum no lease expires, and a new
// leader of etcd extends every lease to its full time.
func (c *Cluster) renew(l *lease) {
	for c.ctx.Err() == nil {
		to, within, done := c.steady(c.ctx)
		if answers, err := to.KeepAlive(within, l.id); err == nil {
			for range answers {
			}
		}
		done()
		ctx, cancel := context.WithTimeout(c.ctx, c.patience())
		left, err := c.nearest().TimeToLive(ctx, l.id)
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && left.TTL <= 0 {
			break
		}
		c.pause(minPause * 10)
	}
	c.mu.Lock()
	if c.lease == l {
		c.lease = nil
	}
	owned := append([]*Journal(nil), c.journals...)
	c.mu.Unlock()
	close(l.gone)
	for _, j := range owned {
		if j.lease == l {
			j.lost()
		}
	}
}

// pause waits for d, or until the cluster is closed.
func (c *Cluster) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

func (c *Cluster) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// commit is the only goroutine that writes records.
func (c *Cluster) commit() {
	pause := minPause
	for {
		f := c.gather()
		if len(f) == 0 {
			select {
			case <-c.kick:
				continue
			case <-c.ctx.Done():
				return
			}
		}
		begun := time.Now()
		switch err := c.write(f); {
		case err == nil:
			pause = minPause
			c.delayCommit(f, time.Since(begun))
		case c.ctx.Err() != nil:
			return
		default:
			c.pause(pause)
			pause = min(2*pause, maxPause)
		}
	}
}

// delayCommit waits for new records of the callers whose records a transaction, which took
// that long, has just made durable. Other callers have appended records meanwhile. Without
// the delay, the two sets of callers would alternate, each with transactions of half the
// size, and every member of etcd pays for each transaction. After a transaction of fewer
// than minDelayed records there is no delay.
func (c *Cluster) delayCommit(pending []pendingAppend, took time.Duration) {
	const (
		minDelayed = 8 // records
		share      = 3 // the delay is at most the time of the transaction divided by share
		most       = time.Millisecond
	)
	carried := uint64(0)
	for _, g := range pending {
		carried += g.b.records()
	}
	if carried < minDelayed {
		return
	}
	timer := time.NewTimer(min(took/share, most))
	defer timer.Stop()
	for c.waiting() < carried {
		select {
		case <-c.kick:
		case <-timer.C:
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// waiting returns the number of staged records of all journals.
func (c *Cluster) waiting() (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.journals {
		n += j.waiting()
	}
	return n
}

// pendingAppend is the part of one journal in a transaction.
type pendingAppend struct {
	j     *Journal
	b     *batch
	parts [][]byte // parts of b, from number b.sent
	final bool     // parts has the last part of b
}

// gather returns the parts for the next transaction, from the journals in rotation.
func (c *Cluster) gather() []pendingAppend {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pending []pendingAppend
	size, n := 0, len(c.journals)
	for i := range n {
		j := c.journals[(c.turn+i)%n]
		g, bytes := j.take(maxTxn - size)
		if g.b == nil {
			continue
		}
		pending, size = append(pending, g), size+bytes
		if size >= maxTxn-maxPart/8 || len(pending) == maxJournals {
			break
		}
	}
	if n > 0 {
		c.turn = (c.turn + 1) % n
	}
	return pending
}

// write sends one transaction and completes the appends in it. After an error the
// outcome is unknown, and the caller tries again.
func (c *Cluster) write(pending []pendingAppend) error {
	var ifs []clientv3.Cmp
	var then, otherwise []clientv3.Op
	size := 0
	for _, g := range pending {
		owner := c.key("o", g.j.name)
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(owner), "=", g.j.created))
		otherwise = append(otherwise, clientv3.OpGet(owner, clientv3.WithKeysOnly()))
		for i, p := range g.parts {
			key := partKey(c.cfg.Prefix, g.j.name, g.b.first, g.b.sent+i)
			ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
			then = append(then, clientv3.OpPut(key, string(p)))
			otherwise = append(otherwise, clientv3.OpGet(key))
			size += len(key) + len(p)
		}
		if g.final {
			then = append(then, clientv3.OpPut(c.key("h", g.j.name), g.b.after.encode()))
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.patience())
	to, leader := c.nearest(), uint64(0)
	if to == c.near {
		leader = c.cfg.Member.leader()
	}
	resp, err := to.Txn(ctx).If(ifs...).Then(then...).Else(otherwise...).Commit()
	cancel()
	if err != nil {
		if to == c.near {
			c.missed(leader)
		}
		return c.unanswered(pending, err)
	}
	c.silent.Store(0)
	c.full.Store(false)
	if resp.Succeeded {
		c.room.Add(-int64(size))
		for _, g := range pending {
			g.j.wrote(g)
		}
		return nil
	}
	answers := resp.Responses
	for _, g := range pending {
		own := answers[0].GetResponseRange()
		found := answers[1 : 1+len(g.parts)]
		answers = answers[1+len(g.parts):]
		owned := len(own.Kvs) == 1 && own.Kvs[0].CreateRevision == g.j.created
		stored, foreign := 0, false
		for i, p := range g.parts {
			if kvs := found[i].GetResponseRange().Kvs; len(kvs) == 1 {
				if string(kvs[0].Value) == string(p) {
					stored++
				} else {
					foreign = true
				}
			}
		}
		switch {
		case stored == len(g.parts): // an earlier attempt was applied, but its answer was lost
			g.j.wrote(g)
			if !owned {
				g.j.fail(c.fenced(g.j))
			}
		case !owned:
			g.j.fail(c.fenced(g.j))
		case foreign || stored > 0:
			g.j.fail(fmt.Errorf("the journal %s has other records at %d than its owner wrote: a program other than a server wrote there", g.j.name, g.b.first))
		}
	}
	return nil
}

func (c *Cluster) fenced(j *Journal) error {
	return fmt.Errorf("%w: the ownership %d of the journal %s has ended", journalFenced, j.Epoch(), j.name)
}

// nearAgain is how long the member in this process gets no requests after a transaction
// that it did not accept.
const nearAgain = 5 * time.Second

// ledEvery is the interval at which steady checks which leader that member has.
const ledEvery = 100 * time.Millisecond

// nearest returns the client for the next request: that of the member in this process,
// or, while that member knows no leader or has just failed a transaction, the client of
// all members. The client of all members takes them in turn, so a member that is silent,
// but not gone, delays every server.
func (c *Cluster) nearest() *clientv3.Client {
	if c.near == nil {
		return c.client
	}
	leader := c.cfg.Member.leader()
	if a := c.away.Load(); leader == 0 || a != nil && a.leader == leader && time.Now().Before(a.until) {
		return c.client
	}
	return c.near
}

// absence is a time in which the member in this process gets no requests, because it did
// not accept a transaction. It ends at until, or earlier when the member has another
// leader than when the transaction was sent.
type absence struct {
	until  time.Time
	leader uint64
}

// missed begins an absence after a transaction that was sent under leader.
func (c *Cluster) missed(leader uint64) {
	c.away.Store(&absence{time.Now().Add(nearAgain), leader})
}

// get reads with the nearest client.
func (c *Cluster) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return ask(c, func(to *clientv3.Client) (*clientv3.GetResponse, error) { return to.Get(ctx, key, opts...) })
}

// ask sends a read to the nearest client. If the member in this process cannot answer
// now, for instance during a change of the leader, ask repeats it with the client of all
// members, which tries several times.
func ask[T any](c *Cluster, question func(*clientv3.Client) (T, error)) (T, error) {
	to := c.nearest()
	answer, err := question(to)
	if err != nil && to == c.near && passing(err) {
		return question(c.client)
	}
	return answer, err
}

// steady returns the client for a stream, such as a watch or the renewal of a lease, and
// a context for it. The context ends when the member in this process gets another leader
// or has none: without a leader the stream delivers nothing, and the member may wait for
// an unreachable former leader for longer than a lease. The caller calls the function
// when it no longer needs the context.
func (c *Cluster) steady(ctx context.Context) (*clientv3.Client, context.Context, func()) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	to := c.nearest()
	if to == c.near {
		leader := c.cfg.Member.leader()
		go func() {
			tick := time.NewTicker(ledEvery)
			defer tick.Stop()
			for leader != 0 && c.cfg.Member.leader() == leader {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
			cancel()
		}()
	}
	return to, ctx, cancel
}

// unanswered classifies the error of a transaction. It returns nil, after it has failed
// the journals, when a repetition makes no sense.
func (c *Cluster) unanswered(pending []pendingAppend, err error) error {
	var final error
	switch {
	case c.ctx.Err() != nil:
		return err
	case errors.Is(err, rpctypes.ErrNoSpace):
		if !c.full.Swap(true) {
			c.log.Error("etcd refuses writes because its quota is used up; the server accepts nothing new until etcd has room", "error", err)
		}
		c.measureSoon()
		return err
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		final = fmt.Errorf("etcd refuses a request of 1 MiB: start it with --max-request-bytes of at least 1572864, its default: %w", err)
	case errors.Is(err, rpctypes.ErrTooManyOps):
		final = fmt.Errorf("etcd refuses a transaction of %d operations: start it with --max-txn-ops of at least 128, its default: %w", 4*maxJournals, err)
	case errors.Is(err, rpctypes.ErrCorrupt):
		final = fmt.Errorf("etcd has found that its members differ and accepts nothing: %w", err)
	}
	if final != nil {
		for _, g := range pending {
			g.j.fail(final)
		}
		return nil
	}
	if c.silent.CompareAndSwap(0, time.Now().UnixNano()) {
		c.log.Warn("etcd does not answer", "error", err)
	}
	return err
}

// mayStage bounds the bytes of one journal that may wait for etcd.
func (c *Cluster) mayStage() int64 {
	if c.full.Load() {
		return maxStagedFull
	}
	return maxStaged
}

// refuses returns why the server should start nothing new now; nil when it may.
func (c *Cluster) refuses() error {
	if c.full.Load() {
		return fmt.Errorf("%w: etcd's quota is used up: compact and defragment it, or start it with a larger --quota-backend-bytes", journalFull)
	}
	if at := c.silent.Load(); at != 0 {
		if d := time.Since(time.Unix(0, at)); d > time.Second/2 {
			return fmt.Errorf("etcd has not answered for %v: a majority of its members is unreachable; schedules continue, and the server accepts nothing new until they answer", d.Round(100*time.Millisecond))
		}
	}
	return nil
}
