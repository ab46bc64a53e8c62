package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/store"
)

// scheduler starts the real scheduler, for examples that need schedules.
func scheduler() (address string, stop func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	records, err := mq.Open(mq.Config{Dir: filepath.Join(dir, "journal"), SegmentBytes: 16 << 20, ReserveBytes: -1})
	if err != nil {
		log.Fatal(err)
	}
	journal := local.New(records)
	view, err := store.Open(store.Config{Dir: filepath.Join(dir, "store"), SegmentBytes: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	blobs, err := modules.Open(filepath.Join(dir, "modules"))
	if err != nil {
		log.Fatal(err)
	}
	s, err := sched.New(sched.Config{
		ID: "example", Journal: journal, Store: view, Modules: blobs,
		Inspect: func(context.Context, *modules.Upload, string) (api.ModuleInfo, error) {
			return api.ModuleInfo{}, errors.New("this server takes no modules")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	g := grpc.NewServer()
	s.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			log.Print(err)
		}
	})
	running.Go(func() { g.Serve(l) }) //nolint:errcheck // ends with Stop
	return "http://" + l.Addr().String(), func() {
		cancel()
		g.Stop()
		running.Wait()
		if err := errors.Join(view.Close(), journal.Close(), os.RemoveAll(dir)); err != nil {
			log.Print(err)
		}
	}
}

// Backfill makes the runs of a range in the past. A time that has a run already
// gets no second one.
func ExampleClient_Backfill() {
	address, stop := scheduler()
	defer stop()
	ctx := context.Background()
	client, err := sdk.Dial(ctx, address, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Apply(ctx, &sdk.Job{
		Name:     "report",
		Handler:  &sdk.Handler{Name: "native:report"},
		Schedule: &sdk.Schedule{Cron: "0 9 * * *", Zone: "Europe/Berlin"},
	}); err != nil {
		log.Fatal(err)
	}

	march := sdk.Backfill{
		Job:   "report",
		From:  time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC),
		Until: time.Date(2026, 3, 31, 0, 0, 0, 0, time.UTC),
	}
	for range 2 {
		done, err := client.Backfill(ctx, march)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(done.Accepted, "accepted,", done.Existing, "there already")
		for _, at := range done.Times {
			fmt.Println(at.UTC().Format(time.RFC3339))
		}
	}
	// Output:
	// 3 accepted, 0 there already
	// 2026-03-28T08:00:00Z
	// 2026-03-29T07:00:00Z
	// 2026-03-30T07:00:00Z
	// 0 accepted, 3 there already
}
