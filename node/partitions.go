package node

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched"
)

// This file sends requests to other partitions: for the runs of one partition what
// another one has, and for a caller an answer that is merged from several.

// again reports whether to repeat a request after an error. It does so if the partition
// or the job was moving and nothing was done. It waits a little before.
func (r *router) again(ctx context.Context, err error, changed <-chan struct{}) bool {
	if !moved(err) {
		return false
	}
	select {
	case <-changed:
		return true
	case <-time.After(routePatience / 100): // another server may learn of it earlier
		return true
	case <-ctx.Done():
		return false
	}
}

// moved reports whether an error says that a job is in another partition now, or is
// moving.
func moved(err error) bool {
	var m *sched.MovedError
	if errors.As(err, &m) {
		return true
	}
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable && strings.HasPrefix(s.Message(), sched.MovedText)
}

// ask sends a request to the owner of a partition: this server, or another one.
func (r *router) ask(ctx context.Context, req *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, routePatience)
	defer cancel()
	for {
		changed := r.view.change()
		resp, err := r.askOnce(ctx, req)
		if err == nil || named(err) == "" {
			return resp, err
		}
		select { // the owner is not the one that was known
		case <-changed:
		case <-time.After(routePatience / 100):
		case <-ctx.Done():
			return nil, status.Error(codes.Unavailable, status.Convert(err).Message())
		}
	}
}

func (r *router) askOnce(ctx context.Context, req *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	services, err := r.enter(ctx, req.Unit, req.App)
	address := named(err)
	switch {
	case err == nil:
		defer services.leave()
		return asked(ctx, services, req)
	case address == "":
		return nil, err
	}
	conn, err := r.peers.conn(address)
	if err != nil {
		return nil, err
	}
	return apiv1.NewMembershipClient(conn).Ask(ctx, req)
}

// asked answers a request to a partition of this server.
func asked(ctx context.Context, services *partitionServices, req *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	ctx = sched.OffSlot(ctx) // the slot of the call in ctx is in another partition
	resp, err := &apiv1.AskResponse{}, error(nil)
	switch q := req.What.(type) {
	case *apiv1.AskRequest_Get:
		resp.Get, err = services.sched.Entry(ctx, req.App, q.Get)
	case *apiv1.AskRequest_Put:
		resp.Put, err = services.sched.PutEntry(ctx, req.App, q.Put)
	case *apiv1.AskRequest_Delete:
		err = services.sched.DeleteEntry(ctx, req.App, q.Delete)
	case *apiv1.AskRequest_Enqueue:
		resp.Enqueue, err = services.sched.Enqueue(ctx, req.App, q.Enqueue, req.TraceParent)
	case *apiv1.AskRequest_Run:
		if len(q.Run) != len(job.RunID{}) {
			return nil, status.Error(codes.InvalidArgument, "the run that is asked for has no id")
		}
		resp.Run, err = services.sched.Find(ctx, req.App, job.RunID(q.Run))
	case *apiv1.AskRequest_Call:
		resp.Answer, err = askedCall(ctx, services, q.Call)
	default:
		err = status.Error(codes.Unimplemented, "this server does not understand what it is asked: it is of an older version")
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// askedCall answers, for one partition, a call whose answer is merged from several.
func askedCall(ctx context.Context, services *partitionServices, q *apiv1.AskedCall) ([]byte, error) {
	if routings[q.GetMethod()] != byPartitions {
		return nil, status.Errorf(codes.InvalidArgument, "%q is not put together from units", q.GetMethod())
	}
	service, name := pathOf(q.Method)
	kind, err := requestOf(service, name)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	req := kind.New().Interface()
	if err := proto.Unmarshal(q.Request, req); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	resp, err := answer(ctx, services, service, descOf(service, name), req)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(resp.(proto.Message))
}

// callPartition makes a call to one partition.
func (r *router) callPartition(ctx context.Context, partition, app, method string, req, resp proto.Message) error {
	body, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	a, err := r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: app, What: &apiv1.AskRequest_Call{Call: &apiv1.AskedCall{Method: method, Request: body}}})
	if err != nil {
		return err
	}
	return proto.Unmarshal(a.Answer, resp)
}

