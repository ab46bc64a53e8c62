package xxljob_test

import (
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestRunOnAnExecutor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		w.apply("bill", "billing", input("billHandler", "a=1", "ROUND"))
		id := w.trigger("bill")
		r := <-e.ran
		if r.Handler != "billHandler" || r.Params != "a=1" || r.JobID <= 0 || r.LogID <= 0 || r.LogID >= 1<<53 || r.GlueType != "BEAN" || r.BroadcastTotal != 1 || r.Block != "SERIAL_EXECUTION" {
			t.Errorf("the executor got %+v", r)
		}
		e.say("first", "second")
		time.Sleep(5 * time.Second)
		e.say("third")
		e.done(r, 200, "paid")
		run := w.wait(id)
		if run.GetState() != "succeeded" || run.GetOutput() != "paid" {
			t.Errorf("the run is %s with the output %q: %s", run.GetState(), run.GetOutput(), run.GetError())
		}
		log := w.log(id)
		for _, line := range []string{"first", "second", "third"} {
			if strings.Count(log, line) != 1 {
				t.Errorf("the log has %q %d times:\n%s", line, strings.Count(log, line), log)
			}
		}
		// Results for no attempt are acknowledged and change nothing.
		e.done(r, 500, "again")
		e.done(request{LogID: 7}, 200, "unknown")
		if again := w.wait(id); again.GetState() != "succeeded" {
			t.Errorf("a second callback made the run %s", again.GetState())
		}
	})
}

func TestResultsOfExecutors(t *testing.T) {
	for _, c := range []struct {
		code                    int
		msg, state, errText, as string
	}{
		{500, "no money", "failed", "no money", "executor_failed"},
		{502, "too slow", "failed", "too slow", "executor_timeout"},
		{200, "", "succeeded", "", ""},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			e := w.executor("billing", "127.0.0.1:9999")
			w.apply("bill", "billing", input("h", "", ""))
			id := w.trigger("bill")
			e.done(<-e.ran, c.code, c.msg)
			if run := w.wait(id); run.GetState() != c.state || run.GetError() != c.errText || run.GetCode() != c.as {
				t.Errorf("%d: %s %q %q", c.code, run.GetState(), run.GetCode(), run.GetError())
			}
		})
	}
}

func TestRetryIsANewLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		w.apply("bill", "billing", input("h", "", ""), func(j *apiv1.Job) { j.Retry = &apiv1.Retry{Max: 1} })
		id := w.trigger("bill")
		first := <-e.ran
		e.done(first, 500, "not now")
		second := <-e.ran
		if second.LogID == first.LogID || second.JobID != first.JobID {
			t.Errorf("the attempts are %+v and %+v: want another logId and the same jobId", first, second)
		}
		e.done(first, 200, "late") // must not end the second attempt
		time.Sleep(30 * time.Second)
		e.done(second, 200, "now")
		if run := w.wait(id); run.GetState() != "succeeded" || run.GetOutput() != "now" {
			t.Errorf("%s %q", run.GetState(), run.GetOutput())
		}
	})
}

func TestBroadcast(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.executor("billing", "127.0.0.1:9999"), w.executor("billing", "127.0.0.2:9999")
		w.apply("bill", "billing", input("h", "", "SHARDING_BROADCAST"))
		id := w.trigger("bill")
		ra, rb := <-a.ran, <-b.ran
		if ra.BroadcastIndex != 0 || rb.BroadcastIndex != 1 || ra.BroadcastTotal != 2 || rb.BroadcastTotal != 2 || ra.LogID == rb.LogID {
			t.Errorf("the shards are %+v and %+v", ra, rb)
		}
		a.say("left")
		b.say("right")
		a.done(ra, 200, "one")
		time.Sleep(20 * time.Second)
		run, err := w.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: id})
		if err != nil || run.GetState() != "running" {
			t.Errorf("after one callback of two the run is %s %v", run.GetState(), err)
		}
		b.done(rb, 200, "two")
		run = w.wait(id)
		want := `[{"index":0,"executor":"http://127.0.0.1:9999","code":200,"msg":"one"},{"index":1,"executor":"http://127.0.0.2:9999","code":200,"msg":"two"}]`
		if run.GetState() != "succeeded" || run.GetOutput() != want {
			t.Errorf("%s %s", run.GetState(), run.GetOutput())
		}
		if log := w.log(id); !strings.Contains(log, "[0] left") || !strings.Contains(log, "[1] right") {
			t.Errorf("the log is\n%s", log)
		}

		id = w.trigger("bill")
		a.done(<-a.ran, 200, "")
		b.done(<-b.ran, 500, "half")
		if run := w.wait(id); run.GetState() != "failed" || !strings.Contains(run.GetError(), "1 of 2 executors failed") || !strings.Contains(run.GetError(), "half") {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
	})
}

