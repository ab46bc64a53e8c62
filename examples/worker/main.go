// Command worker shows a program whose own functions are handlers of jobs: no module is
// pushed, and the functions use the state and the connections of the program.
//
//	go run ./examples/worker --url http://127.0.0.1:7700 --token-file wheelwork-data/host-token
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

func main() {
	address := flag.String("url", cmp.Or(os.Getenv("WHEELWORK_URL"), "http://127.0.0.1:7700"), "address of the server, or of several, separated by commas")
	tokenFile := flag.String("token-file", "wheelwork-data/host-token", "file with a token that lets workers in")
	data := flag.String("data", "", "directory for results that could not be delivered; empty: none")
	flag.Parse()
	token, err := os.ReadFile(*tokenFile)
	if err != nil {
		fail(err)
	}
	// The first signal drains the worker, the second one stops it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err = run(ctx, worker.Options{Address: *address, Token: strings.TrimSpace(string(token)), Dir: *data})
	if err != nil {
		fail(err)
	}
	fmt.Fprintln(os.Stderr, "the worker has ended: the server has every result, and the tasks that had not started")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run executes tasks until ctx ends.
func run(ctx context.Context, opt worker.Options) error {
	bank := &bank{accounts: map[string]int{"alice": 100, "bob": 20}, booked: map[string]bool{}}
	return worker.Run(
		ctx, opt,
		worker.HandleJSON("transfer", bank.transfer),
		worker.Handle("audit", bank.audit),
	)
}

// bank is an example of state that a program has and a module cannot reach: its memory,
// its database, its clients of other services.
type bank struct {
	mu       sync.Mutex
	accounts map[string]int
	booked   map[string]bool // by the id of the run
}

type transfer struct {
	From, To string
	Amount   int
}

type balances map[string]int

// transfer books each run once, even if the run is retried.
func (b *bank) transfer(_ context.Context, t *worker.Task, in transfer) (balances, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, from := b.accounts[in.From]
	_, to := b.accounts[in.To]
	switch {
	case !from || !to || in.Amount <= 0:
		return nil, worker.WithCode(worker.Permanent(fmt.Errorf("there is no transfer of %d from %q to %q", in.Amount, in.From, in.To)), "no_such_transfer")
	case b.booked[t.Run]:
		t.Log().Info("it was booked by an earlier attempt")
	case b.accounts[in.From] < in.Amount:
		return nil, worker.WithCode(worker.RetryAfter(errors.New("the balance is too low"), time.Minute), "low_balance")
	default:
		b.accounts[in.From] -= in.Amount
		b.accounts[in.To] += in.Amount
		b.booked[t.Run] = true
		t.Log().Info("booked", "from", in.From, "to", in.To, "amount", in.Amount)
	}
	return balances{in.From: b.accounts[in.From], in.To: b.accounts[in.To]}, nil
}

// audit takes a second, reports its progress, and stops when ctx ends.
func (b *bank) audit(ctx context.Context, t *worker.Task) ([]byte, error) {
	const steps = 10
	for i := range steps {
		t.Progress(int64(i), steps, "reading the books")
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := 0
	for _, amount := range b.accounts {
		sum += amount
	}
	return fmt.Appendf(nil, "%d accounts hold %d", len(b.accounts), sum), nil
}
