package router

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched"
)

// This file merges the answers of several partitions into one.

// unite answers a call for an app that is in several partitions.
func (r *Router) unite(ctx context.Context, app, method string, req proto.Message) (proto.Message, error) {
	if len(r.View.PartitionsOfApp(app)) == 0 {
		return nil, status.Errorf(codes.Unavailable, "where the app %s began is not known yet: try again in a moment", app)
	}
	switch methods.Of(method).Merge {
	case apiv1.Merge_MERGE_COUNTS:
		return r.uniteCounts(ctx, app, method, req)
	case apiv1.Merge_MERGE_NAMES:
		return r.uniteNames(ctx, app, method, req)
	case apiv1.Merge_MERGE_TIMES:
		if q, ok := req.(*apiv1.ListRunsRequest); ok {
			return r.uniteRuns(ctx, app, method, q)
		}
	case apiv1.Merge_MERGE_TURNS:
		return r.uniteBulk(ctx, app, method, req)
	}
	return nil, status.Errorf(codes.Unimplemented, "%s is not merged from several partitions", method)
}

// answers returns the answers of the partitions of an app, that of the primary partition
// first. A partition that has nothing of what the request names is left out, unless all
// have nothing.
func (r *Router) answers(ctx context.Context, app, method string, req proto.Message) (parts []proto.Message, err error) {
	kind, err := replyOf(method)
	if err != nil {
		return nil, err
	}
	var none error
	for _, partition := range r.View.PartitionsOfApp(app) {
		part := kind.New().Interface()
		switch err := r.callPartition(ctx, partition, app, method, req, part); {
		case status.Code(err) == codes.NotFound:
			none = err
		case err != nil:
			return nil, err
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return nil, none
	}
	return parts, nil
}

// uniteCounts adds the counts of the other partitions to the answer of the primary one.
func (r *Router) uniteCounts(ctx context.Context, app, method string, req proto.Message) (proto.Message, error) {
	parts, err := r.answers(ctx, app, method, req)
	if err != nil {
		return nil, err
	}
	all := parts[0]
	for _, part := range parts[1:] {
		combine(all.ProtoReflect(), part.ProtoReflect())
		if o, ok := all.(*apiv1.Overview); ok {
			combineOverviews(o, part.(*apiv1.Overview))
		}
	}
	return all, nil
}

// combine adds the fields of part to those of all that have the option combine.
func combine(all, part protoreflect.Message) {
	fields := all.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		how, _ := proto.GetExtension(f.Options(), apiv1.E_Combine).(apiv1.Combine)
		if how == apiv1.Combine_COMBINE_FIRST {
			continue
		}
		a, b := all.Get(f), part.Get(f)
		switch {
		case how == apiv1.Combine_COMBINE_SUM && f.Kind() == protoreflect.Int64Kind:
			a = protoreflect.ValueOfInt64(a.Int() + b.Int())
		case how == apiv1.Combine_COMBINE_MAX && f.Kind() == protoreflect.Int32Kind:
			a = protoreflect.ValueOfInt32(int32(max(a.Int(), b.Int())))
		case how == apiv1.Combine_COMBINE_MAX && f.Kind() == protoreflect.DoubleKind:
			a = protoreflect.ValueOfFloat64(max(a.Float(), b.Float()))
		}
		all.Set(f, a)
	}
}

// combineOverviews combines what is neither a sum nor a maximum.
func combineOverviews(all, part *apiv1.Overview) {
	if all.Writable && !part.Writable {
		all.Writable, all.NotWritableReason = false, part.NotWritableReason
	}
	uniteMinutes(all, part.Minutes)
}

// uniteApps merges apps of the same name.
func uniteApps(apps []*apiv1.App) []*apiv1.App {
	byName := map[string]*apiv1.App{}
	var names []string
	for _, a := range apps {
		have := byName[a.Name]
		if have == nil {
			byName[a.Name], names = a, append(names, a.Name)
			continue
		}
		combine(have.ProtoReflect(), a.ProtoReflect())
	}
	all := make([]*apiv1.App, 0, len(names))
	for _, name := range names {
		all = append(all, byName[name])
	}
	return all
}

