package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
	"github.com/wheelworkhq/wheelwork/sched"
)

const (
	// PartitionHeader names the partition to which a host's stream belongs, and its requests
	// on behalf of its runs.
	PartitionHeader = "wheelwork-unit"
	// localHeader names the partitions for which a server asks another one.
	localHeader = "wheelwork-local"
)

// registrar collects services instead of serving them.
type registrar map[string]any

func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) { r[d.ServiceName] = impl }

// routed returns the services that every partition has of its own.
func routed() []*grpc.ServiceDesc {
	return []*grpc.ServiceDesc{
		&apiv1.Jobs_ServiceDesc, &apiv1.Apps_ServiceDesc, &apiv1.Calendars_ServiceDesc, &apiv1.Revisions_ServiceDesc, &apiv1.ChangeSets_ServiceDesc, &apiv1.Runs_ServiceDesc, &apiv1.Alerts_ServiceDesc, &apiv1.Events_ServiceDesc,
		&apiv1.Modules_ServiceDesc, &apiv1.Producer_ServiceDesc, &apiv1.Worker_ServiceDesc, &apiv1.Guest_ServiceDesc,
		&apiv1.Values_ServiceDesc, &apiv1.Secrets_ServiceDesc, &apiv1.ModuleAccess_ServiceDesc, &apiv1.Cluster_ServiceDesc, &apiv1.Access_ServiceDesc, &apiv1.Audit_ServiceDesc, &apiv1.Machines_ServiceDesc,
		&apiv1.Operations_ServiceDesc,
	}
}

// Router takes the place of the services of a standalone server, and passes each call to
// the partition of its app. If another server owns that, the call fails with a [Redirect],
// which clients follow. If none does, the call waits for Patience at most.
type Router struct {
	Forwarder
	// Writes reports whether a method may create an app.
	Writes func(method string) bool
	// PublicURL is where people reach the console of this server; "": at the address of the API.
	PublicURL string
}

// Register puts the routed services on s.
func (r *Router) Register(s *grpc.Server) error {
	for _, d := range routed() {
		own := *d
		own.Methods, own.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
		for i, m := range own.Methods {
			request, err := requestOf(d.ServiceName, m.MethodName)
			if err != nil {
				return err
			}
			own.Methods[i].Handler = r.unary(d.ServiceName, m, request)
		}
		for i, m := range own.Streams {
			request, err := requestOf(d.ServiceName, m.StreamName)
			if err != nil {
				return err
			}
			own.Streams[i].Handler = r.stream(d.ServiceName, m, request)
		}
		s.RegisterService(&own, nil)
	}
	return nil
}

// requestOf returns the type of a method's request.
func requestOf(service, method string) (protoreflect.MessageType, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("route %s: %w", service, err)
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
	if m == nil {
		return nil, fmt.Errorf("route %s: it has no method %s", service, method)
	}
	return protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
}

func (r *Router) unary(service string, m grpc.MethodDesc, request protoreflect.MessageType) grpc.MethodHandler {
	method := "/" + service + "/" + m.MethodName
	return func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		req := request.New().Interface()
		if err := decode(req); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, req any) (any, error) {
			return r.call(ctx, service, m, method, req.(proto.Message))
		}
		if interceptor == nil {
			return handle(ctx, req)
		}
		return interceptor(ctx, req, &grpc.UnaryServerInfo{Server: r, FullMethod: method}, handle)
	}
}

