package api

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/store"
)

// auditAPI shows the audit events of the partition.
type auditAPI struct {
	apiv1.UnimplementedAuditServer
	s *Services
}

const (
	auditPage    = 50
	maxAuditPage = 1000
	// auditScan is the number of entries that a page may read which have nothing for its caller.
	auditScan = 20_000
)

// partition returns the name of the partition in events.
func (s *Services) partition() string { return cmp.Or(s.cfg.Partition, "main") }

// ListAuditEvents implements [apiv1.AuditServer].
func (a *auditAPI) ListAuditEvents(ctx context.Context, req *apiv1.ListAuditEventsRequest) (*apiv1.ListAuditEventsResponse, error) {
	tokens, err := audit.ParseTokens(req.PageToken)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	if req.OldestFirst {
		return a.oldestFirst(ctx, req, tokens)
	}
	before := tokens[a.s.partition()]
	if before == audit.NoMore {
		return &apiv1.ListAuditEventsResponse{}, nil
	}
	names, keep := selection(ctx, req)
	from, to := times(req)
	size := AuditPage(req)
	resp := &apiv1.ListAuditEventsResponse{}
	scanned := 0
	// An entry may have been returned in part: its last events are before the token.
	pos := int64(store.FromEnd)
	if before.Sequence != 0 {
		pos = before.Position
	}
	for e, err := range a.s.cfg.Store.Audit(names, pos, 0, from, to) {
		if err != nil {
			a.s.cfg.Logger.Error("the audit log is damaged", "error", err)
			continue
		}
		events, err := a.events(e)
		if err != nil {
			return nil, status.Error(codes.DataLoss, err.Error())
		}
		for _, x := range slices.Backward(events) {
			if before.Sequence != 0 && x.Sequence >= before.Sequence || !keep(x) {
				continue
			}
			if len(resp.Events) == size {
				resp.NextPageToken = audit.Tokens{a.s.partition(): audit.MarkOf(resp.Events[size-1])}.String()
				return resp, nil
			}
			resp.Events = append(resp.Events, x)
		}
		if scanned++; scanned == auditScan {
			resp.NextPageToken = audit.Tokens{a.s.partition(): {Sequence: e.First, Position: e.Pos}}.String()
			return resp, nil
		}
	}
	return resp, nil
}

// oldestFirst returns the events behind a token, the oldest first.
func (a *auditAPI) oldestFirst(ctx context.Context, req *apiv1.ListAuditEventsRequest, tokens audit.Tokens) (*apiv1.ListAuditEventsResponse, error) {
	next, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (uint64, error) { return l.Audit.Next(), nil })
	if err != nil {
		return nil, err
	}
	r := &reading{a: a, resp: &apiv1.ListAuditEventsResponse{}, size: AuditPage(req)}
	r.from, r.to = times(req)
	_, r.keep = selection(ctx, req)
	mark, continued := tokens[a.s.partition()]
	r.mark = mark
	// Events before the begin of a selection are not missing.
	r.follows = continued || req.Since == nil
	switch {
	case r.mark.Sequence >= next:
		return nil, status.Errorf(codes.FailedPrecondition, "the page_token is behind event %d of the partition %s, whose log ends at event %d: the server was restored from an older backup, so begin again without a token, with since", r.mark.Sequence, a.s.partition(), next-1)
	case r.mark.Sequence+1 < next:
		err = r.read(ctx)
	}
	r.resp.NextPageToken = audit.Tokens{a.s.partition(): r.mark}.String()
	return r.resp, err
}

// reading is a page with the oldest events first that is being read.
type reading struct {
	a        *auditAPI
	resp     *apiv1.ListAuditEventsResponse
	mark     audit.Mark // the last event that was read
	follows  bool       // the next event has the next sequence, or there is a gap
	from, to int64      // Unix ms
	keep     func(*apiv1.AuditEvent) bool
	size     int
}