// uniteMinutes adds minutes to those in all with the same start.
func uniteMinutes(all *apiv1.Overview, minutes []*apiv1.Minute) {
	at := map[int64]*apiv1.Minute{}
	for _, m := range all.Minutes {
		at[m.GetStart().GetSeconds()] = m
	}
	for _, m := range minutes {
		have := at[m.GetStart().GetSeconds()]
		if have == nil { // the clocks of two servers differ, or a minute has begun in between
			continue
		}
		have.Accepted += m.Accepted
		have.Succeeded += m.Succeeded
		have.Failed += m.Failed
	}
}

const defaultPage, maxPage = 50, 1000

func pageOf(size int32) int {
	if size <= 0 {
		return defaultPage
	}
	return int(min(size, maxPage))
}

// uniteNames merges lists by name, or by the order of the request. The token of a page is the
// position of its last entry, as in the list of one partition.
func (r *Router) uniteNames(ctx context.Context, app, method string, req proto.Message) (proto.Message, error) {
	pages, err := r.answers(ctx, app, method, req)
	if err != nil {
		return nil, err
	}
	q, ok := req.(interface{ GetPageSize() int32 })
	if !ok {
		return nil, status.Errorf(codes.Internal, "%s is merged by names, and its request has no page_size", method)
	}
	position := namedEntry.GetName
	if jobs, ok := req.(*apiv1.ListJobsRequest); ok {
		if position, err = positionOfJobs(jobs.Order); err != nil {
			return nil, err
		}
	}
	return mergeNames(pages, pageOf(q.GetPageSize()), position)
}

// positionOfJobs returns the function that returns the position of a job in an order.
func positionOfJobs(name string) (func(namedEntry) string, error) {
	order, err := job.OrderOf(name)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	ms := func(t *timestamppb.Timestamp) int64 {
		if t == nil {
			return 0
		}
		return t.AsTime().UnixMilli()
	}
	return func(e namedEntry) string {
		j, ok := e.(*apiv1.Job)
		if !ok {
			return e.GetName()
		}
		return order.Position(j.Name, ms(j.GetStats().GetLastFinishedAt()), ms(j.NextAt))
	}, nil
}

// namedEntry is an entry of a list by name.
type namedEntry interface {
	proto.Message
	GetName() string
}

// entriesOf returns the list of a page.
func entriesOf(page proto.Message) protoreflect.FieldDescriptor {
	fields := page.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.IsList() && f.Message() != nil {
			return f
		}
	}
	return nil
}

// mergeNames merges pages into one: of any response with one list of named messages and a
// next_page_token. The page ends at the first last position of those pages that have more
// behind them: beyond it the merged list would not be complete. Positions sort as the list does.
func mergeNames(pages []proto.Message, size int, position func(namedEntry) string) (proto.Message, error) {
	var entries []namedEntry
	last, more := "", false
	for _, p := range pages {
		list := p.ProtoReflect().Get(entriesOf(p)).List()
		for i := range list.Len() {
			entries = append(entries, list.Get(i).Message().Interface().(namedEntry))
		}
		token := p.(interface{ GetNextPageToken() string }).GetNextPageToken()
		if token == "" {
			continue
		}
		end, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, status.Error(codes.Internal, "a partition ended a list with what is no token")
		}
		if !more || string(end) < last {
			last, more = string(end), true
		}
	}
	slices.SortStableFunc(entries, func(a, b namedEntry) int { return strings.Compare(position(a), position(b)) })
	entries = slices.CompactFunc(entries, func(a, b namedEntry) bool { return position(a) == position(b) }) // one that moved meanwhile is in two
	if more {
		n, _ := slices.BinarySearchFunc(entries, last+"\x00", func(e namedEntry, end string) int { return strings.Compare(position(e), end) })
		entries = entries[:n]
	}
	page, n := sched.Page{}, 0
	for n < min(len(entries), size) && page.Fits(entries[n]) {
		n++
	}
	if n < len(entries) {
		entries = entries[:n]
		last, more = position(entries[n-1]), true
	}
	all := pages[0].ProtoReflect().New()
	list := all.Mutable(entriesOf(pages[0])).List()
	for _, e := range entries {
		list.Append(protoreflect.ValueOfMessage(e.ProtoReflect()))
	}
	if more {
		all.Set(all.Descriptor().Fields().ByName("next_page_token"), protoreflect.ValueOfString(base64.RawURLEncoding.EncodeToString([]byte(last))))
	}
	return all.Interface(), nil
}