// remote makes the requests of one partition's runs to other partitions.
type remote struct {
	r         *router
	partition string
}

// owned returns a context that ends when this server no longer owns the partition:
// requests of its runs must not hold up the next owner.
func (x *remote) owned(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	services := x.r.partitions[x.partition].services.Load()
	if services == nil {
		cancel()
		return ctx, cancel
	}
	go func() {
		select {
		case <-services.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Run implements [sched.Remote]. No other partition has runs of an app that is not split.
func (x *remote) Run(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	if !x.r.view.isSplit(app) {
		return nil, nil
	}
	ctx, cancel := x.owned(ctx)
	defer cancel()
	for _, partition := range x.r.view.partitionsOfApp(app) {
		if partition == x.partition {
			continue
		}
		resp, err := x.r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: app, What: &apiv1.AskRequest_Run{Run: id[:]}})
		if err != nil {
			return nil, err
		}
		if resp.Run != nil {
			return resp.Run, nil
		}
	}
	return nil, nil
}

// home sends a request to the primary partition of an app.
func (x *remote) home(ctx context.Context, app string, req *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	partition, ok := x.r.view.partitionOf(app)
	if !ok || partition == x.partition {
		return nil, status.Errorf(codes.Unavailable, "where the app %s began is not known yet: try again in a moment", app)
	}
	req.Unit, req.App = partition, app
	ctx, cancel := x.owned(ctx)
	defer cancel()
	return x.r.ask(ctx, req)
}

// Get implements [sched.Remote].
func (x *remote) Get(ctx context.Context, app string, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error) {
	resp, err := x.home(ctx, app, &apiv1.AskRequest{What: &apiv1.AskRequest_Get{Get: req}})
	return resp.GetGet(), err
}

// Put implements [sched.Remote].
func (x *remote) Put(ctx context.Context, app string, req *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error) {
	resp, err := x.home(ctx, app, &apiv1.AskRequest{What: &apiv1.AskRequest_Put{Put: req}})
	return resp.GetPut(), err
}

// Delete implements [sched.Remote].
func (x *remote) Delete(ctx context.Context, app string, req *apiv1.GuestDeleteEntryRequest) error {
	_, err := x.home(ctx, app, &apiv1.AskRequest{What: &apiv1.AskRequest_Delete{Delete: req}})
	return err
}

// Enqueue implements [sched.Remote]. The run has one id however often it is requested.
func (x *remote) Enqueue(ctx context.Context, from string, req *apiv1.GuestEnqueueRequest, traceParent string) (*apiv1.GuestEnqueueResponse, error) {
	ctx, cancel := x.owned(ctx)
	defer cancel()
	ctx, done := context.WithTimeout(ctx, routePatience)
	defer done()
	app := cmp.Or(req.App, from)
	for {
		changed := x.r.view.change()
		partition, ok := x.r.view.partitionOfSlot(app, job.SlotOf(req.Job))
		if !ok {
			partition = x.r.view.fallback()
		}
		resp, err := x.r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: from, What: &apiv1.AskRequest_Enqueue{Enqueue: req}, TraceParent: traceParent})
		if err == nil || !x.r.again(ctx, err, changed) {
			return resp.GetEnqueue(), err
		}
	}
}

// partitionOfLog returns the partition that has the log of a run: that of its job, or the one
// where the run ended before the job moved.
func (r *router) partitionOfLog(ctx context.Context, app, partition string, q *apiv1.ReadLogRequest) (string, error) {
	id, err := job.ParseRunID(q.GetId())
	if err != nil {
		return partition, nil // the service reports the invalid id
	}
	partitions := append([]string{partition}, r.view.partitionsOfApp(app)...)
	for i, at := range partitions {
		if i > 0 && at == partition {
			continue
		}
		resp, err := r.ask(ctx, &apiv1.AskRequest{Unit: at, App: app, What: &apiv1.AskRequest_Run{Run: id[:]}})
		if err != nil {
			return "", err
		}
		if resp.Run != nil {
			return at, nil
		}
	}
	return partition, nil
}

