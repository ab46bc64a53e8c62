package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// trimStride is how many keys one transaction removes, approximately: more would keep
// etcd from its other work.
const trimStride = 1000

// Trim implements [journal.Journal]. It retains the records that the disk of a standby does
// not have yet: see [Cluster.Checkpoint].
func (j *Journal) Trim(before uint64) error {
	j.mu.Lock()
	mark, end := j.mark, j.end
	err := j.err
	j.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(j.c.ctx, 10*j.c.patience())
	defer cancel()
	before, err = j.c.held(ctx, j.name, min(before, end.next))
	if err != nil || before <= mark.next {
		return err
	}
	begin, err := j.c.begin(ctx, j.name, mark, end)
	if err != nil || before <= begin {
		return err
	}
	first, err := j.c.batchOf(ctx, j.name, begin, before, end.next)
	if err != nil || first <= mark.next {
		return err
	}
	to := head{next: first, bytes: end.bytes}
	if first < end.next {
		if to.bytes, err = j.c.bytesBefore(ctx, j.name, first); err != nil {
			return err
		}
	}
	owner := j.c.key("o", j.name)
	own := clientv3.Compare(clientv3.CreateRevision(owner), "=", j.created)
	resp, err := j.c.nearest().Txn(ctx).If(own).Then(clientv3.OpPut(j.c.key("t", j.name), to.encode())).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace): // only deletions make room; readers take the first key as the beginning
	case err != nil:
		return fmt.Errorf("trim the journal %s: %w", j.name, err)
	case !resp.Succeeded:
		err := j.c.fenced(j)
		j.fail(err)
		return err
	}
	if err := j.c.remove(ctx, j.name, own, first); err != nil {
		return err
	}
	j.mu.Lock()
	j.mark = to
	j.mu.Unlock()
	return nil
}

// bytesBefore returns the size of the journal before the batch at a sequence, in bytes.
func (c *Cluster) bytesBefore(ctx context.Context, name string, seq uint64) (uint64, error) {
	resp, err := c.get(ctx, partKey(c.cfg.Prefix, name, seq, 0))
	if err != nil {
		return 0, fmt.Errorf("read the journal %s: %w", name, err)
	}
	if len(resp.Kvs) == 0 {
		return 0, fmt.Errorf("the journal %s has no batch at %d, where one began: records are missing", name, seq)
	}
	p, err := decodePart(resp.Kvs[0].Value)
	if err != nil {
		return 0, fmt.Errorf("the journal %s: the batch at %d %w", name, seq, err)
	}
	return p.before, nil
}

// remove deletes the records below a sequence, in transactions that require own.
func (c *Cluster) remove(ctx context.Context, name string, own clientv3.Cmp, before uint64) error {
	stop := partKey(c.cfg.Prefix, name, before, 0)
	for {
		key := c.cfg.Prefix + "j/" + name + "/"
		resp, err := c.get(ctx, key, clientv3.WithRange(stop), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("trim the journal %s: %w", name, err)
		}
		if resp.Count == 0 {
			return nil
		}
		end := stop
		if resp.Count > trimStride {
			first, err := c.get(ctx, key, clientv3.WithRange(stop), clientv3.WithLimit(1), clientv3.WithKeysOnly())
			if err != nil {
				return fmt.Errorf("trim the journal %s: %w", name, err)
			}
			if len(first.Kvs) == 1 {
				seq, _, err := c.seqOf(name, first.Kvs[0].Key)
				if err != nil {
					return err
				}
				end = partKey(c.cfg.Prefix, name, seq+max(1, (before-seq)*trimStride/uint64(resp.Count)), 0)
			}
		}
		txn, err := c.nearest().Txn(ctx).If(own).Then(clientv3.OpDelete(key, clientv3.WithRange(end))).Commit()
		if err != nil {
			return fmt.Errorf("trim the journal %s: %w", name, err)
		}
		if !txn.Succeeded {
			return fmt.Errorf("trim the journal %s: %w", name, journalFenced)
		}
	}
}

// Checkpoint records that this server, a standby, has the records of a journal below a
// sequence on its own disk: Trim retains the records from that sequence on. The checkpoint
// lasts as long as the server's lease. A standby that was away for longer, and finds the
// journal trimmed, begins with a snapshot.
func (c *Cluster) Checkpoint(ctx context.Context, name string, before uint64) error {
	l, err := c.grant(ctx)
	if err != nil {
		return err
	}
	_, err = c.nearest().Put(ctx, c.key("f", name)+"/"+c.cfg.Server, strconv.FormatUint(before, 10), clientv3.WithLease(l.id))
	if err != nil {
		return fmt.Errorf("write a checkpoint of the journal %s: %w", name, err)
	}
	return nil
}

// held returns the lowest of a sequence and of the checkpoints of all standbys.
func (c *Cluster) held(ctx context.Context, name string, before uint64) (uint64, error) {
	resp, err := c.get(ctx, c.key("f", name)+"/", clientv3.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("ask etcd for the standbys of %s: %w", name, err)
	}
	for _, kv := range resp.Kvs {
		n, err := strconv.ParseUint(string(kv.Value), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the checkpoint %s is %q, which is not a number", kv.Key, kv.Value)
		}
		before = min(before, n)
	}
	return before, nil
}

