package router

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched"
)

// This file passes the commands of producers to the partitions of their jobs.

func appOfCommand(c *apiv1.Command) string {
	app := ""
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		app = k.Apply.GetApp()
	case *apiv1.Command_Delete:
		app = k.Delete.GetApp()
	case *apiv1.Command_Trigger:
		app = k.Trigger.GetApp()
	}
	if app == "" {
		app = "default"
	}
	return app
}

// produce serves a producer's stream. It passes the stream to the partition of its
// messages, one partition after the other, and handles messages for several partitions
// itself.
func (r *Router) produce(stream grpc.ServerStream, m *apiv1.ProduceRequest) error {
	desc := apiv1.Producer_ServiceDesc.Streams[0]
	var ahead *readingAhead // set at the first message for an app that is split
	for m != nil {
		partitions, split, err := r.partitionsOf(stream.Context(), m)
		if err != nil {
			return err
		}
		if len(partitions) < 2 && !split {
			partition, app := r.View.Fallback(), "default"
			if len(m.Commands) > 0 {
				partition, app = partitions[0], appOfCommand(m.Commands[0])
			}
			if m, err = r.pass(apiv1.Producer_ServiceDesc.ServiceName, desc, partition, app, stream, m); err != nil {
				return err
			}
			continue
		}
		all, next := []*apiv1.ProduceRequest{m}, (*apiv1.ProduceRequest)(nil)
		if split {
			if ahead == nil {
				ahead = readAhead(stream)
				stream = ahead
			}
			all, next = r.together(ahead, m)
		}
		if err := r.spreadAll(stream, all, split); err != nil {
			return err
		}
		if m = next; m == nil {
			if m, err = receive(stream); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
	}
	return nil
}

// receive returns the next message of a stream.
func receive(stream grpc.ServerStream) (*apiv1.ProduceRequest, error) {
	if ahead, ok := stream.(*readingAhead); ok {
		return ahead.next()
	}
	m := &apiv1.ProduceRequest{}
	if err := stream.RecvMsg(m); err != nil {
		return nil, err
	}
	return m, nil
}

// readingAhead is a stream whose messages are received before a reader asks for them.
type readingAhead struct {
	grpc.ServerStream
	came chan *apiv1.ProduceRequest // closed at the end
	err  error                      // why it ended; valid once came is closed
}

func readAhead(stream grpc.ServerStream) *readingAhead {
	a := &readingAhead{ServerStream: stream, came: make(chan *apiv1.ProduceRequest, 16)}
	go func() {
		defer close(a.came)
		for {
			m, err := receive(stream)
			if err != nil {
				a.err = err
				return
			}
			select {
			case a.came <- m:
			case <-stream.Context().Done():
				a.err = stream.Context().Err()
				return
			}
		}
	}()
	return a
}

func (a *readingAhead) next() (*apiv1.ProduceRequest, error) {
	m, ok := <-a.came
	if !ok {
		return nil, a.err
	}
	return m, nil
}

// RecvMsg implements [grpc.ServerStream], for a partition to which the stream is passed
// again.
func (a *readingAhead) RecvMsg(m any) error {
	came, err := a.next()
	if err == nil {
		proto.Merge(m.(proto.Message), came)
	}
	return err
}

// together returns m and the messages behind it that have arrived and can be applied in
// one go: they are for apps that are split, have the same ack as m, and have no more
// commands together than one message may have. next has arrived as well, and must be
// handled afterwards.
//
// Each message needs an append in every partition for which it has commands. If a
// producer does not wait for its answers, its next message would otherwise wait for these
// appends.
func (r *Router) together(ahead *readingAhead, m *apiv1.ProduceRequest) (all []*apiv1.ProduceRequest, next *apiv1.ProduceRequest) {
	all = []*apiv1.ProduceRequest{m}
	for n := len(m.Commands); ; {
		select {
		case m, ok := <-ahead.came:
			if !ok {
				return all, nil
			}
			n += len(m.Commands)
			_, split, err := r.partitionsOf(ahead.Context(), m)
			if err != nil || !split || n > MaxCommands || m.Ack != all[0].Ack {
				return all, m
			}
			all = append(all, m)
		default:
			return all, nil
		}
	}
}

// spreadAll applies messages in one go, and answers each.
func (r *Router) spreadAll(stream grpc.ServerStream, all []*apiv1.ProduceRequest, split bool) error {
	one := all[0]
	if len(all) > 1 {
		one = &apiv1.ProduceRequest{Ack: one.Ack}
		for _, m := range all {
			one.Commands = append(one.Commands, m.Commands...)
		}
	}
	resp, err := r.spread(stream.Context(), one, split)
	if err != nil {
		return err
	}
	for _, m := range all {
		part := &apiv1.ProduceResponse{Number: m.Number, Sync: resp.Sync, Results: resp.Results[:len(m.Commands)]}
		resp.Results = resp.Results[len(m.Commands):]
		if err := stream.SendMsg(part); err != nil {
			return err
		}
	}
	return nil
}

// PartitionsOf returns the partitions of a message's commands, each once. split reports that
// the message must be applied and that the jobs of one of its apps are in several
// partitions.
func (r *Router) partitionsOf(ctx context.Context, m *apiv1.ProduceRequest) (partitions []string, split bool, err error) {
	last := ""
	for _, c := range m.GetCommands() {
		app := appOfCommand(c)
		if app == last {
			continue
		}
		last = app
		partition, err := r.PartitionOf(ctx, app, true)
		if err != nil {
			return nil, false, err
		}
		split = split || m.Ack != "accepted" && r.View.IsSplit(app)
		if !slices.Contains(partitions, partition) {
			partitions = append(partitions, partition)
		}
	}
	return partitions, split, nil
}

// MaxCommands is the limit of commands in one message.
const MaxCommands = 256

// spread applies a message whose commands are for several partitions. The commands of a
// split app go to their partitions, whichever servers own these: no server owns all of
// them. Those of other apps must be for partitions of this server.
func (r *Router) spread(ctx context.Context, m *apiv1.ProduceRequest, split bool) (*apiv1.ProduceResponse, error) {
	switch {
	case len(m.Commands) > MaxCommands:
		return nil, status.Errorf(codes.InvalidArgument, "a message has %d commands, the limit is %d", len(m.Commands), MaxCommands)
	case m.Ack != "" && m.Ack != "applied":
		return nil, status.Errorf(codes.InvalidArgument, "the commands of one message are of apps in several partitions of the cluster: with ack %q send them in one message for each app", m.Ack)
	}
	for _, c := range m.Commands { // nothing is applied if another server owns one of the partitions
		if split {
			break
		}
		partition, err := r.PartitionOf(ctx, appOfCommand(c), true)
		if err != nil {
			return nil, err
		}
		if err := r.Here(ctx, partition, appOfCommand(c), func(*Services) error { return nil }); err != nil {
			return nil, err
		}
	}
	accepted := make([]*apiv1.Ingress, len(m.Commands))
	now, trace := time.Now(), sched.TraceParent(ctx)
	for i, c := range m.Commands {
		accepted[i] = accept(c, now, trace)
	}
	results, err := r.Apply(ctx, accepted, false)
	if err == nil && split {
		err = r.follow(ctx, accepted, results)
	}
	if err != nil {
		return nil, err
	}
	return &apiv1.ProduceResponse{Number: m.Number, Results: results, Sync: "always"}, nil
}

// accept records when this server accepted a command and, for a trigger without a key,
// which run it starts: wherever and however often the trigger is applied, it is that run.
func accept(c *apiv1.Command, now time.Time, trace string) *apiv1.Ingress {
	a := &apiv1.Ingress{Command: c, AtMs: now.UnixMilli(), TraceParent: trace}
	if t := c.GetTrigger(); t != nil && t.IdempotencyKey == "" {
		id := sched.NewRunID(t.App, t.Name, now)
		a.Run = id[:]
	}
	return a
}

// follow repeats, for a while, the commands whose jobs were moving to another partition.
func (r *Router) follow(ctx context.Context, accepted []*apiv1.Ingress, results []*apiv1.CommandResult) error {
	waiting, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		changed := r.View.Change()
		var of []int
		var rest []*apiv1.Ingress
		for i, res := range results {
			if res.GetCode() == int32(codes.Unavailable) && strings.HasPrefix(res.GetError(), sched.MovedText) {
				of, rest = append(of, i), append(rest, accepted[i])
			}
		}
		if len(of) == 0 || !pause(waiting, changed) {
			return ctx.Err()
		}
		more, err := r.Apply(ctx, rest, false) // a command that was refused with MovedText was not carried out
		if err != nil {
			return err
		}
		for k, i := range of {
			results[i] = more[k]
		}
	}
}

