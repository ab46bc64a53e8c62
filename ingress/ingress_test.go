package ingress

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
)

// small returns a queue whose log has small segments and does not sync.
func small(dir string) queue.Config {
	return queue.Config{Dir: dir, Log: mq.Config{SegmentBytes: 64 << 10, Sync: mq.OS, Writer: "pwrite", ReserveBytes: -1, ScrubBytesPerSecond: -1}}
}

func openQueue(t testing.TB, cfg queue.Config) *queue.Queue {
	t.Helper()
	q, err := queue.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// applied is one command as Apply received it.
type applied struct {
	command string // its bytes in hex
	run     string // the id that was fixed for its run
	again   bool
	at      time.Time
	when    time.Time
}

// owner replaces the scheduler: it returns the configured answers and records the
// commands it receives.
type owner struct {
	mu     sync.Mutex
	asked  []applied
	answer func(*apiv1.Command) (*apiv1.CommandResult, error)
}

func (o *owner) apply(_ context.Context, accepted []*apiv1.Ingress, again bool) ([]*apiv1.CommandResult, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var results []*apiv1.CommandResult
	var failure error
	for _, a := range accepted {
		c := a.Command
		o.asked = append(o.asked, applied{bytesOf(c), string(a.Run), again, time.UnixMilli(a.AtMs), time.Now()})
		r := &apiv1.CommandResult{Result: "created"}
		if o.answer != nil {
			var err error
			if r, err = o.answer(c); err != nil {
				failure = err
			}
		}
		results = append(results, r)
	}
	return results, failure
}

func (o *owner) seen() []applied {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func bytesOf(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", b)
}

// forwarding runs an ingress over q until the caller calls the returned function.
func forwarding(t *testing.T, q *queue.Queue, apply func(context.Context, []*apiv1.Ingress, bool) ([]*apiv1.CommandResult, error)) (*Ingress, func()) {
	t.Helper()
	in := New(Config{Queue: q, Apply: apply, NewRun: newRun})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return in, stop
}

func newRun(string, string, time.Time) []byte { return []byte(rand.Text()) }

func trigger(name, key string) *apiv1.Command {
	return &apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{App: "default", Name: name, IdempotencyKey: key}}}
}

func define(name string) *apiv1.Command {
	return &apiv1.Command{Kind: &apiv1.Command_Apply{Apply: &apiv1.Job{App: "default", Name: name}}}
}

// accept waits until the commands are durable and returns their results.
func accept(t *testing.T, in *Ingress, commands ...*apiv1.Command) []*apiv1.CommandResult {
	t.Helper()
	var results []*apiv1.CommandResult
	ready := make(chan error, 1)
	err := in.Accept(commands, "test", func(rs []*apiv1.CommandResult, err error) { results = rs; ready <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return results
}

// service returns the Queues service over q, without logs.
func service(q *queue.Queue) *Queues { return NewQueues(q, nil) }

func listed(t *testing.T, s *Queues) []*apiv1.DeadLetter {
	t.Helper()
	resp, err := s.ListDeadLetters(t.Context(), &apiv1.ListDeadLettersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Letters
}

func lag(t *testing.T, s *Queues) int64 {
	t.Helper()
	resp, err := s.GetQueues(t.Context(), &apiv1.GetQueuesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].Groups[0].Lag
}

func TestAcceptedIsAppliedOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, o := openQueue(t, small(t.TempDir())), &owner{}
		in, _ := forwarding(t, q, o.apply)
		at := time.Now()
		rs := accept(t, in, define("a"), trigger("a", ""), trigger("a", "k"), &apiv1.Command{}, trigger("a", "k"), define("b"))
		var got []string
		for _, r := range rs {
			got = append(got, r.Result+codes.Code(r.Code).String())
		}
		if want := []string{"acceptedOK", "acceptedOK", "acceptedOK", "InvalidArgument", "duplicateOK", "acceptedOK"}; !slices.Equal(got, want) {
			t.Fatalf("results %v, want %v", got, want)
		}
		if rs[4].Message != rs[2].Message {
			t.Errorf("the duplicate is message %d, the first was %d", rs[4].Message, rs[2].Message)
		}
		synctest.Wait()
		seen := o.seen()
		if len(seen) != 4 || lag(t, service(q)) != 0 {
			t.Fatalf("%d commands were applied, want 4; the lag is %d", len(seen), lag(t, service(q)))
		}
		var ofA []string
		for _, s := range seen {
			if !s.at.Equal(at) {
				t.Errorf("a command came with the time %v, it was accepted at %v", s.at, at)
			}
			if s.command != bytesOf(define("b")) {
				ofA = append(ofA, s.command)
			}
		}
		if len(ofA) != 3 || ofA[0] != bytesOf(define("a")) || ofA[2] != bytesOf(trigger("a", "k")) {
			t.Errorf("the commands of a job came in the order %v", ofA)
		}
	})
}

func TestPermanentFailureWaitsForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, o := openQueue(t, small(t.TempDir())), &owner{}
		o.answer = func(c *apiv1.Command) (*apiv1.CommandResult, error) {
			if name := c.GetTrigger().GetName(); name != "right" {
				return &apiv1.CommandResult{Code: int32(codes.NotFound), Error: "there is no job " + name}, nil
			}
			return &apiv1.CommandResult{Result: "created"}, nil
		}
		in, _ := forwarding(t, q, o.apply)
		accept(t, in, trigger("wrong", ""))
		synctest.Wait()
		s := service(q)
		letters := listed(t, s)
		if len(letters) != 1 || letters[0].Reason != "permanent" || letters[0].LastError != "there is no job wrong" || letters[0].Attempts != 1 || letters[0].Origin != "test" {
			t.Fatalf("dead letters %v", letters)
		}
		if letters[0].Text != "" || letters[0].Body != nil {
			t.Errorf("the list holds a body")
		}
		d, err := s.GetDeadLetter(t.Context(), &apiv1.GetDeadLetterRequest{Id: letters[0].Id})
		if err != nil {
			t.Fatal(err)
		}
		before := &apiv1.Ingress{}
		if err := protojson.Unmarshal([]byte(d.Text), before); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Hour)
		// The text shows only the job's name. The service keeps the time, so the run has
		// one id however often the command is tried.
		const text = `{"command": {"trigger": {"app": "default", "name": "right"}}}`
		if d, err = s.EditDeadLetter(t.Context(), &apiv1.EditDeadLetterRequest{Id: d.Id, Text: text}); err != nil {
			t.Fatal(err)
		}
		n, err := s.ReplayDeadLetters(t.Context(), &apiv1.ReplayDeadLettersRequest{Ids: []string{d.Id}})
		if err != nil || n.Count != 1 {
			t.Fatalf("replayed %v, %v", n, err)
		}
		synctest.Wait()
		seen := o.seen()
		edited := &apiv1.Ingress{}
		if d.Text == "" {
			t.Fatal("the edited letter has no text")
		}
		if err := protojson.Unmarshal([]byte(d.Text), edited); err != nil {
			t.Fatal(err)
		}
		want := trigger("right", edited.Command.GetTrigger().IdempotencyKey) // the fixed id is that of a run of the other job
		if len(seen) != 2 || seen[1].command != bytesOf(want) || !seen[1].at.Equal(seen[0].at) || want.GetTrigger().IdempotencyKey == "" {
			t.Fatalf("applied %+v, want last %s at the time of the first", seen, bytesOf(want))
		}
		if left := listed(t, s); len(left) != 0 || lag(t, s) != 0 {
			t.Errorf("%d dead letters are left, the lag is %d", len(left), lag(t, s))
		}
	})
}

func TestRetryableFailureIsTriedAgainOnTheLevels(t *testing.T) {
	for name, fail := range map[string]func() (*apiv1.CommandResult, error){
		"one command": func() (*apiv1.CommandResult, error) {
			return &apiv1.CommandResult{Code: int32(codes.Unavailable), Error: "not now"}, nil
		},
		"all of them": func() (*apiv1.CommandResult, error) { return nil, errors.New("not now") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small(t.TempDir())
				cfg.Levels, cfg.MaxAttempts = []time.Duration{time.Second, 5 * time.Second, 10 * time.Second}, 5
				q, o := openQueue(t, cfg), &owner{}
				o.answer = func(*apiv1.Command) (*apiv1.CommandResult, error) { return fail() }
				in, _ := forwarding(t, q, o.apply)
				start := time.Now()
				accept(t, in, trigger("a", "k"))
				time.Sleep(time.Minute)
				synctest.Wait()
				var waits []time.Duration
				for _, s := range o.seen() {
					waits = append(waits, s.when.Sub(start).Round(100*time.Millisecond))
					if s.command != o.seen()[0].command || !s.at.Equal(o.seen()[0].at) {
						t.Errorf("a later try is of another command: %+v", s)
					}
				}
				if want := []time.Duration{0, time.Second, 6 * time.Second, 16 * time.Second, 26 * time.Second}; !slices.Equal(waits, want) {
					t.Errorf("tried after %v, want %v", waits, want)
				}
				if letters := listed(t, service(q)); len(letters) != 1 || letters[0].Reason != "attempts" || letters[0].Attempts != 5 || letters[0].LastError != "not now" {
					t.Errorf("dead letters %v", letters)
				}
			})
		})
	}
}

