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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
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
	before := tokens[a.s.partition()]
	if before == audit.NoMore {
		return &apiv1.ListAuditEventsResponse{}, nil
	}
	names, keep := selection(ctx, req)
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	if req.Since != nil {
		from = req.Since.AsTime().UnixMilli()
	}
	if req.Until != nil {
		to = req.Until.AsTime().UnixMilli()
	}
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
func (a *auditAPI) VerifyAudit(ctx context.Context, _ *apiv1.VerifyAuditRequest) (*apiv1.VerifyAuditResponse, error) {
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
		if m, err := audit.Events(row); err == nil {
			c.Events += audit.Count(m)
		}
	}
	c.Last, c.Head = chain.First()-1, hex.EncodeToString(chain.Head[:])
	return &apiv1.VerifyAuditResponse{Chains: []*apiv1.AuditChain{c}}, nil
}