func (r *Router) call(ctx context.Context, service string, m grpc.MethodDesc, method string, req proto.Message) (any, error) {
	switch req.(type) {
	case *apiv1.GetVersionRequest:
		v := version.Message()
		v.PublicUrl = r.PublicURL
		return v, nil
	case *apiv1.WhoAmIRequest:
		return access.WhoAmI(ctx)
	case *apiv1.ListRolesRequest:
		return access.Roles(), nil
	}
	if err := r.untilHeard(ctx); err != nil {
		return nil, err
	}
	switch q := req.(type) {
	case *apiv1.ListAppsRequest:
		return r.listApps(ctx, q)
	case *apiv1.ListAllOperationsRequest:
		return listOperations(ctx, r, q)
	case *apiv1.ListHostsRequest:
		return r.listHosts(ctx, q)
	case *apiv1.ListAuditEventsRequest:
		return r.listAudit(ctx, q)
	case *apiv1.VerifyAuditRequest:
		return r.verifyAudit(ctx, q)
	case *apiv1.CordonHostRequest:
		return changeHost(ctx, r, m.MethodName, q, apiv1.ClusterClient.CordonHost)
	case *apiv1.UncordonHostRequest:
		return changeHost(ctx, r, m.MethodName, q, apiv1.ClusterClient.UncordonHost)
	case *apiv1.TriggerJobRequest, *apiv1.RetryRunRequest, *apiv1.BulkJobsRequest:
		if err := knowsHost(ctx, r, q); err != nil {
			return nil, err
		}
		ctx, once := sched.WithOnce(ctx, time.Now())
		resp, err := r.route(ctx, service, m, method, req)
		if q, ok := q.(*apiv1.TriggerJobRequest); ok && AddressIn(err) != "" && (once.Tried() || q.IdempotencyKey == "") {
			return r.triggerElsewhere(ctx, q, once)
		}
		return resp, onceOnly(err, once)
	}
	return r.route(ctx, service, m, method, req)
}

// route calls the partitions that a request is about.
func (r *Router) route(ctx context.Context, service string, m grpc.MethodDesc, method string, req proto.Message) (any, error) {
	by := methods.Of(method).Route
	if by == apiv1.Route_ROUTE_UNSPECIFIED {
		return nil, status.Errorf(codes.Unimplemented, "this server does not know which partition of the cluster answers %s", method)
	}
	app := cmp.Or(methods.Of(method).App(req), "default")
	if by == apiv1.Route_ROUTE_MERGED && r.View.IsSplit(app) {
		return r.unite(ctx, app, method, req)
	}
	if _, ok := slotOf(by, req); !ok || by == apiv1.Route_ROUTE_CALLER || len(r.Partitions) < 2 {
		resp, err := r.callHere(ctx, service, m, method, req)
		if err == nil && by == apiv1.Route_ROUTE_PRIMARY_COPIED {
			err = r.copied(ctx, app)
		}
		return resp, err
	}
	slot, _ := slotOf(by, req)
	ctx = sched.OnSlot(ctx, app, slot)
	resp, err := r.callHere(ctx, service, m, method, req)
	if !moved(err) {
		return resp, err
	}
	err = r.Repeat(ctx, moved, func(context.Context) error {
		resp, err = r.callHere(ctx, service, m, method, req)
		return err
	})
	return resp, err
}

// callHere calls the partition of a request, if this server owns it.
func (r *Router) callHere(ctx context.Context, service string, m grpc.MethodDesc, method string, req proto.Message) (any, error) {
	name, app, err := r.partitionFor(ctx, method, req)
	if err != nil {
		return nil, err
	}
	for {
		services, err := r.Enter(ctx, name, app)
		if err != nil {
			return nil, err
		}
		resp, err := answer(ctx, services, service, m, req)
		services.Leave()
		if moved(err) {
			return nil, err
		}
		if status.Code(err) != codes.Unavailable || r.Partitions[name].Serving() == services {
			return resp, err
		}
		// The partition left this server during the call. Its next owner answers, or is
		// named. A call that may have been carried out is repeated only if its runs
		// already have their ids: see sched.Once.
		select {
		case <-services.Gone:
		case <-ctx.Done():
			return nil, err
		}
		if !services.clean && r.Writes(method) && !sched.RunsOnce(ctx) {
			return nil, err
		}
	}
}

// answer calls a partition's own service.
func answer(ctx context.Context, r *Services, service string, m grpc.MethodDesc, req proto.Message) (any, error) {
	return m.Handler(r.services[service], ctx, func(to any) error {
		proto.Merge(to.(proto.Message), req)
		return nil
	}, nil)
}

