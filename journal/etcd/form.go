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

// The format versions, here called forms, that this program understands. A form is the
// layout of the keys in the package comment and of their values. A change that an older
// program would misread gets a new form. newestForm increases with the release that can
// read the new form. oldestForm increases with the release that can no longer read the
// old form, and the two never increase in the same release. So servers of neighbouring
// versions can work on one journal.
//
// A new cluster has the oldest form. It gets a newer one when a feature is first used
// that needs it ([Cluster.Raise]). Until then, a server of the former version may join,
// and an upgrade may be taken back.
const (
	oldestForm = 1
	newestForm = FormSplit
)

// FormSplit is the form of clusters in which an app is, or was, in several partitions:
// the journals hold records of slots that move, and the table has the placement of the
// slots.
const FormSplit = 2

// FormError is returned when a cluster has a form that this program does not understand.
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

// checkForm checks the form of the cluster before anything else of the cluster is read or
// written. It stores the oldest form for a new cluster, and form 1 for a cluster that is
// older than the key.
func (c *Cluster) checkForm(ctx context.Context) error {
	key := c.cfg.Prefix + "form"
	resp, err := c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpGet(c.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("read the format version of the journal from etcd: %w", err)
	}
	got := resp.Responses[0].GetResponseRange()
	form := c.cfg.oldest
	switch {
	case !resp.Succeeded:
		if form, err = parseForm(got.Kvs[0].Value); err != nil {
			return err
		}
	case got.Count > 0: // the cluster is older than the key
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
	// If two servers start at once, the form that is stored first holds, and the other
	// server checks again.
	txn, err := c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(note...).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) && got.Count > 0 { // the next server that connects stores it
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the format version of the journal: %w", err)
	}
	if !txn.Succeeded {
		return c.checkForm(ctx)
	}
	return c.readBegan(ctx)
}

// beganKey holds the time at which the cluster began, in Unix microseconds. Epochs count
// from it: after a restore from a backup, the cluster has another etcd, whose revisions
// start again, while hosts and the nameserver remember the epochs of the former etcd and
// refuse lower ones. etcd makes less than one revision per microsecond. A cluster that is
// older than this key has none, and counts from zero.
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
		return fmt.Errorf("etcd has %q as the start of the cluster, which is not a time: a program other than a server changed it", resp.Kvs[0].Value)
	}
	return nil
}

// epochOf returns the epoch of the ownership whose key has this create revision.
func (c *Cluster) epochOf(revision int64) uint64 { return uint64(c.began + revision) }

func parseForm(value []byte) (int, error) {
	form, err := strconv.Atoi(string(value))
	if err != nil {
		return 0, fmt.Errorf("etcd has the format version %q of the journal, which is not a number: a program other than a server changed it", value)
	}
	return form, nil
}

// Raise stores a format version for the cluster, unless the cluster already has that or a
// newer one. The caller is about to use a feature that needs it. After Raise has returned,
// programs that do not understand the version refuse to start. Running programs are not
// checked again.
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
			return fmt.Errorf("read the format version of the journal from etcd: %w", err)
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
				return fmt.Errorf("write the format version %d of the journal: %w", form, err)
			}
			done = txn.Succeeded
		}
		if done {
			c.form.Store(int64(form))
			return nil
		}
	}
}