// unite answers a call for an app that is split.
func (r *router) unite(ctx context.Context, app, method string, req proto.Message) (proto.Message, error) {
	switch req.(type) {
	case *apiv1.GetAppRequest, *apiv1.GetOverviewRequest, *apiv1.ListJobsRequest, *apiv1.ListRunsRequest, *apiv1.BulkJobsRequest:
	default:
		return nil, status.Errorf(codes.Unimplemented, "%s is not put together from units", method)
	}
	if len(r.view.partitionsOfApp(app)) == 0 {
		return nil, status.Errorf(codes.Unavailable, "where the app %s began is not known yet: try again in a moment", app)
	}
	switch q := req.(type) {
	case *apiv1.GetAppRequest:
		return r.uniteApp(ctx, app, method, q)
	case *apiv1.GetOverviewRequest:
		return r.uniteOverview(ctx, app, method, q)
	case *apiv1.ListJobsRequest:
		return r.uniteJobs(ctx, app, method, q)
	case *apiv1.ListRunsRequest:
		return r.uniteRuns(ctx, app, method, q)
	default:
		return r.uniteBulk(ctx, app, method, req.(*apiv1.BulkJobsRequest))
	}
}

func (r *router) uniteApp(ctx context.Context, app, method string, q *apiv1.GetAppRequest) (*apiv1.App, error) {
	var all *apiv1.App
	for _, partition := range r.view.partitionsOfApp(app) {
		part := &apiv1.App{}
		switch err := r.callPartition(ctx, partition, app, method, q, part); {
		case status.Code(err) == codes.NotFound:
			continue
		case err != nil:
			return nil, err
		}
		if all == nil { // the primary partition is the first one
			all = part
		} else {
			all.Jobs += part.Jobs
			all.Live += part.Live
		}
	}
	if all == nil {
		return nil, status.Errorf(codes.NotFound, "there is nothing in app %q: `wheelwork app list` shows the apps that there are", app)
	}
	return all, nil
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
		have.Jobs += a.Jobs
		have.Live += a.Live
	}
	all := make([]*apiv1.App, 0, len(names))
	for _, name := range names {
		all = append(all, byName[name])
	}
	return all
}

func (r *router) uniteOverview(ctx context.Context, app, method string, q *apiv1.GetOverviewRequest) (*apiv1.Overview, error) {
	var all *apiv1.Overview
	for _, partition := range r.view.partitionsOfApp(app) {
		part := &apiv1.Overview{}
		if err := r.callPartition(ctx, partition, app, method, q, part); err != nil {
			return nil, err
		}
		if all == nil {
			all = part
			continue
		}
		all.Jobs += part.Jobs
		all.Armed += part.Armed
		all.Queued += part.Queued
		all.Running += part.Running
		all.Dispatched += part.Dispatched
		all.Sleeping += part.Sleeping
		all.Waiting += part.Waiting
		all.SucceededTotal += part.SucceededTotal
		all.FailedTotal += part.FailedTotal
		all.HostsUp, all.HostsLost = max(all.HostsUp, part.HostsUp), max(all.HostsLost, part.HostsLost)
		all.LatenessP50Ms, all.LatenessP99Ms = max(all.LatenessP50Ms, part.LatenessP50Ms), max(all.LatenessP99Ms, part.LatenessP99Ms)
		if all.Writable && !part.Writable {
			all.Writable, all.NotWritableReason = false, part.NotWritableReason
		}
		uniteMinutes(all, part.Minutes)
	}
	return all, nil
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

// uniteJobs merges lists by name. The token of a page is the last name on it, as in the
// list of one partition.
func (r *router) uniteJobs(ctx context.Context, app, method string, q *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	var pages []*apiv1.ListJobsResponse
	for _, partition := range r.view.partitionsOfApp(app) {
		part := &apiv1.ListJobsResponse{}
		if err := r.callPartition(ctx, partition, app, method, q, part); err != nil {
			return nil, err
		}
		pages = append(pages, part)
	}
	return mergeJobs(pages, pageOf(q.PageSize))
}

// mergeJobs merges pages into one. The page ends at the first last name of those pages
// that have more behind them: beyond it the merged list would not be complete.
func mergeJobs(pages []*apiv1.ListJobsResponse, size int) (*apiv1.ListJobsResponse, error) {
	all := &apiv1.ListJobsResponse{}
	last, more := "", false
	for _, p := range pages {
		all.Jobs = append(all.Jobs, p.Jobs...)
		if p.NextPageToken == "" {
			continue
		}
		name, err := base64.RawURLEncoding.DecodeString(p.NextPageToken)
		if err != nil {
			return nil, status.Error(codes.Internal, "a unit ended a list with what is no token")
		}
		if !more || string(name) < last {
			last, more = string(name), true
		}
	}
	slices.SortStableFunc(all.Jobs, func(a, b *apiv1.Job) int { return strings.Compare(a.Name, b.Name) })
	all.Jobs = slices.CompactFunc(all.Jobs, func(a, b *apiv1.Job) bool { return a.Name == b.Name }) // a job that moved meanwhile is in two
	if more {
		n, _ := slices.BinarySearchFunc(all.Jobs, last+"\x00", func(j *apiv1.Job, name string) int { return strings.Compare(j.Name, name) })
		all.Jobs = all.Jobs[:n]
	}
	page, n := sched.Page{}, 0
	for n < min(len(all.Jobs), size) && page.Fits(all.Jobs[n]) {
		n++
	}
	if n < len(all.Jobs) {
		all.Jobs = all.Jobs[:n]
		last, more = all.Jobs[n-1].Name, true
	}
	if more {
		all.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(last))
	}
	return all, nil
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
			err = errors.New("no such unit")
		}
	}
	if err != nil || len(t) == 0 {
		return nil, status.Error(codes.InvalidArgument, "page_token is not one that this list returned")
	}
	return t, nil
}

