package node

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster/partition"
)

// anchorEvery is how often the ends of the audit logs go to the first partition of the cluster.
const anchorEvery = 10 * time.Second

// anchors notes the ends of the audit logs of a server's partitions in the first partition of the
// cluster, so that the log of a partition cannot be replaced with its files alone. It is for one
// goroutine.
type anchors struct {
	first    string // the partition that keeps the anchors, and has none
	replicas []*partition.Replica
	to       apiv1.AuditClient
	log      *slog.Logger
	stored   map[string]*apiv1.AuditAnchor // as far as this server knows
	told     map[string]string             // the last problem of a partition that was logged
}

// run notes the ends until ctx ends.
func (a *anchors) run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.all(ctx, every)
		case <-ctx.Done():
			return nil
		}
	}
}

// all notes the end of each partition that this server serves.
func (a *anchors) all(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, r := range a.replicas {
		services := r.Serving()
		if r.Name() == a.first || services == nil || !services.Enter() {
			continue
		}
		err := a.one(ctx, r.Name(), services.Sched)
		services.Leave()
		switch text := ""; {
		case ctx.Err() != nil:
			return
		case err != nil:
			if text = err.Error(); text != a.told[r.Name()] {
				a.log.Error("the end of an audit log is not anchored", "partition", r.Name(), "error", err)
			}
			a.told[r.Name()] = text
		default:
			delete(a.told, r.Name())
		}
	}
}

// auditLog is the audit log of a partition.
type auditLog interface {
	AuditEnd(context.Context) (audit.Anchor, error)
	CheckAnchor(context.Context, audit.Anchor) error
}

// one moves the anchor of a partition to the end of its log. If another server has moved it, or this
// one has started, the log must contain the stored anchor first.
func (a *anchors) one(ctx context.Context, name string, of auditLog) error {
	end, err := of.AuditEnd(ctx)
	if err != nil {
		return err
	}
	next := end.Message(name)
	for ctx.Err() == nil {
		if end.Sequence == 0 && a.stored[name] == nil || sameEnd(a.stored[name], next) {
			return nil
		}
		resp, err := a.to.AnchorAudit(ctx, &apiv1.AnchorAuditRequest{Anchor: next, Former: a.stored[name]})
		if err != nil {
			return err
		}
		if sameEnd(resp.Stored, next) {
			a.stored[name] = resp.Stored
			return nil
		}
		stored, err := audit.ParseAnchor(resp.Stored)
		if err == nil {
			err = of.CheckAnchor(ctx, stored)
		}
		if err != nil {
			return err
		}
		a.stored[name] = resp.Stored
	}
	return ctx.Err()
}

// sameEnd reports whether two anchors are at the same end of a log.
func sameEnd(a, b *apiv1.AuditAnchor) bool {
	return a != nil && proto.Equal(&apiv1.AuditAnchor{Partition: a.Partition, Sequence: a.Sequence, Head: a.Head}, b)
}
