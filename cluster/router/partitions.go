package router

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched"
)

// This file sends requests to other partitions: for state that the runs of a partition
// need, and for the partial answers to a call that concerns several partitions.

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
func (r *Router) ask(ctx context.Context, req *apiv1.AskRequest) (resp *apiv1.AskResponse, err error) {
	err = r.Repeat(ctx, isRedirect, func(ctx context.Context) error {
		return r.Call(ctx, req.Unit, req.App, func(services *Services) (err error) {
			resp, err = AnswerAsked(ctx, services, req)
			return err
		}, func(owner Owner) (err error) {
			resp, err = owner.Ask(ctx, req)
			return err
		})
	})
	if isRedirect(err) {
		return nil, status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	return resp, err
}

// AnswerAsked answers a request to a partition of this server.
func AnswerAsked(ctx context.Context, services *Services, req *apiv1.AskRequest) (*apiv1.AskResponse, error) {
	ctx = sched.OffSlot(ctx) // the slot of the call in ctx is in another partition
	resp, err := &apiv1.AskResponse{}, error(nil)
	switch q := req.What.(type) {
	case *apiv1.AskRequest_Get:
		resp.Get, err = services.Sched.Entry(ctx, req.App, q.Get)
	case *apiv1.AskRequest_Put:
		resp.Put, err = services.Sched.PutEntry(ctx, req.App, q.Put)
	case *apiv1.AskRequest_Delete:
		err = services.Sched.DeleteEntry(ctx, req.App, q.Delete)
	case *apiv1.AskRequest_Enqueue:
		resp.Enqueue, err = services.Sched.Enqueue(ctx, req.App, q.Enqueue, req.TraceParent)
	case *apiv1.AskRequest_Run:
		if len(q.Run) != len(job.RunID{}) {
			return nil, status.Error(codes.InvalidArgument, "the request for a run has no run id")
		}
		resp.Run, err = services.Sched.Find(ctx, req.App, job.RunID(q.Run))
	case *apiv1.AskRequest_CheckChanges:
		set := &apiv1.ApplyChangeSetRequest{}
		if err := proto.Unmarshal(q.CheckChanges, set); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		resp.Check, err = services.Sched.CheckChanges(ctx, set)
	case *apiv1.AskRequest_ApplyChanges:
		err = services.Sched.ApplyChanges(ctx, req.App, q.ApplyChanges)
	case *apiv1.AskRequest_Call:
		resp.Answer, err = askedCall(ctx, services, q.Call)
	default:
		err = status.Error(codes.Unimplemented, "this server does not know the request: it is of an older version")
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// askedCall answers, for one partition, a call whose answer is merged from several.
func askedCall(ctx context.Context, services *Services, q *apiv1.AskedCall) ([]byte, error) {
	if methods.Of(q.GetMethod()).Route != apiv1.Route_ROUTE_MERGED {
		return nil, status.Errorf(codes.InvalidArgument, "%q is not merged from partitions", q.GetMethod())
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
func (r *Router) callPartition(ctx context.Context, partition, app, method string, req, resp proto.Message) error {
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
	r         *Router
	partition string
}

// Remote returns the client through which the runs of a partition reach other partitions.
func (r *Router) Remote(partition string) sched.Remote { return &remote{r, partition} }

// whileOwned makes a call that ends when this server no longer owns the partition: the
// requests of its runs must not hold up the next owner. The error is then Unavailable, so
// that the caller asks the next owner.
func (x *remote) whileOwned(ctx context.Context, call func(context.Context) error) error {
	left := status.Errorf(codes.Unavailable, "partition %s left this server during the call: try again in a moment", x.partition)
	services := x.r.Partitions[x.partition].Serving()
	if services == nil {
		return left
	}
	owned, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-services.Gone:
			cancel()
		case <-owned.Done():
		}
	}()
	err := call(owned)
	if err != nil && owned.Err() != nil && ctx.Err() == nil {
		return left
	}
	return err
}

// Run implements [sched.Remote]. No other partition has runs of an app that is not split.
func (x *remote) Run(ctx context.Context, app string, id job.RunID) (run *apiv1.Run, err error) {
	if !x.r.View.IsSplit(app) {
		return nil, nil
	}
	err = x.whileOwned(ctx, func(ctx context.Context) error {
		for _, partition := range x.r.View.PartitionsOfApp(app) {
			if partition == x.partition {
				continue
			}
			resp, err := x.r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: app, What: &apiv1.AskRequest_Run{Run: id[:]}})
			if err != nil {
				return err
			}
			if run = resp.Run; run != nil {
				return nil
			}
		}
		return nil
	})
	return run, err
}

// home sends a request to the primary partition of an app.
func (x *remote) home(ctx context.Context, app string, req *apiv1.AskRequest) (resp *apiv1.AskResponse, err error) {
	partition, ok := x.r.View.PartitionOf(app)
	if !ok || partition == x.partition {
		return nil, status.Errorf(codes.Unavailable, "where the app %s began is not known yet: try again in a moment", app)
	}
	req.Unit, req.App = partition, app
	err = x.whileOwned(ctx, func(ctx context.Context) (err error) {
		resp, err = x.r.ask(ctx, req)
		return err
	})
	return resp, err
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
	app := cmp.Or(req.App, from)
	var resp *apiv1.AskResponse
	err := x.whileOwned(ctx, func(ctx context.Context) error {
		return x.r.Repeat(ctx, moved, func(ctx context.Context) (err error) {
			partition, ok := x.r.View.PartitionOfSlot(app, job.SlotOf(req.Job))
			if !ok {
				partition = x.r.View.Fallback()
			}
			resp, err = x.r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: from, What: &apiv1.AskRequest_Enqueue{Enqueue: req}, TraceParent: traceParent})
			return err
		})
	})
	return resp.GetEnqueue(), err
}