// TestCrashBetweenApplyAndAcknowledgement: after the crash the ingress applies an equal
// command again, so its run has the same id.
func TestCrashBetweenApplyAndAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, after := t.TempDir(), t.TempDir()
		q, o := openQueue(t, small(dir)), &owner{}
		in, stop := forwarding(t, q, func(ctx context.Context, accepted []*apiv1.Ingress, retry bool) ([]*apiv1.CommandResult, error) {
			rs, err := o.apply(ctx, accepted, retry)
			// The directory now holds the state that a crash at this point leaves.
			return rs, errors.Join(err, os.CopyFS(after, os.DirFS(dir)))
		})
		accept(t, in, trigger("a", ""))
		synctest.Wait()
		stop()
		time.Sleep(time.Minute)

		again := &owner{}
		q = openQueue(t, small(after))
		_, stop = forwarding(t, q, again.apply)
		synctest.Wait()
		stop()
		one, two := o.seen(), again.seen()
		if len(one) != 1 || len(two) != 1 || one[0].command != two[0].command || one[0].run != two[0].run || !one[0].at.Equal(two[0].at) {
			t.Fatalf("before the crash %+v, after it %+v: want the same", one, two)
		}
		if one[0].run == "" || one[0].again || !two[0].again {
			t.Errorf("before the crash %+v, after it %+v: want a fixed id, and again after the crash alone", one[0], two[0])
		}
		if n := lag(t, service(q)); n != 0 {
			t.Errorf("the lag is %d afterwards", n)
		}
	})
}

func TestInterruptedApplyIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, small(t.TempDir()))
		in, stop := forwarding(t, q, func(ctx context.Context, _ []*apiv1.Ingress, _ bool) ([]*apiv1.CommandResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		accept(t, in, trigger("a", "k"))
		synctest.Wait()
		stop()
		o := &owner{}
		forwarding(t, q, o.apply)
		synctest.Wait()
		if seen := o.seen(); len(seen) != 1 {
			t.Errorf("applied %+v, want it once and without a wait", seen)
		}
	})
}

func TestFullDiskRefusesAtTheDoor(t *testing.T) {
	cfg := small(t.TempDir())
	cfg.Space = func(string) (free, total int64, err error) { return 4, 100, nil }
	in := New(Config{Queue: openQueue(t, cfg), Apply: (&owner{}).apply})
	err := in.Accept([]*apiv1.Command{trigger("a", "k")}, "test", func([]*apiv1.CommandResult, error) { t.Error("done was called") })
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v, want RESOURCE_EXHAUSTED", err)
	}
	resp, err := service(in.cfg.Queue).GetQueues(t.Context(), &apiv1.GetQueuesRequest{})
	if err != nil || resp.DiskMark != "refuse" || resp.DiskUsed != 0.96 {
		t.Errorf("the mark is %q at %v, %v", resp.GetDiskMark(), resp.GetDiskUsed(), err)
	}
}

func TestWhatIsNoCommandIsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, o := openQueue(t, small(t.TempDir())), &owner{}
		forwarding(t, q, o.apply)
		for _, body := range []string{"\xff\xff", ""} {
			if _, err := q.PublishSync(queue.Message{Topic: topic, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		letters := listed(t, service(q))
		if len(letters) != 2 || len(o.seen()) != 0 {
			t.Fatalf("%d dead letters, want 2; applied %v", len(letters), o.seen())
		}
		for _, d := range letters {
			if d.Reason != "permanent" || !strings.HasPrefix(d.LastError, "the body is not a command: ") {
				t.Errorf("dead letter %v", d)
			}
		}
	})
}

func TestPermanentCodes(t *testing.T) {
	for c, want := range map[codes.Code]bool{
		codes.NotFound: true, codes.InvalidArgument: true, codes.FailedPrecondition: true, codes.Aborted: true,
		codes.Unavailable: false, codes.ResourceExhausted: false, codes.DeadlineExceeded: false, codes.Unknown: false, codes.Internal: false,
	} {
		if got := permanent(c); got != want {
			t.Errorf("permanent(%v) = %v", c, got)
		}
	}
}

// TestEditedTriggerKeepsItsRun: a trigger without a key is edited and applied again. It
// starts the run whose id was fixed at its acceptance.
func TestEditedTriggerKeepsItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{answer: func(*apiv1.Command) (*apiv1.CommandResult, error) {
			return nil, status.Error(codes.NotFound, "there is no such job")
		}}
		q := openQueue(t, small(t.TempDir()))
		in, _ := forwarding(t, q, o.apply)
		accept(t, in, trigger("a", ""))
		synctest.Wait()
		s := service(q)
		letters := listed(t, s)
		if len(letters) != 1 {
			t.Fatalf("dead letters %v", letters)
		}
		const text = `{"command": {"trigger": {"app": "default", "name": "a", "input": "other"}}}`
		if _, err := s.EditDeadLetter(t.Context(), &apiv1.EditDeadLetterRequest{Id: letters[0].Id, Text: text}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReplayDeadLetters(t.Context(), &apiv1.ReplayDeadLettersRequest{All: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if seen := o.seen(); len(seen) != 2 || seen[0].run == "" || seen[1].run != seen[0].run || seen[1].command == seen[0].command {
			t.Errorf("applied %+v, want two commands with one run", seen)
		}
	})
}