// uniteRuns merges the pages of the partitions into one.
func (r *router) uniteRuns(ctx context.Context, app, method string, q *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	partitions := r.view.partitionsOfApp(app)
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
	}
	slices.SortStableFunc(all.Runs, func(a, b *apiv1.Run) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), -a.PlannedAt.AsTime().Compare(b.PlannedAt.AsTime()), strings.Compare(a.Id, b.Id))
	})
	return all
}

// rank puts live runs before those that have ended, as in the list of one partition.
func rank(r *apiv1.Run) int {
	if job.State(r.State).Terminal() {
		return 1
	}
	return 0
}

// uniteBulk processes a page of each partition.
func (r *router) uniteBulk(ctx context.Context, app, method string, q *apiv1.BulkJobsRequest) (*apiv1.BulkJobsResponse, error) {
	partitions := r.view.partitionsOfApp(app)
	from, err := parsePartitionTokens(q.PageToken, partitions)
	if err != nil {
		return nil, err
	}
	all, next := &apiv1.BulkJobsResponse{}, partitionTokens{}
	part := proto.CloneOf(q)
	for _, partition := range partitions {
		token, ok := from[partition]
		if !ok {
			continue
		}
		part.PageToken = token
		resp := &apiv1.BulkJobsResponse{}
		if err := r.callPartition(ctx, partition, app, method, part, resp); err != nil {
			return nil, err
		}
		all.Matched += resp.Matched
		all.Changed += resp.Changed
		all.Failures = append(all.Failures, resp.Failures...)
		if resp.NextPageToken != "" {
			next[partition] = resp.NextPageToken
		}
	}
	all.Failures = all.Failures[:min(len(all.Failures), 100)]
	all.NextPageToken = next.String()
	return all, nil
}

// conn returns a connection to another server, with the token of servers. It is shared,
// and stays open until Close.
func (p *peers) conn(address string) (grpc.ClientConnInterface, error) {
	return p.kept(address, p.key)
}

func (p *peers) kept(address, token string) (grpc.ClientConnInterface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := [2]string{address, token}
	if c := p.conns[at]; c != nil {
		return c, nil
	}
	c, err := transport.Dial(address, token, p.caCert)
	if err != nil {
		return nil, err
	}
	if p.conns == nil {
		p.conns = map[[2]string]*grpc.ClientConn{}
	}
	p.conns[at] = c
	return c, nil
}

// Close closes the shared connections.
func (p *peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close() //nolint:errcheck // nothing is under way
	}
	p.conns = nil
	return nil
}