// partitionTokens says where the lists of partitions continue. The list of a partition that is
// missing has ended. As text it begins with unitsToken.
type partitionTokens map[string]string

const partitionsToken = "units."

func (t partitionTokens) String() string {
	if len(t) == 0 {
		return ""
	}
	b, _ := json.Marshal(map[string]string(t)) // texts always encode
	return partitionsToken + base64.RawURLEncoding.EncodeToString(b)
}

// parsePartitionTokens reads where lists continue. "": at the beginning, in all partitions. A
// token of one partition, from before the app was split, is the primary partition's.
func parsePartitionTokens(s string, partitions []string) (partitionTokens, error) {
	t := partitionTokens{}
	if s == "" {
		for _, partition := range partitions {
			t[partition] = ""
		}
		return t, nil
	}
	text, ok := strings.CutPrefix(s, partitionsToken)
	if !ok {
		return partitionTokens{partitions[0]: s}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, (*map[string]string)(&t))
	}
	for partition := range t {
		if !slices.Contains(partitions, partition) {
			err = errors.New("no such partition")
		}
	}
	if err != nil || len(t) == 0 {
		return nil, status.Error(codes.InvalidArgument, "page_token is not one that this list returned")
	}
	return t, nil
}

// uniteRuns merges the pages of the partitions into one.
func (r *Router) uniteRuns(ctx context.Context, app, method string, q *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	partitions := r.View.PartitionsOfApp(app)
	from, err := parsePartitionTokens(q.PageToken, partitions)
	if err != nil {
		return nil, err
	}
	return mergeRuns(partitions, from, pageOf(q.PageSize), func(partition, token string, size int) (*apiv1.ListRunsResponse, error) {
		part, resp := proto.CloneOf(q), &apiv1.ListRunsResponse{}
		part.PageToken, part.PageSize = token, int32(size)
		return resp, r.callPartition(ctx, partition, app, method, part, resp)
	})
}

// mergeRuns requests an equal share of a page from each partition and sorts the page: the
// newest first, as far as the shares reach. If the shares are too large together, it
// requests them again with fewer runs, because a token refers to the end of a share.
func mergeRuns(partitions []string, from partitionTokens, size int, ask func(partition, token string, size int) (*apiv1.ListRunsResponse, error)) (*apiv1.ListRunsResponse, error) {
	for each := max(size/len(from), 1); ; {
		pages, next, fit, err := runPages(partitions, from, each, ask)
		if err != nil {
			return nil, err
		}
		if fit {
			return joinRuns(pages, next), nil
		}
		most := 0
		for _, p := range pages {
			most = max(most, len(p.Runs))
		}
		each = max(min(each, most)/2, 1)
	}
}

// runPages requests so many runs from each partition. It ends early, with fit false, when
// their pages together are larger than one page may be. With one run from each it takes
// those that fit; the lists of the other partitions stay where they were.
func runPages(partitions []string, from partitionTokens, each int, ask func(partition, token string, size int) (*apiv1.ListRunsResponse, error)) (pages []*apiv1.ListRunsResponse, next partitionTokens, fit bool, err error) {
	next = partitionTokens{}
	room := sched.Page{}
	for _, partition := range partitions {
		token, ok := from[partition]
		if !ok {
			continue
		}
		page, err := ask(partition, token, each)
		if err != nil {
			return nil, nil, false, err
		}
		switch fits := room.Fits(page); {
		case !fits && each > 1:
			return append(pages, page), nil, false, nil
		case !fits:
			next[partition] = token
			continue
		case page.NextPageToken != "":
			next[partition] = page.NextPageToken
		}
		pages = append(pages, page)
	}
	return pages, next, true, nil
}