// Apply applies commands of any partitions, here or at their owners. A command that
// cannot reach its owner is answered with Unavailable: it may be tried again. again
// reports that some commands may have been applied before.
func (r *Router) Apply(ctx context.Context, accepted []*apiv1.Ingress, again bool) ([]*apiv1.CommandResult, error) {
	results := make([]*apiv1.CommandResult, len(accepted))
	of := map[string][]int{}
	var order []string
	for i, a := range accepted {
		partition, err := r.partitionOfCommand(ctx, a.Command, "applied")
		if err != nil {
			results[i] = refusal(err)
			continue
		}
		if of[partition] == nil {
			order = append(order, partition)
		}
		of[partition] = append(of[partition], i)
	}
	var partitions sync.WaitGroup // concurrently: each needs an append
	for _, partition := range order {
		partitions.Go(func() {
			if err := r.applyTo(ctx, partition, of[partition], accepted, again, results); err != nil {
				for _, i := range of[partition] {
					results[i] = refusal(err)
				}
			}
		})
	}
	partitions.Wait()
	return results, ctx.Err()
}

func refusal(err error) *apiv1.CommandResult {
	s := status.Convert(err)
	code := s.Code()
	if code == codes.FailedPrecondition { // another server owns the partition now, and this one may again
		code = codes.Unavailable
	}
	return &apiv1.CommandResult{Code: int32(code), Error: s.Message()}
}

