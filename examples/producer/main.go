// Command producer shows how a program owns ten thousand jobs: it creates, changes and
// deletes them through the SDK, and checks after each step that the server has the
// expected jobs.
//
//	go run ./examples/producer --url http://127.0.0.1:7700 --token TOKEN --jobs 10000
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func main() {
	address := flag.String("url", cmp.Or(os.Getenv("WHEELWORK_URL"), "http://127.0.0.1:7700"), "address of the server, or of several, separated by commas")
	token := flag.String("token", os.Getenv("WHEELWORK_TOKEN"), "what the server knows you by")
	jobs := flag.Int("jobs", 10_000, "how many jobs to create, change and delete")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *address, *token, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "producer:", err)
		os.Exit(1)
	}
}

// run is the whole program. When it returns without an error, it has deleted its jobs.
func run(ctx context.Context, out io.Writer, address, token string, jobs int) error {
	client, err := sdk.Dial(ctx, address, sdk.Options{Token: token})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // every answer has come

	// The jobs need a module. Pushing the same bytes again changes nothing.
	if _, _, err := client.PushModule(ctx, sdk.Upload{Name: "producer-example", Version: "1", Code: greet.Module}); err != nil {
		return err
	}
	p := producer{ctx: ctx, out: out, client: client, jobs: jobs}
	if err := p.clear(); err != nil {
		return err
	}
	for _, step := range []struct {
		name  string
		each  send
		want  sdk.Result
		after int // number of jobs after the step
	}{
		{"create", p.apply("1h"), sdk.Created, jobs},
		{"apply again", p.apply("1h"), sdk.Unchanged, jobs},
		{"change", p.apply("2h"), sdk.Updated, jobs},
		{"delete", p.remove, sdk.Deleted, 0},
	} {
		if err := p.step(step.name, step.each, step.want); err != nil {
			return err
		}
		if err := p.count(step.after); err != nil {
			return fmt.Errorf("after %s: %w", step.name, err)
		}
	}
	return nil
}

type producer struct {
	ctx    context.Context
	out    io.Writer
	client *sdk.Client
	jobs   int
}

const prefix = "producer-example-"

func name(i int) string { return fmt.Sprintf("%s%06d", prefix, i) }

// send starts one command.
type send func(i int) *sdk.Pending

func (p producer) apply(every string) send {
	return func(i int) *sdk.Pending {
		return p.client.ApplyAsync(p.ctx, &sdk.Job{
			Name:     name(i),
			Handler:  &sdk.Handler{Module: "producer-example@1"},
			Schedule: &sdk.Schedule{Every: every},
			Input:    fmt.Sprintf("job %d", i),
		})
	}
}

func (p producer) remove(i int) *sdk.Pending {
	return p.client.DeleteAsync(p.ctx, sdk.DefaultApp, name(i))
}

// clear deletes the jobs that an interrupted run of this program left behind.
func (p producer) clear() error {
	for job, err := range p.client.Jobs(p.ctx, sdk.JobQuery{Prefix: prefix}) {
		if err != nil {
			return err
		}
		if err := p.client.Delete(p.ctx, job.GetApp(), job.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// step sends one command for each job and checks the answers as they arrive. It does not
// wait in between: the client packs the commands into messages, and blocks the loop when
// the server is slower. So the step needs memory for the commands in flight, not for all.
func (p producer) step(what string, each send, want sdk.Result) error {
	start := time.Now()
	failed := make(chan error, 1) // the first failure; the functions below must not block
	for i := range p.jobs {
		each(i).Then(func(answer sdk.Answer, err error) {
			switch {
			case err != nil:
				err = fmt.Errorf("%s %s: %w", what, name(i), err)
			case answer.Result != want:
				err = fmt.Errorf("%s %s: it is %s, want %s", what, name(i), answer.Result, want)
			default:
				return
			}
			select {
			case failed <- err:
			default: // not the first failure
			}
		})
	}
	if err := p.client.Flush(p.ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	select {
	case err := <-failed:
		return err
	default:
	}
	took := time.Since(start)
	fmt.Fprintf(p.out, "%-12s %d jobs in %v, %.0f per second\n", what, p.jobs, took.Round(time.Millisecond), float64(p.jobs)/took.Seconds())
	return nil
}

// count lists the jobs of this program and compares their number with want.
func (p producer) count(want int) error {
	n := 0
	for _, err := range p.client.Jobs(p.ctx, sdk.JobQuery{Prefix: prefix}) {
		if err != nil {
			return err
		}
		n++
	}
	if n != want {
		return fmt.Errorf("the server lists %d jobs, want %d", n, want)
	}
	return nil
}
