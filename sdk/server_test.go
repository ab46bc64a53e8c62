package sdk_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// door is a proxy to the real server that loses answers: it breaks the connection after
// the server has executed a message.
type door struct {
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedProducerServer
	to   grpc.ClientConnInterface
	lost atomic.Int64 // commands that were executed and not answered
}

func (d *door) GetVersion(ctx context.Context, r *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return apiv1.NewClusterClient(d.to).GetVersion(ctx, r)
}

func (d *door) Produce(stream grpc.BidiStreamingServer[apiv1.ProduceRequest, apiv1.ProduceResponse]) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	inside, err := apiv1.NewProducerClient(d.to).Produce(metadata.NewOutgoingContext(stream.Context(),
		metadata.Pairs("authorization", md.Get("authorization")[0])))
	if err != nil {
		return err
	}
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := inside.Send(r); err != nil {
		return err
	}
	answer, err := inside.Recv()
	if err != nil {
		return err
	}
	for _, result := range answer.GetResults() {
		if result.GetCode() == 0 {
			d.lost.Add(1)
		}
	}
	return status.Error(codes.Unavailable, "killed before it answered")
}

// TestRealServer triggers through a door that always breaks before it answers, with the
// server itself as the second address. The server recognises the keys: each trigger
// becomes one run.
func TestRealServer(t *testing.T) {
	ready := dev(t)
	direct, err := sdk.Dial(t.Context(), ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close() //nolint:errcheck // every answer has come
	if _, _, err := direct.PushModule(t.Context(), sdk.Upload{Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Apply(t.Context(), &sdk.Job{Name: "once", Handler: &sdk.Handler{Module: "greet@1"}}); err != nil {
		t.Fatal(err)
	}

	d := &door{to: connect(t, ready.URL)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	apiv1.RegisterClusterServer(g, d)
	apiv1.RegisterProducerServer(g, d)
	go g.Serve(l) //nolint:errcheck // ends with the server
	defer g.Stop()

	client, err := sdk.Dial(t.Context(), "http://"+l.Addr().String()+","+ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	const triggers = 200
	var pending []*sdk.Pending
	for range triggers {
		pending = append(pending, client.TriggerAsync(t.Context(), sdk.Trigger{Job: "once"}))
	}
	var want, got []string
	duplicates := 0
	for _, p := range pending {
		answer, err := p.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want = append(want, answer.RunID); answer.Result == sdk.Duplicate {
			duplicates++
		}
	}
	for run, err := range direct.Runs(t.Context(), sdk.RunQuery{Job: "once"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, run.GetId())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(slices.Compact(got)) != triggers {
		t.Errorf("%d runs for %d triggers, or other runs than were answered", len(got), triggers)
	}
	if lost := int(d.lost.Load()); lost == 0 || duplicates != lost {
		t.Errorf("%d answers were lost and %d triggers were duplicates: the test tests nothing", lost, duplicates)
	}
}

// connect returns a plain connection to the server at an address.
func connect(t *testing.T, url string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the end of the test
	return conn
}

// dev runs the whole program until the end of the test.
func dev(t *testing.T) node.Ready {
	t.Helper()
	dir := t.TempDir() // created first, so that it is removed last
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan node.Ready, 1), make(chan error, 1)
	go func() {
		ended <- node.Dev(ctx, node.DevConfig{Data: dir, Listen: "127.0.0.1:0", Ready: func(r node.Ready) { ready <- r }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(fmt.Errorf("the server: %w", err))
		}
	})
	select {
	case r := <-ready:
		return r
	case err := <-ended:
		ended <- nil // for the clean-up function
		t.Fatal(err)
		return node.Ready{}
	}
}

// TestKept sends kept commands to the real server. It executes them once, in the order of
// each job, and moves those that it cannot execute to the dead letters.
func TestKept(t *testing.T) {
	ready := dev(t)
	client, err := sdk.Dial(t.Context(), ready.URL, sdk.Options{Token: ready.Token, Ack: sdk.Kept})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	if _, _, err := client.PushModule(t.Context(), sdk.Upload{Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	const triggers = 300
	pending := []*sdk.Pending{client.ApplyAsync(t.Context(), &sdk.Job{Name: "kept", Handler: &sdk.Handler{Module: "greet@1"}})}
	for range triggers {
		pending = append(pending, client.TriggerAsync(t.Context(), sdk.Trigger{Job: "kept"}))
	}
	pending = append(pending, client.TriggerAsync(t.Context(), sdk.Trigger{Job: "nobody"}))
	for _, p := range pending {
		a, err := p.Wait(t.Context())
		if err != nil || a.Result != sdk.Accepted || a.Message == 0 || a.RunID != "" || a.Sync != "always" {
			t.Fatalf("answer %+v, %v", a, err)
		}
	}
	queues := apiv1.NewQueuesClient(connect(t, ready.URL))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+ready.Token)
	for {
		q, err := queues.GetQueues(ctx, &apiv1.GetQueuesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(q.Topics) == 1 && len(q.Topics[0].Groups) == 1 && q.Topics[0].Groups[0].Lag == 0 {
			break
		}
		runtime.Gosched()
	}
	runs := 0
	for _, err := range client.Runs(t.Context(), sdk.RunQuery{Job: "kept"}) {
		if err != nil {
			t.Fatal(err)
		}
		runs++
	}
	if runs != triggers {
		t.Errorf("%d runs of %d triggers", runs, triggers)
	}
	dead, err := queues.ListDeadLetters(ctx, &apiv1.ListDeadLettersRequest{})
	if err != nil || len(dead.Letters) != 1 || !strings.Contains(dead.Letters[0].LastError, "nobody") {
		t.Errorf("dead letters %v, %v", dead, err)
	}
}