// partitionFor returns the partition of a request, and the app that decided it.
func (r *Router) partitionFor(ctx context.Context, method string, req proto.Message) (partition, app string, err error) {
	rule := methods.Of(method)
	if rule.Route == apiv1.Route_ROUTE_CLUSTER {
		return r.View.Fallback(), "", nil
	}
	app = rule.App(req)
	if up, ok := req.(*apiv1.WorkUp); ok {
		if named := metadata.ValueFromIncomingContext(ctx, PartitionHeader); len(named) == 1 && named[0] != "" {
			if r.Partitions[named[0]] == nil {
				return "", "", status.Errorf(codes.NotFound, "the cluster has no partition %q", named[0])
			}
			return named[0], "", nil
		}
		if apps := up.GetHello().GetApps(); len(apps) > 0 {
			app = apps[0]
		}
	}
	app = cmp.Or(app, "default")
	if partition, err = r.PartitionOf(ctx, app, r.Writes(method)); err != nil {
		return "", app, err
	}
	if slot, ok := slotOf(rule.Route, req); ok {
		partition, err = r.partitionOfSlot(app, slot, partition)
	} else if rule.Route == apiv1.Route_ROUTE_ANY && r.View.IsSplit(app) {
		for _, other := range r.View.PartitionsOfApp(app) {
			if u := r.Partitions[other]; u != nil && u.Serving() != nil { // this server can answer, without another one
				return other, app, nil
			}
		}
	}
	return partition, app, err
}

// PartitionOfSlot returns the partition of a slot of an app. A slot that never moved is in
// home, the primary partition.
func (r *Router) partitionOfSlot(app string, slot uint8, home string) (string, error) {
	partition, ok := r.View.PartitionOfSlot(app, slot)
	switch {
	case !ok:
		return home, nil
	case r.Partitions[partition] == nil:
		return "", status.Errorf(codes.Internal, "slot %d of the app %s is in the partition %s, which this server does not know", slot, app, partition)
	}
	return partition, nil
}

// partitionOfCommand returns the partition that applies a command. A command that is only to
// be accepted waits in the primary partition: where its job is then matters when it is
// applied.
func (r *Router) partitionOfCommand(ctx context.Context, c *apiv1.Command, ack string) (string, error) {
	app := appOfCommand(c)
	home, err := r.PartitionOf(ctx, app, true)
	if err != nil || ack == "accepted" {
		return home, err
	}
	return r.partitionOfSlot(app, slotOfCommand(c), home)
}

// PartitionOf returns the primary partition of an app. An app without one gets one if write is
// set.
func (r *Router) PartitionOf(ctx context.Context, app string, write bool) (string, error) {
	if err := r.untilHeard(ctx); err != nil {
		return "", err
	}
	if partition, ok := r.View.PartitionOf(app); ok {
		if r.Partitions[partition] == nil {
			return "", status.Errorf(codes.Internal, "the app %s is in the partition %s, which this server does not know: it is of an older version than others", app, partition)
		}
		return partition, nil
	}
	if !write {
		return r.View.Fallback(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		changed := r.View.Change()
		partition, err := r.View.AssignApp(ctx, app)
		if err == nil {
			return partition, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", status.Error(codes.Unavailable, err.Error())
		}
	}
}

// untilHeard waits until this server, which may have just started, knows the placement of
// apps. Before that it would look for all of them in the fallback partition.
func (r *Router) untilHeard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		changed := r.View.Change()
		if r.View.HasReceived() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "this server has just started, and does not know yet where the apps are: try again in a moment")
		}
	}
}

func (r *Router) stream(service string, m grpc.StreamDesc, request protoreflect.MessageType) grpc.StreamHandler {
	method := "/" + service + "/" + m.StreamName
	return func(_ any, stream grpc.ServerStream) error {
		first := request.New().Interface()
		if err := stream.RecvMsg(first); err != nil {
			if errors.Is(err, io.EOF) {
				return status.Error(codes.InvalidArgument, "the stream ended before its first message")
			}
			return err
		}
		switch q := first.(type) {
		case *apiv1.ProduceRequest:
			return r.produce(stream, q)
		case *apiv1.FetchModuleRequest:
			return r.fetchModule(q, stream)
		}
		by := methods.Of(method).Route
		if by == apiv1.Route_ROUTE_UNSPECIFIED {
			return status.Errorf(codes.Unimplemented, "this server does not know which partition of the cluster answers %s", method)
		}
		name, app, err := r.partitionFor(stream.Context(), method, first)
		if err != nil {
			return err
		}
		if q, ok := first.(*apiv1.ReadLogRequest); ok && r.View.IsSplit(app) {
			if name, err = r.partitionOfLog(stream.Context(), app, name, q); err != nil {
				return err
			}
		} else if slot, ok := slotOf(by, first); ok && len(r.Partitions) > 1 {
			stream = &claiming{stream, sched.OnSlot(stream.Context(), app, slot)}
		}
		if by == apiv1.Route_ROUTE_PRIMARY_COPIED {
			return r.passCopying(service, m, name, app, stream, first)
		}
		_, err = r.pass(service, m, name, app, stream, first)
		return err
	}
}