// read reads the log behind the mark.
func (r *reading) read(ctx context.Context) error {
	scanned := 0
	for e, err := range r.a.s.cfg.Store.AuditAfter(r.mark.Sequence, r.mark.Position) {
		switch {
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			return status.Error(codes.Internal, err.Error())
		case scanned == auditScan:
			r.resp.More = true
			return nil
		}
		scanned++
		var events []*apiv1.AuditEvent
		if err == nil {
			events, err = r.a.events(e)
		}
		if err != nil { // the entry behind it makes it a gap
			r.a.s.cfg.Logger.Error("the audit log is damaged", "error", err)
			continue
		}
		for _, x := range events {
			if !r.take(x, e.AtMs >= r.from && e.AtMs <= r.to) {
				r.resp.More = true
				return nil
			}
		}
		r.mark.Position = e.Pos
	}
	return nil
}

// take adds an event to the page if the request selects it. It reports false if the page is full.
func (r *reading) take(x *apiv1.AuditEvent, intime bool) bool {
	if x.Sequence <= r.mark.Sequence {
		return true
	}
	selected := intime && r.keep(x)
	if selected && len(r.resp.Events) == r.size {
		return false
	}
	if r.follows && x.Sequence > r.mark.Sequence+1 {
		r.resp.Gaps = append(r.resp.Gaps, &apiv1.AuditGap{Partition: r.a.s.partition(), First: r.mark.Sequence + 1, Last: x.Sequence - 1})
	}
	r.mark, r.follows = audit.MarkOf(x), true
	if selected {
		r.resp.Events = append(r.resp.Events, x)
	}
	return true
}

// times returns the bounds of the times of a request, in Unix ms.
func times(req *apiv1.ListAuditEventsRequest) (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	if req.Since != nil {
		from = req.Since.AsTime().UnixMilli()
	}
	if req.Until != nil {
		to = req.Until.AsTime().UnixMilli()
	}
	return from, to
}

// AuditPage returns the number of events on a page.
func AuditPage(req *apiv1.ListAuditEventsRequest) int {
	if req.PageSize <= 0 {
		return auditPage
	}
	return int(min(req.PageSize, maxAuditPage))
}

// events decodes the events of an entry, oldest first.
func (a *auditAPI) events(e store.AuditEntry) ([]*apiv1.AuditEvent, error) {
	row := &apiv1.Audited{}
	if err := proto.Unmarshal(e.Value, row); err != nil {
		return nil, fmt.Errorf("the audit event %d cannot be read: %w", e.First, err)
	}
	m, err := audit.Events(row)
	if err != nil {
		return nil, err
	}
	return audit.Messages(e.First, e.Pos, e.AtMs, a.s.partition(), m), nil
}

// selection returns the names of the entries that may have events of a request, and whether an event is
// one that the request selects and its caller may see.
func selection(ctx context.Context, req *apiv1.ListAuditEventsRequest) (names []string, keep func(*apiv1.AuditEvent) bool) {
	sees := access.Sees(ctx, "audit.read")
	prefix, isPrefix := strings.CutSuffix(req.Code, ".")
	if req.App != "" {
		names = append(names, audit.AppName(req.App))
	}
	if req.Actor != "" {
		names = append(names, audit.ActorName(req.Actor))
	}
	if req.Code != "" && !isPrefix {
		names = append(names, audit.CodeName(req.Code))
	}
	return names, func(e *apiv1.AuditEvent) bool {
		switch {
		case req.App != "" && e.App != req.App, req.Actor != "" && e.Actor != req.Actor:
			return false
		case isPrefix && !strings.HasPrefix(e.Code, prefix+"."), req.Code != "" && !isPrefix && e.Code != req.Code:
			return false
		}
		return sees(e.App)
	}
}

