package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The forms of what is below the prefix that this program understands: the keys
// of the package comment, and their values. A change that an older program would
// misread is a new form, and newest goes up with the release that reads it;
// oldest with the one that cannot read the old form any more, never in the same.
// So servers of neighbouring versions work on one journal.
//
// A cluster begins with the oldest one, and gets a newer one when something is
// begun that has need of it ([Cluster.Raise]): until then a server of the version
// before may join, and an upgrade may be taken back.
const (
	oldestForm = 1
	newestForm = FormSplit
)

// FormSplit is the form of clusters in which an app is, or was, in several units:
// its journals hold records of slots that move, and the table says where they are.
const FormSplit = 2

// FormError says that a cluster has a form that this program does not understand.
type FormError struct{ Form, Oldest, Newest int }

func (e *FormError) Error() string {
	knows := fmt.Sprintf("form %d", e.Newest)
	if e.Oldest != e.Newest {
		knows = fmt.Sprintf("the forms %d to %d", e.Oldest, e.Newest)
	}
	advice := "start a version of this program that is as new as those of the other servers"
	if e.Form < e.Oldest {
		advice = "start the version before this one first, which takes the journal along"
	}
	return fmt.Sprintf("the cluster's journal has form %d, and this program understands %s: %s", e.Form, knows, advice)
}

// checkForm looks which form the cluster has, before anything else of it is read
// or written. A cluster that is new, or began before there was such a key, has
// the oldest one.
func (c *Cluster) checkForm(ctx context.Context) error {
	key := c.cfg.Prefix + "form"
	resp, err := c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpGet(c.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("ask etcd for the form of the journal: %w", err)
	}
	got := resp.Responses[0].GetResponseRange()
	form := c.cfg.oldest
	switch {
	case !resp.Succeeded:
		if form, err = parseForm(got.Kvs[0].Value); err != nil {
			return err
		}
	case got.Count > 0: // it began before there was such a key
		form = 1
	}
	if form < c.cfg.oldest || form > c.cfg.newest {
		return &FormError{form, c.cfg.oldest, c.cfg.newest}
	}
	if !resp.Succeeded {
		return c.readBegan(ctx)
	}
	note := []clientv3.Op{clientv3.OpPut(key, strconv.Itoa(form))}
	if got.Count == 0 {
		note = append(note, clientv3.OpPut(c.cfg.Prefix+beganKey, strconv.FormatInt(time.Now().UnixMicro(), 10)))
	}
	// Two that begin at once agree: the first one's form holds, and the other looks again.
	txn, err := c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(note...).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) && got.Count > 0 { // the next one that connects notes it
		return nil
	}
	if err != nil {
		return fmt.Errorf("note the form of the journal: %w", err)
	}
	if !txn.Succeeded {
		return c.checkForm(ctx)
	}
	return c.readBegan(ctx)
}

// beganKey holds when the cluster began, in Unix microseconds. Epochs count from
// there: a cluster that is restored from a backup has another etcd, whose revisions
// begin anew, and meets hosts and a nameserver that know epochs of the one before and
// refuse lower ones. etcd makes fewer revisions than one a microsecond. A cluster
// that began before there was such a key has none, and counts from zero.
const beganKey = "began"

func (c *Cluster) readBegan(ctx context.Context) error {
	resp, err := c.get(ctx, c.cfg.Prefix+beganKey)
	if err != nil {
		return fmt.Errorf("ask etcd when the cluster began: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	if c.began, err = strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64); err != nil || c.began < 0 {
		return fmt.Errorf("etcd says that the cluster began at %q, which is no time: it was changed by somebody else than a server", resp.Kvs[0].Value)
	}
	return nil
}

// epochOf returns the epoch of the ownership whose key has a create revision.
func (c *Cluster) epochOf(revision int64) uint64 { return uint64(c.began + revision) }

func parseForm(value []byte) (int, error) {
	form, err := strconv.Atoi(string(value))
	if err != nil {
		return 0, fmt.Errorf("etcd says that the form of the journal is %q, which is no number: it was changed by somebody else than a server", value)
	}
	return form, nil
}

// Raise gives the cluster a form that it needs from now on, unless it has that or
// a newer one. When it has returned, programs that do not understand the form
// keep away; those that work already are not asked.
func (c *Cluster) Raise(ctx context.Context, form int) error {
	if int(c.form.Load()) >= form {
		return nil
	}
	if form > c.cfg.newest {
		return &FormError{form, c.cfg.oldest, c.cfg.newest}
	}
	key := c.cfg.Prefix + "form"
	for {
		got, err := c.get(ctx, key)
		if err != nil {
			return fmt.Errorf("ask etcd for the form of the journal: %w", err)
		}
		has, revision := 0, int64(0)
		if len(got.Kvs) > 0 {
			revision = got.Kvs[0].ModRevision
			if has, err = parseForm(got.Kvs[0].Value); err != nil {
				return err
			}
		}
		done := has >= form
		if !done {
			txn, err := c.nearest().Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
				Then(clientv3.OpPut(key, strconv.Itoa(form))).Commit()
			if err != nil {
				return fmt.Errorf("note that the journal has form %d from now on: %w", form, err)
			}
			done = txn.Succeeded
		}
		if done {
			c.form.Store(int64(form))
			return nil
		}
	}
}