// CheckChanges implements [sched.Remote].
func (x *remote) CheckChanges(ctx context.Context, app string, set *apiv1.ApplyChangeSetRequest) (*apiv1.ChangeSetCheck, error) {
	b, err := proto.Marshal(set)
	if err != nil {
		return nil, err
	}
	all := &apiv1.ChangeSetCheck{}
	err = x.whileOwned(ctx, func(ctx context.Context) error {
		for _, partition := range x.r.View.InvolvedPartitions(app) {
			if partition == x.partition {
				continue
			}
			resp, err := x.r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: app, What: &apiv1.AskRequest_CheckChanges{CheckChanges: b}})
			if err != nil {
				return err
			}
			all.Results = append(all.Results, resp.Check.GetResults()...)
			all.Problems = append(all.Problems, resp.Check.GetProblems()...)
			all.ProblemsInAll += resp.Check.GetProblemsInAll()
		}
		return nil
	})
	return all, err
}

// ApplyChanges implements [sched.Remote].
func (x *remote) ApplyChanges(ctx context.Context, app string, share *apiv1.ChangeSetShare) error {
	return x.whileOwned(ctx, func(ctx context.Context) error {
		return x.r.Repeat(ctx, moved, func(ctx context.Context) error {
			partition, ok := x.r.View.PartitionOfSlot(app, uint8(share.Slot))
			if !ok {
				partition = x.r.View.Fallback()
			}
			_, err := x.r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: app, What: &apiv1.AskRequest_ApplyChanges{ApplyChanges: share}})
			return err
		})
	})
}

// CopyState implements [sched.Remote].
func (x *remote) CopyState(ctx context.Context, app string) error {
	return x.whileOwned(ctx, func(ctx context.Context) error { return x.r.copied(ctx, app) })
}

// partitionOfLog returns the partition that has the log of a run: that of its job, or the one
// where the run ended before the job moved.
func (r *Router) partitionOfLog(ctx context.Context, app, partition string, q *apiv1.ReadLogRequest) (string, error) {
	id, err := job.ParseRunID(q.GetId())
	if err != nil {
		return partition, nil // the service reports the invalid id
	}
	partitions := append([]string{partition}, r.View.PartitionsOfApp(app)...)
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