// VerifyAudit implements [apiv1.AuditServer].
func (a *auditAPI) VerifyAudit(ctx context.Context, req *apiv1.VerifyAuditRequest) (*apiv1.VerifyAuditResponse, error) {
	var checks []*audit.Check
	for _, m := range req.Anchors {
		anchor, err := audit.ParseAnchor(m)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "the anchor of the partition %.80q: %v", m.GetPartition(), err)
		}
		if m.GetPartition() == a.s.partition() {
			checks = append(checks, &audit.Check{Anchor: anchor})
		}
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	c := &apiv1.AuditChain{Partition: a.s.partition(), Ok: true}
	var chain audit.Chain
	broken := func(at uint64, problem error) {
		if c.Ok {
			c.Ok, c.BrokenAt, c.Problem = false, at, problem.Error()
		}
	}
	for e, err := range a.s.cfg.Store.AuditFromStart() {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				return nil, status.Error(codes.Internal, err.Error())
			}
			broken(chain.First(), err)
			continue
		}
		row := &apiv1.Audited{}
		if err := proto.Unmarshal(e.Value, row); err != nil {
			broken(e.First, fmt.Errorf("the events cannot be read: %w", err))
			continue
		}
		from := c.First == 0
		if from {
			c.First = e.First
		}
		if err := chain.Follow(row, e.AtMs, from && e.First > 1); err != nil {
			broken(e.First, err)
		}
		for _, k := range checks {
			k.Follow(&chain, e.First)
		}
		if m, err := audit.Events(row); err == nil {
			c.Events += audit.Count(m)
		}
	}
	for _, k := range checks {
		if err := k.Err(&chain); err != nil {
			broken(min(k.Anchor.Sequence, chain.First()), err)
		}
	}
	c.Last, c.Head = chain.First()-1, hex.EncodeToString(chain.Head[:])
	return &apiv1.VerifyAuditResponse{Chains: []*apiv1.AuditChain{c}}, nil
}

// ListAuditAnchors implements [apiv1.AuditServer].
func (a *auditAPI) ListAuditAnchors(ctx context.Context, _ *apiv1.ListAuditAnchorsRequest) (*apiv1.ListAuditAnchorsResponse, error) {
	all, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) ([]*apiv1.AuditAnchor, error) { return l.Access.State.Anchors.List(), nil })
	return &apiv1.ListAuditAnchorsResponse{Anchors: all}, err
}

// AnchorAudit implements [apiv1.AuditServer].
func (a *auditAPI) AnchorAudit(ctx context.Context, req *apiv1.AnchorAuditRequest) (*apiv1.AnchorAuditResponse, error) {
	if req.GetAnchor().GetPartition() == a.s.partition() {
		return nil, status.Errorf(codes.InvalidArgument, "the partition %s keeps the anchors of the others", a.s.partition())
	}
	resp := &apiv1.AnchorAuditResponse{}
	return resp, a.change(ctx, func(st *access.State) (changes []access.Change, err error) {
		changes, resp.Stored, err = st.Anchors.Move(req, time.Now())
		return changes, err
	})
}

// RemoveAuditAnchor implements [apiv1.AuditServer].
func (a *auditAPI) RemoveAuditAnchor(ctx context.Context, req *apiv1.RemoveAuditAnchorRequest) (*apiv1.RemoveAuditAnchorResponse, error) {
	return &apiv1.RemoveAuditAnchorResponse{}, a.change(ctx, func(st *access.State) ([]access.Change, error) { return st.Anchors.Remove(req.Partition) })
}

func (a *auditAPI) change(ctx context.Context, decide func(*access.State) ([]access.Change, error)) error {
	_, err := core.Change(ctx, a.s.loop, func(l *core.Loop) (struct{}, error) { return struct{}{}, l.ChangeAccess(decide) })
	return err
}

// CheckAnchor returns an error unless the log contains an anchor. It reads the log from the anchor on.
func (s *Services) CheckAnchor(ctx context.Context, anchor audit.Anchor) error {
	if err := s.loop.CaughtUp(ctx); err != nil {
		return err
	}
	var chain audit.Chain
	k := &audit.Check{Anchor: anchor}
	for e, err := range s.cfg.Store.AuditAfter(max(anchor.Sequence, 1)-1, 0) {
		switch {
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			return err
		case err != nil:
			continue // the entry after it shows what is missing
		}
		row := &apiv1.Audited{}
		if err := proto.Unmarshal(e.Value, row); err != nil {
			return fmt.Errorf("the audit event %d cannot be read: %w", e.First, err)
		}
		chain.Follow(row, e.AtMs, chain.Next == 0) //nolint:errcheck // VerifyAudit reports the breaks of the chain: this is about one event
		if k.Follow(&chain, e.First); chain.First() > anchor.Sequence {
			break
		}
	}
	return k.Err(&chain)
}
