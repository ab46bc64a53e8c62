package sdktest_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// serve starts a server and a client in memory, which end with the test.
func serve(t *testing.T, conf sdktest.Config) (*sdktest.Server, *sdk.Client) {
	t.Helper()
	server, lis := sdktest.NewServer(conf), memconn.Listen(1<<20)
	go server.Serve(lis) //nolint:errcheck // ends with the server
	client, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", sdk.Options{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

func apply(t *testing.T, client *sdk.Client, jobs ...*sdk.Job) {
	t.Helper()
	for _, job := range jobs {
		if _, err := client.Apply(t.Context(), job); err != nil {
			t.Fatalf("apply %s: %v", job.GetName(), err)
		}
	}
}

// plannedTimes returns the planned times of the runs of a job, oldest first, with their
// trigger.
func plannedTimes(t *testing.T, client *sdk.Client, job string) string {
	t.Helper()
	var times []string
	for run, err := range client.Runs(t.Context(), sdk.RunQuery{Job: job}) {
		if err != nil {
			t.Fatal(err)
		}
		times = append([]string{run.GetTrigger() + " " + run.GetPlannedAt().AsTime().Format("02T15:04:05")}, times...)
	}
	return strings.Join(times, ", ")
}

// TestSchedules fires the kinds of schedules with the server's own clock.
func TestSchedules(t *testing.T) {
	server, client := serve(t, sdktest.Config{Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)})
	defer server.Close()
	defer client.Close() //nolint:errcheck // every answer has come
	if _, err := client.PutCalendar(t.Context(), &sdk.Calendar{Name: "off", Dates: []string{"2026-03-02"}}); err != nil {
		t.Fatal(err)
	}
	module := &sdk.Handler{Module: "m@1"}
	apply(
		t, client,
		&sdk.Job{Name: "cron", Handler: module, Schedule: &sdk.Schedule{Cron: "0 12 * * *", Zone: "Asia/Shanghai", Exclude: []string{"off"}}},
		&sdk.Job{Name: "every", Handler: module, Schedule: &sdk.Schedule{Every: "20h", MaxRuns: 3}},
		&sdk.Job{Name: "delay", Handler: module, Schedule: &sdk.Schedule{Delay: "30h"}},
		&sdk.Job{Name: "after", Handler: module, Schedule: &sdk.Schedule{After: "1s"}},
		&sdk.Job{Name: "paused", Handler: module, Schedule: &sdk.Schedule{Every: "1h"}, Paused: new(true)},
		&sdk.Job{Name: "gone", Handler: module, Schedule: &sdk.Schedule{Every: "50h"}},
	)
	if job, err := client.Job(t.Context(), "", "every"); err != nil || job.GetNextAt().AsTime().Hour() != 20 {
		t.Errorf("the next planned time: %v, %v", job.GetNextAt(), err)
	}
	server.Advance(48 * time.Hour)
	if err := client.Delete(t.Context(), "", "gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Trigger(t.Context(), sdk.Trigger{Job: "after"}); err != nil {
		t.Fatal(err)
	}
	server.Advance(48 * time.Hour)
	for job, want := range map[string]string{
		"cron":   "schedule 01T04:00:00, schedule 03T04:00:00, schedule 04T04:00:00",
		"every":  "schedule 01T20:00:00, schedule 02T16:00:00, schedule 03T12:00:00",
		"delay":  "schedule 02T06:00:00, schedule 03T12:00:00, schedule 04T18:00:00",
		"after":  "schedule 01T00:00:01, manual 03T00:00:00",
		"paused": "",
		"gone":   "",
	} {
		if got := plannedTimes(t, client, job); got != want {
			t.Errorf("%s fired at %s, want %s", job, got, want)
		}
	}
	if _, err := client.Apply(t.Context(), &sdk.Job{Name: "bad", Handler: module, Schedule: &sdk.Schedule{Cron: "61 * * * *"}}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("a bad schedule: %v", err)
	}
}