// claiming is a stream about one slot: see [sched.OnSlot].
type claiming struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *claiming) Context() context.Context { return s.ctx }

// answering is a stream that holds back the one message with which a partition answers
// it.
type answering struct {
	grpc.ServerStream
	answer any // nil: there was none yet
}

func (s *answering) SendMsg(m any) error {
	s.answer = m
	return nil
}

// passCopying is pass for a stream that changes the shared state of an app, which the
// primary partition holds: the app's other partitions have a copy of it before the caller
// is answered. By then the call has left the primary partition, which can move meanwhile.
func (r *Router) passCopying(service string, m grpc.StreamDesc, name, app string, stream grpc.ServerStream, first proto.Message) error {
	s := &answering{ServerStream: stream}
	if _, err := r.pass(service, m, name, app, s, first); err != nil {
		return err
	}
	if s.answer == nil {
		return status.Errorf(codes.Internal, "the partition %s gave no answer", name)
	}
	if err := r.copied(stream.Context(), app); err != nil {
		return err
	}
	return stream.SendMsg(s.answer)
}

// pass passes a stream to a partition until either ends. next is a message of the stream
// that is for another partition; nil: there is none.
func (r *Router) pass(service string, m grpc.StreamDesc, name, app string, stream grpc.ServerStream, first proto.Message) (next *apiv1.ProduceRequest, err error) {
	services, err := r.Enter(stream.Context(), name, app)
	if err != nil {
		return nil, err
	}
	p := &passed{ServerStream: stream, first: first, r: r, partition: name, app: app}
	ended := make(chan error, 1)
	go func() {
		defer services.Leave()
		ended <- m.Handler(services.services[service], p)
	}()
	select {
	case err = <-ended:
	case <-services.Gone:
		select {
		case err = <-ended:
		case <-time.After(cutAfter):
			err = status.Errorf(codes.Unavailable, "the partition %s goes to another server: connect again", name)
		}
	}
	p.cut()
	if p.mixed != nil {
		return p.mixed, nil
	}
	return nil, err
}

// cutAfter is how long a stream may take to end by itself after its partition has left.
const cutAfter = 50 * time.Millisecond

// passed is a stream that a partition serves. Its first message was received before the
// partition was known.
type passed struct {
	grpc.ServerStream
	r         *Router
	first     proto.Message // nil after it was delivered
	partition string
	app       string // of the last commands; this partition has it
	// mixed is a message for another partition. This partition did not get it; it read the
	// end of the stream instead.
	mixed *apiv1.ProduceRequest

	sending closing
}

// cut makes what the partition sends from now on fail, because the stream is passed on to
// another one. It waits at most 1 s for a send in progress: a client that reads nothing
// must not hold up the partition.
func (p *passed) cut() { p.sending.close(time.Second) }

func (p *passed) SendMsg(m any) error {
	if !p.sending.enter() {
		return status.Error(codes.Unavailable, "the stream has ended")
	}
	defer p.sending.leave()
	return p.ServerStream.SendMsg(m)
}

func (p *passed) RecvMsg(m any) error {
	if p.first != nil {
		proto.Merge(m.(proto.Message), p.first)
		p.first = nil
		return nil
	}
	if p.mixed != nil {
		return io.EOF
	}
	if err := p.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if q, ok := m.(*apiv1.ProduceRequest); ok && !p.covers(q) {
		p.mixed = proto.CloneOf(q)
		return io.EOF
	}
	return nil
}

// covers reports whether all commands of a message are for the partition.
func (p *passed) covers(q *apiv1.ProduceRequest) bool {
	for _, c := range q.GetCommands() {
		app := appOfCommand(c)
		if q.Ack != "accepted" && p.r.View.IsSplit(app) {
			return false
		}
		if app == p.app {
			continue
		}
		if partition, ok := p.r.View.PartitionOf(app); !ok || partition != p.partition {
			return false
		}
		p.app = app
	}
	return true
}

