package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The forms of what is below the prefix that this program understands: the keys
// of the package comment, and their values. A change that an older program would
// misread is a new form, and newest goes up with the release that reads it;
// oldest with the one that cannot read the old form any more, never in the same.
// So servers of neighbouring versions work on one journal.
const (
	oldestForm = 1
	newestForm = 1
)

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
// or written. A cluster that is new gets the newest one.
func (c *Cluster) checkForm(ctx context.Context) error {
	key := c.cfg.Prefix + "form"
	resp, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpGet(c.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("ask etcd for the form of the journal: %w", err)
	}
	got := resp.Responses[0].GetResponseRange()
	form := c.cfg.newest
	switch {
	case !resp.Succeeded:
		if form, err = strconv.Atoi(string(got.Kvs[0].Value)); err != nil {
			return fmt.Errorf("etcd says that the form of the journal is %q, which is no number: it was changed by somebody else than a server", got.Kvs[0].Value)
		}
	case got.Count > 0: // it began before there was such a key
		form = 1
	}
	if form < c.cfg.oldest || form > c.cfg.newest {
		return &FormError{form, c.cfg.oldest, c.cfg.newest}
	}
	if !resp.Succeeded {
		return nil
	}
	// Two that begin at once agree: the first one's form holds, and the other looks again.
	txn, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, strconv.Itoa(form))).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) { // the next one that connects notes it
		return nil
	}
	if err != nil {
		return fmt.Errorf("note the form of the journal: %w", err)
	}
	if !txn.Succeeded {
		return c.checkForm(ctx)
	}
	return nil
}