func TestCancelAndTimeoutKill(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		w.apply("bill", "billing", input("h", "", ""))
		id := w.trigger("bill")
		<-e.ran
		time.Sleep(time.Second)
		if _, err := w.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		if run := w.wait(id); run.GetState() != "stopped" || e.count("/kill") != 1 {
			t.Errorf("the run is %s after %d kills", run.GetState(), e.count("/kill"))
		}

		w.apply("bill", "billing", input("h", "", ""), func(j *apiv1.Job) { j.Timeout = "30s" })
		id = w.trigger("bill")
		<-e.ran
		if run := w.wait(id); run.GetState() != "timed_out" || e.count("/kill") != 2 {
			t.Errorf("the run is %s after %d kills: %s", run.GetState(), e.count("/kill"), run.GetError())
		}

		// The executor's own timeout, which it does not keep.
		w.apply("bill", "billing", strings.Replace(input("h", "", ""), `"executorTimeout":0`, `"executorTimeout":20`, 1))
		id = w.trigger("bill")
		began := time.Now()
		if r := <-e.ran; r.Timeout != 20 {
			t.Errorf("the executor gets the timeout %d", r.Timeout)
		}
		if run := w.wait(id); run.GetState() != "failed" || run.GetCode() != "executor_timeout" || e.count("/kill") != 3 || time.Since(began) > 35*time.Second {
			t.Errorf("the run is %s %s after %d kills and %v", run.GetState(), run.GetCode(), e.count("/kill"), time.Since(began))
		}
	})
}

func TestExecutorThatDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		w.apply("bill", "billing", input("h", "", ""))
		id := w.trigger("bill")
		<-e.ran
		w.mu.Lock()
		delete(w.executors, "127.0.0.1:9999")
		w.mu.Unlock()
		began := time.Now()
		run := w.wait(id)
		if run.GetState() != "failed" || !strings.Contains(run.GetError(), "is lost") {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
		if took := time.Since(began); took < 80*time.Second || took > 2*time.Minute {
			t.Errorf("the executor was given up after %v", took)
		}
	})
}

func TestResultThatIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		w.apply("bill", "billing", input("h", "", ""))
		id := w.trigger("bill")
		r := <-e.ran
		e.mu.Lock()
		e.busy[r.JobID] = false // it was started again, and knows nothing of the run
		e.mu.Unlock()
		go func() {
			for range 4 {
				time.Sleep(30 * time.Second)
				e.register("billing")
			}
		}()
		if run := w.wait(id); run.GetState() != "failed" || !strings.Contains(run.GetError(), "the result is lost") {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestBridgeStartsAgain(t *testing.T) {
	for name, early := range map[string]bool{"the executor continues": false, "its callback comes before the attempt": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				e := w.executor("billing", "127.0.0.1:9999")
				w.apply("bill", "billing", input("h", "", ""))
				id := w.trigger("bill")
				r := <-e.ran
				time.Sleep(3 * time.Second)
				w.endBridge()
				time.Sleep(20 * time.Second)
				w.startBridge()
				if early {
					e.done(r, 200, "done")
				}
				e.register("billing")
				if !early {
					time.Sleep(30 * time.Second)
					e.done(r, 200, "done")
				}
				if run := w.wait(id); run.GetState() != "succeeded" || run.GetOutput() != "done" {
					t.Errorf("%s %q %s", run.GetState(), run.GetOutput(), run.GetError())
				}
				if n := e.count("/run"); n != 1 {
					t.Errorf("the executor was told to run %d times, want once", n)
				}
				if n := e.count("/kill"); n != 0 {
					t.Errorf("the bridge killed the run %d times as it ended", n)
				}
			})
		})
	}
}

func TestWrongRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		good := map[string]string{"registryGroup": "EXECUTOR", "registryKey": "billing", "registryValue": "http://127.0.0.1:9999"}
		for _, path := range []string{"/api/registry", "/api/registryRemove", "/api/callback", "/xxl-job-admin/api/registry"} {
			for _, token := range []string{"", "wrong", accessToken + "x"} {
				if code, msg := w.post(path, token, good); code != 500 || !strings.Contains(msg, "access token") {
					t.Errorf("%s with the token %q: %d %s", path, token, code, msg)
				}
			}
		}
		for field, values := range map[string][]string{
			"registryGroup": {"ADMIN", ""},
			"registryKey":   {"", "a b", "a/b", strings.Repeat("x", 101)},
			"registryValue": {
				"", "127.0.0.1:9999", "ftp://127.0.0.1", "http://a@127.0.0.1", "http://127.0.0.1/?x=1", "http://169.254.169.254/latest",
				"http://[::ffff:169.254.169.254]", "http://[fd00:ec2::254]", "http://93.184.216.34:80", "http://" + strings.Repeat("a", 600),
			},
		} {
			for _, v := range values {
				body := map[string]string{}
				for k, g := range good {
					body[k] = g
				}
				body[field] = v
				if code, msg := w.post("/api/registry", accessToken, body); code != 500 || msg == "" {
					t.Errorf("%s %q: %d %s", field, v, code, msg)
				}
			}
		}
		if code, _ := w.post("/api/callback", accessToken, strings.Repeat("x", 3<<20)); code != 500 {
			t.Error("a body of 3 MiB was accepted")
		}
		if code, msg := w.post("/xxl-job-admin/api/registry", accessToken, good); code != 200 {
			t.Errorf("a good registration: %d %s", code, msg)
		}
	})
}

func TestRefusedRuns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		for in, want := range map[string]string{
			"no JSON": "bad_input",
			`{}`:      "bad_input",
			`{"executorHandler":"h","glueType":"GLUE_SHELL"}`:           "bad_input",
			`{"executorHandler":"h","executorRouteStrategy":"NEAREST"}`: "bad_input",
		} {
			w.apply("bill", "billing", in, func(j *apiv1.Job) { j.Retry = &apiv1.Retry{Max: 3} })
			if run := w.wait(w.trigger("bill")); run.GetState() != "failed" || run.GetCode() != want || run.GetAttempt() != 1 {
				t.Errorf("%s: %s %s after attempt %d: %s", in, run.GetState(), run.GetCode(), run.GetAttempt(), run.GetError())
			}
		}
		e.mu.Lock()
		e.on = func(path string, _ request) (int, string, bool) { return 500, "Task not registered", path == "/run" }
		e.mu.Unlock()
		w.apply("bill", "billing", input("h", "", ""))
		if run := w.wait(w.trigger("bill")); run.GetState() != "failed" || !strings.Contains(run.GetError(), "Task not registered") {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
		w.mu.Lock()
		delete(w.executors, "127.0.0.1:9999")
		w.mu.Unlock()
		if run := w.wait(w.trigger("bill")); run.GetState() != "failed" || !strings.Contains(run.GetError(), "cannot be reached") {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
	})
}

func TestFailoverAndBusyover(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.executor("billing", "127.0.0.1:9999"), w.executor("billing", "127.0.0.2:9999")
		w.apply("bill", "billing", input("h", "", "BUSYOVER"))
		a.mu.Lock()
		a.on = func(path string, _ request) (int, string, bool) { return 500, "busy", path == "/idleBeat" }
		a.mu.Unlock()
		id := w.trigger("bill")
		b.done(<-b.ran, 200, "idle one")
		if run := w.wait(id); run.GetOutput() != "idle one" {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
		w.mu.Lock()
		delete(w.executors, "127.0.0.1:9999")
		w.mu.Unlock()
		w.apply("bill", "billing", input("h", "", "FAILOVER"))
		id = w.trigger("bill")
		b.done(<-b.ran, 200, "living one")
		if run := w.wait(id); run.GetOutput() != "living one" {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
		w.mu.Lock()
		delete(w.executors, "127.0.0.2:9999")
		w.mu.Unlock()
		if run := w.wait(w.trigger("bill")); run.GetCode() != "no_executor" {
			t.Errorf("%s %s", run.GetState(), run.GetError())
		}
	})
}