// fetchModule sends the code of a module from any partition, whether or not this server
// owns that: a digest names the same bytes everywhere.
func (r *Router) fetchModule(req *apiv1.FetchModuleRequest, stream grpc.ServerStream) error {
	for _, name := range r.View.Partitions {
		code, err := r.Partitions[name].Code().Get(req.Digest)
		if err != nil {
			continue
		}
		return transfer.Send(code, func(chunk []byte) error { return stream.SendMsg(&apiv1.ModuleChunk{Data: chunk}) })
	}
	return status.Errorf(codes.NotFound, "this server has no module %s: ask the owner of its app", req.Digest)
}

// each calls every partition: those of this server here, the others at their owners.
// While a partition is moving it waits and begins again, because the result must not be
// incomplete.
func each[Q, A proto.Message](ctx context.Context, r *Router, service, method string, req Q, ask func(context.Context, grpc.ClientConnInterface) (A, error)) ([]A, error) {
	return (&gathering[Q, A]{r: r, service: service, desc: descOf(service, method), req: req, ask: ask}).gather(ctx)
}

// gather returns the answers of the partitions.
func (g *gathering[Q, A]) gather(ctx context.Context) (all []A, err error) {
	err = g.r.Repeat(ctx, isUnavailable, func(ctx context.Context) (err error) {
		all, err = g.once(ctx)
		return err
	})
	return all, err
}

func isUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// gathering is one request to all partitions.
type gathering[Q, A proto.Message] struct {
	r       *Router
	service string
	desc    grpc.MethodDesc
	req     Q
	ask     func(context.Context, grpc.ClientConnInterface) (A, error)
	// sparse leaves out the partitions that do not have what the request names, unless
	// none has it. A refusal by a partition is then an answer.
	sparse bool
	only   []string // the partitions; nil: all
}

func (g *gathering[Q, A]) once(ctx context.Context) (all []A, err error) {
	names := g.r.View.Partitions
	if g.only != nil {
		names = g.only
	}
	asked := metadata.ValueFromIncomingContext(ctx, localHeader)
	if len(asked) > 0 { // by another server, for the partitions that it takes to be owned here
		names = asked
	}
	var none error
	elsewhere := map[string][]string{} // partitions by the address of their owner
	var addresses []string
	for _, name := range names {
		u := g.r.Partitions[name]
		if u == nil {
			return nil, status.Errorf(codes.NotFound, "the cluster has no partition %q", name)
		}
		if services := u.Serving(); services != nil && services.Enter() {
			resp, err := answer(ctx, services, g.service, g.desc, g.req)
			services.Leave()
			switch {
			case g.sparse && status.Code(err) == codes.NotFound:
				none = err
			case err != nil:
				return nil, err
			default:
				all = append(all, resp.(A))
			}
			continue
		}
		a := g.r.View.Assignment(name)
		if a.Server == "" || a.Server == g.r.View.Self || len(asked) > 0 {
			return nil, status.Errorf(codes.Unavailable, "the partition %s has no owner now, so its contents cannot be shown: try again in a moment", name)
		}
		if elsewhere[a.Address] == nil {
			addresses = append(addresses, a.Address)
		}
		elsewhere[a.Address] = append(elsewhere[a.Address], name)
	}
	for _, address := range addresses {
		resp, err := g.peer(ctx, address, elsewhere[address])
		switch {
		case g.sparse && status.Code(err) == codes.NotFound:
			none = err
		case err != nil:
			return nil, err
		default:
			all = append(all, resp)
		}
	}
	if len(all) == 0 {
		return nil, none
	}
	return all, nil
}