const (
	quotaReserve  = 64 << 20 // of the quota; never counted as room
	wastefulBytes = 32 << 20 // a file over 80 % of the quota is defragmented if more than min(this, quota/4) is unused
)

// upkeep measures, compacts and defragments etcd every Keep until the cluster is closed.
func (c *Cluster) upkeep() {
	tick := time.NewTicker(c.cfg.Keep)
	defer tick.Stop()
	var old int64 // the revision at the last tick: watchers have passed it by now
	for {
		select {
		case <-tick.C:
		case <-c.look:
		case <-c.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, max(c.cfg.Keep, 30*time.Second))
		if err := c.measure(ctx); err != nil {
			cancel()
			continue
		}
		if c.maintains(ctx) {
			old = c.clean(ctx, old)
		}
		cancel()
	}
}

func (c *Cluster) measureSoon() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// member is the status that one etcd member reports.
type member struct {
	endpoint string
	leader   bool
	size     int64 // bytes of its file
	used     int64 // bytes of the file that are in use
}

// statuses asks all endpoints, each for at most c.patience(). One answer is enough.
func (c *Cluster) statuses(ctx context.Context) (found []member, revision int64, quota int64, alarms []string, err error) {
	quota = c.cfg.Quota
	for _, at := range c.client.Endpoints() {
		ctx, cancel := context.WithTimeout(ctx, c.patience())
		s, serr := c.client.Status(ctx, at)
		cancel()
		if serr != nil {
			err = serr
			continue
		}
		if s.DbSizeQuota > 0 {
			quota = s.DbSizeQuota
		}
		found = append(found, member{at, s.Leader == s.Header.MemberId, s.DbSize, s.DbSizeInUse})
		revision = max(revision, s.Header.Revision)
		alarms = append(alarms, s.Errors...)
	}
	if len(found) > 0 {
		err = nil
	}
	return found, revision, quota, alarms, err
}

// measure stores the room that is left of the quota in c.room.
func (c *Cluster) measure(ctx context.Context) error {
	found, _, quota, _, err := c.statuses(ctx)
	if err != nil {
		return err
	}
	room := quota
	for _, m := range found {
		room = min(room, quota-m.size)
	}
	c.room.Store(max(0, room-min(quotaReserve, quota/8)))
	return nil
}

// maintains reports whether this server maintains etcd. If etcd is full and refuses a new
// election, and no server is elected, every server maintains it, which is harmless.
func (c *Cluster) maintains(ctx context.Context) bool {
	key := c.cfg.Prefix + "keeper"
	o, ok, err := c.owner(ctx, key)
	if err != nil || ok && o.Server != c.cfg.Server {
		return false
	}
	l, err := c.grant(ctx)
	if err == nil {
		_, err = c.campaign(ctx, key, l, false)
	}
	return err == nil || errors.Is(err, rpctypes.ErrNoSpace)
}

// clean compacts etcd's history up to the revision old, defragments members with much
// unused space, and lifts the alarm once there is room. It returns the current revision.
func (c *Cluster) clean(ctx context.Context, old int64) int64 {
	found, revision, quota, alarms, err := c.statuses(ctx)
	if err != nil {
		return old
	}
	if len(alarms) > 0 { // every revision that can be dropped counts
		old = revision
	}
	if old > 0 {
		_, err := c.client.Compact(ctx, old, clientv3.WithCompactPhysical())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			c.log.Warn("compact etcd", "error", err)
		}
		found, _, _, _, err = c.statuses(ctx)
		if err != nil {
			return old
		}
	}
	// The leader comes last: a member serves no requests during its defragmentation.
	slices.SortStableFunc(found, func(a, b member) int { return boolInt(a.leader) - boolInt(b.leader) })
	roomy := true
	for _, m := range found {
		if wasteful(m, quota) {
			c.log.Info("etcd is defragmented", "endpoint", m.endpoint, "bytes", m.size, "used", m.used)
			if _, err := c.client.Defragment(ctx, m.endpoint); err != nil {
				c.log.Warn("defragment etcd", "endpoint", m.endpoint, "error", err)
			}
			m.size = m.used
		}
		roomy = roomy && m.size < quota/10*9
	}
	if slices.ContainsFunc(alarms, isNoSpace) && roomy {
		c.disarm(ctx)
	}
	return revision
}

// wasteful reports whether a member's file should be defragmented: the quota counts the
// size of the file, not the part that is in use.
func wasteful(m member, quota int64) bool {
	free := m.size - m.used
	return m.size > quota/2 && free > m.size/2 || m.size > quota/10*8 && free > min(wastefulBytes, quota/4)
}

func (c *Cluster) disarm(ctx context.Context) {
	list, err := c.client.AlarmList(ctx)
	if err != nil {
		return
	}
	for _, a := range list.Alarms {
		if a.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		if _, err := c.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.MemberID, Alarm: a.Alarm}); err != nil {
			c.log.Warn("lift etcd's alarm", "error", err)
			return
		}
		c.log.Info("etcd has room again")
	}
	c.full.Store(false)
	_ = c.measure(ctx) // if it fails, the next tick measures
	c.wake()
}

func isNoSpace(alarm string) bool { return strings.Contains(alarm, pb.AlarmType_NOSPACE.String()) }

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