// TestRealTime fires a schedule by the time of a bubble.
func TestRealTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := serve(t, sdktest.Config{})
		defer server.Close()
		defer client.Close() //nolint:errcheck // every answer has come
		apply(t, client, &sdk.Job{Name: "j", Handler: &sdk.Handler{Name: "builtin:http"}, Schedule: &sdk.Schedule{Every: "1m"}})
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if n := server.Runs(); n != 10 {
			t.Errorf("%d runs after ten minutes", n)
		}
		if _, err := client.Pause(t.Context(), "", "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := server.Runs(); n != 10 {
			t.Errorf("%d runs of a paused job", n)
		}
	})
}

// TestHandlers checks which function executes a run.
func TestHandlers(t *testing.T) {
	panics := worker.Handle("panics", func(context.Context, *worker.Task) ([]byte, error) { panic("oh") })
	coded := worker.Handle("coded", func(_ context.Context, t *worker.Task) ([]byte, error) {
		t.Progress(1, 2, "half")
		return nil, worker.Permanent(worker.WithCode(errors.New("low"), "low_balance"))
	})
	echo := func(_ context.Context, run *apiv1.Run, _ func(string)) (string, error) {
		return "handled " + run.GetHandler(), nil
	}
	for _, tt := range []struct {
		conf    sdktest.Config
		handler string
		want    string
	}{
		{sdktest.Config{Handlers: []worker.Handler{panics}}, "native:panics", "failed panic panic: oh"},
		{sdktest.Config{Handlers: []worker.Handler{panics, coded}}, "native:coded", "failed low_balance low"},
		{sdktest.Config{}, "native:other", "failed handler this server has no function other: add it to Handlers of sdktest.Config"},
		{sdktest.Config{Handle: echo, Handlers: []worker.Handler{panics}}, "native:other", "succeeded  handled native:other"},
		{sdktest.Config{Handle: echo}, "builtin:http", "succeeded  handled builtin:http"},
		{sdktest.Config{}, "plugin:p/h", "succeeded  in"},
	} {
		server, client := serve(t, tt.conf)
		apply(t, client, &sdk.Job{Name: "j", Handler: &sdk.Handler{Name: tt.handler}})
		run, err := client.TriggerAndWait(t.Context(), sdk.Trigger{Job: "j", Input: []byte("in")})
		if got := run.GetState() + " " + run.GetCode() + " " + run.GetError() + run.GetOutput(); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.handler, got, err, tt.want)
		}
		for _, none := range []string{"", "main", "native:"} {
			if _, err := client.Apply(t.Context(), &sdk.Job{Name: "none", Handler: &sdk.Handler{Name: none}}); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("a job with the handler %q: %v", none, err)
			}
		}
		client.Close() //nolint:errcheck // every answer has come
		server.Close()
	}
}

// TestJobFilters lists jobs by the conditions of a query.
func TestJobFilters(t *testing.T) {
	server, client := serve(t, sdktest.Config{})
	defer server.Close()
	defer client.Close() //nolint:errcheck // every answer has come
	apply(
		t, client,
		&sdk.Job{Name: "Mail", Handler: &sdk.Handler{Module: "m@1"}, Schedule: &sdk.Schedule{Every: "20h"}},
		&sdk.Job{Name: "sums", Handler: &sdk.Handler{Module: "m@2"}, Paused: new(true)},
	)
	for want, q := range map[string]sdk.JobQuery{
		"Mail,sums": {Module: "m"}, "sums": {Module: "m@2", Paused: new(true)}, "Mail": {Contains: "MAI", Paused: new(false), Schedule: "every"}, "": {Failing: true},
	} {
		var names []string
		for job, err := range client.Jobs(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, job.GetName())
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("%+v: %s, want %s", q, got, want)
		}
	}
	for _, err := range client.Jobs(t.Context(), sdk.JobQuery{Order: "last_run"}) {
		if err == nil {
			t.Error("the test server lists jobs by their last runs")
		}
	}
}