// peer asks another server for its partitions. This server has already authorized the
// caller.
func (g *gathering[Q, A]) peer(ctx context.Context, address string, partitions []string) (resp A, err error) {
	conn, err := g.r.Peers.Conn(address)
	if err != nil {
		return resp, err
	}
	if p := access.Caller(ctx); p != nil { // the other server checks and answers what this caller may do and see
		md, err := p.Passed(ctx)
		if err != nil {
			return resp, err
		}
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	for _, name := range partitions {
		ctx = metadata.AppendToOutgoingContext(ctx, localHeader, name)
	}
	resp, err = g.ask(ctx, conn)
	if code := status.Code(err); g.sparse && (code == codes.NotFound || code == codes.FailedPrecondition) {
		return resp, err
	}
	if err != nil {
		return resp, status.Errorf(codes.Unavailable, "the server at %s, which owns the partitions %s, does not answer: %s", address, strings.Join(partitions, ", "), status.Convert(err).Message())
	}
	return resp, nil
}

func descOf(service, method string) grpc.MethodDesc {
	for _, d := range routed() {
		for _, m := range d.Methods {
			if d.ServiceName == service && m.MethodName == method {
				return m
			}
		}
	}
	panic("there is no method " + service + "/" + method) // misspelt in this file
}

func (r *Router) listApps(ctx context.Context, req *apiv1.ListAppsRequest) (*apiv1.ListAppsResponse, error) {
	parts, err := each(ctx, r, apiv1.Apps_ServiceDesc.ServiceName, "ListApps", req,
		func(ctx context.Context, c grpc.ClientConnInterface) (*apiv1.ListAppsResponse, error) {
			return apiv1.NewAppsClient(c).ListApps(ctx, req)
		})
	if err != nil {
		return nil, err
	}
	all := &apiv1.ListAppsResponse{}
	for _, p := range parts {
		all.Apps = append(all.Apps, p.Apps...)
	}
	all.Apps = access.SeenApps(ctx, uniteApps(all.Apps))
	slices.SortFunc(all.Apps, func(a, b *apiv1.App) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// listHosts merges what the partitions report of each host.
func (r *Router) listHosts(ctx context.Context, req *apiv1.ListHostsRequest) (*apiv1.ListHostsResponse, error) {
	parts, err := each(ctx, r, apiv1.Cluster_ServiceDesc.ServiceName, "ListHosts", req,
		func(ctx context.Context, c grpc.ClientConnInterface) (*apiv1.ListHostsResponse, error) {
			return apiv1.NewClusterClient(c).ListHosts(ctx, req)
		})
	if err != nil {
		return nil, err
	}
	byID := map[string]*apiv1.Host{}
	for _, p := range parts {
		for _, h := range p.Hosts {
			if have := byID[h.Id]; have != nil {
				h = joinHosts(have, h)
			}
			byID[h.Id] = h
		}
	}
	all := &apiv1.ListHostsResponse{Hosts: access.SeenHosts(ctx, slices.Collect(maps.Values(byID)))}
	slices.SortFunc(all.Hosts, func(a, b *apiv1.Host) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Id, b.Id))
	})
	return all, nil
}

// knowsHost returns an error if a retry names a host that works for no partition.
func knowsHost(ctx context.Context, r *Router, req any) error {
	q, ok := req.(*apiv1.RetryRunRequest)
	if !ok || q.Host == "" {
		return nil
	}
	all, err := r.listHosts(ctx, &apiv1.ListHostsRequest{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all.Hosts, func(h *apiv1.Host) bool { return h.Id == q.Host }) {
		return status.Errorf(codes.InvalidArgument, "there is no host with the id %q: `wheelwork host list` shows all", q.Host)
	}
	return nil
}

// changeHost makes a change to a host at the owners of all partitions with which it has
// sessions.
func changeHost[Q proto.Message](ctx context.Context, r *Router, method string, req Q, call func(apiv1.ClusterClient, context.Context, Q, ...grpc.CallOption) (*apiv1.Host, error)) (*apiv1.Host, error) {
	service := apiv1.Cluster_ServiceDesc.ServiceName
	g := gathering[Q, *apiv1.Host]{
		r: r, service: service, desc: descOf(service, method), req: req, sparse: true,
		ask: func(ctx context.Context, c grpc.ClientConnInterface) (*apiv1.Host, error) {
			return call(apiv1.NewClusterClient(c), ctx, req)
		},
	}
	parts, err := g.gather(ctx)
	if err != nil {
		return nil, err
	}
	all := parts[0]
	for _, h := range parts[1:] {
		all = joinHosts(all, h)
	}
	return all, nil
}

// joinHosts merges two partitions' reports of a host: the better state is the newer one.
func joinHosts(a, b *apiv1.Host) *apiv1.Host {
	if rank := []string{"lost", "draining", "cordoned", "up"}; slices.Index(rank, b.State) > slices.Index(rank, a.State) {
		a, b = b, a
	}
	a = proto.CloneOf(a)
	a.Running += b.Running
	a.Waiting += b.Waiting
	a.Sleeping += b.Sleeping
	if over := a.Running - a.Slots; over > 0 { // each partition counts the slots for itself
		a.Running, a.Waiting = a.Slots, a.Waiting+over
	}
	a.Credits += b.Credits
	if !slices.Contains(strings.Split(a.Server, ", "), b.Server) {
		a.Server += ", " + b.Server
	}
	return a
}