func (r *Router) applyTo(ctx context.Context, partition string, of []int, accepted []*apiv1.Ingress, again bool, results []*apiv1.CommandResult) error {
	var mine []*apiv1.Ingress
	for _, i := range of {
		mine = append(mine, accepted[i])
	}
	var done []*apiv1.CommandResult
	here := func(services *Services) (err error) {
		done, err = services.Sched.Apply(ctx, mine, again)
		return err
	}
	var err error
	if app := appOfCommand(mine[0].Command); ctx.Value(Forwarded{}) != nil {
		err = r.Here(ctx, partition, app, here)
	} else {
		err = r.Call(ctx, partition, app, here, func(owner Owner) (err error) {
			done, err = forward(ctx, owner, mine, again)
			return err
		})
	}
	if err != nil {
		return err
	}
	for k, i := range of {
		results[i] = done[k]
	}
	return nil
}

// Forwarded is the context key of commands that came from another server. They are not
// forwarded again: two servers that each name the other as the owner would do so for
// ever.
type Forwarded struct{}

// forward sends commands to the server that owns their partition. The answer may be lost
// on its way, so the commands take effect once however often they are sent.
func forward(ctx context.Context, owner Owner, accepted []*apiv1.Ingress, again bool) ([]*apiv1.CommandResult, error) {
	req := &apiv1.ForwardRequest{Again: again, TraceParent: accepted[0].TraceParent}
	for _, a := range accepted {
		req.Commands, req.AtMs, req.Runs = append(req.Commands, a.Command), append(req.AtMs, a.AtMs), append(req.Runs, a.Run)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*Patience)
	defer cancel()
	resp, err := owner.Forward(ctx, req)
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "forward to the owner at %s: %s", owner.Address, status.Convert(err).Message())
	case len(resp.Results) != len(accepted):
		return nil, status.Errorf(codes.Unavailable, "forward to the owner at %s: it answered %d of %d commands", owner.Address, len(resp.Results), len(accepted))
	}
	return resp.Results, nil
}