// joinRuns merges pages of partitions into one; the lists continue at next.
func joinRuns(pages []*apiv1.ListRunsResponse, next partitionTokens) *apiv1.ListRunsResponse {
	all := &apiv1.ListRunsResponse{NextPageToken: next.String()}
	seen := map[string]bool{}
	for _, page := range pages {
		for _, run := range page.Runs {
			if !seen[run.Id] { // a run that moved meanwhile is in two
				seen[run.Id] = true
				all.Runs = append(all.Runs, run)
			}
		}
		all.UnreadableBlocks += page.UnreadableBlocks
		all.Examined += page.Examined
		all.ExaminedNewest = latest(all.ExaminedNewest, page.ExaminedNewest)
		all.ExaminedOldest = latest(all.ExaminedOldest, page.ExaminedOldest) // all partitions were read as far as this
	}
	slices.SortStableFunc(all.Runs, func(a, b *apiv1.Run) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), -a.PlannedAt.AsTime().Compare(b.PlannedAt.AsTime()), strings.Compare(a.Id, b.Id))
	})
	return all
}

// latest returns the later one of two times; nil: no time.
func latest(a, b *timestamppb.Timestamp) *timestamppb.Timestamp {
	if a == nil || b != nil && b.AsTime().After(a.AsTime()) {
		return b
	}
	return a
}

// rank puts live runs before those that have ended, as in the list of one partition.
func rank(r *apiv1.Run) int {
	if job.State(r.State).Terminal() {
		return 1
	}
	return 0
}

// bulkResponse is the response of a method that is merged in turns.
type bulkResponse interface {
	proto.Message
	GetMatched() int32
	GetChanged() int32
	GetFailures() []string
	GetNextPageToken() string
}

// maxFailures bounds the failures in the response of a method that is merged in turns.
const maxFailures = 100

// uniteBulk processes a page of each partition. The request has a page_token, and the
// response the fields of bulkResponse.
func (r *Router) uniteBulk(ctx context.Context, app, method string, req proto.Message) (proto.Message, error) {
	partitions := r.View.PartitionsOfApp(app)
	q := proto.Clone(req).ProtoReflect()
	tokenField := q.Descriptor().Fields().ByName("page_token")
	from, err := parsePartitionTokens(q.Get(tokenField).String(), partitions)
	if err != nil {
		return nil, err
	}
	kind, err := replyOf(method)
	if err != nil {
		return nil, err
	}
	matched, changed, failures, next := int32(0), int32(0), []string(nil), partitionTokens{}
	for _, partition := range partitions {
		token, ok := from[partition]
		if !ok {
			continue
		}
		q.Set(tokenField, protoreflect.ValueOfString(token))
		resp, ok := kind.New().Interface().(bulkResponse)
		if !ok {
			return nil, status.Errorf(codes.Internal, "the response of %s cannot be merged in turns", method)
		}
		if err := r.callPartition(ctx, partition, app, method, q.Interface(), resp); err != nil {
			return nil, err
		}
		matched += resp.GetMatched()
		changed += resp.GetChanged()
		failures = append(failures, resp.GetFailures()...)
		if resp.GetNextPageToken() != "" {
			next[partition] = resp.GetNextPageToken()
		}
	}
	all := kind.New()
	set := func(name protoreflect.Name, v protoreflect.Value) { all.Set(all.Descriptor().Fields().ByName(name), v) }
	set("matched", protoreflect.ValueOfInt32(matched))
	set("changed", protoreflect.ValueOfInt32(changed))
	set("next_page_token", protoreflect.ValueOfString(next.String()))
	list := all.Mutable(all.Descriptor().Fields().ByName("failures")).List()
	for _, f := range failures[:min(len(failures), maxFailures)] {
		list.Append(protoreflect.ValueOfString(f))
	}
	return all.Interface(), nil
}
