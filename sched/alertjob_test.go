package sched_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestAlertsInAJob: the alerts in the document of a job are rules for it alone, also after a restart. They
// end when the entry or the job is gone.
func TestAlertsInAJob(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		w.handlers.byJob["other"] = w.handlers.byJob["bad"]
		own := []*apiv1.JobAlert{{Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Wait: "0s", Repeat: "0s", Severity: "critical"}}
		apply := func(alerts []*apiv1.JobAlert) { c.apply(&apiv1.Job{Name: "bad", Alerts: alerts}) }
		c.apply(&apiv1.Job{Name: "other"})
		c.define(&apiv1.AlertRule{Name: "none", Events: []string{"missed"}, Channels: []string{"ops"}})
		apply(own)
		c.runs("other", "")
		c.runs("bad", "")
		if s := to.took(); s != "firing bad: failed" {
			t.Fatalf("told %q", s)
		}
		all := c.firing()
		if len(all) != 1 || all[0].Rule != "job:bad:0" || all[0].Severity != "critical" || all[0].Labels["job"] != "bad" {
			t.Fatalf("firing %v", all)
		}
		c.restart(w)
		c.runs("bad", "")
		if now := c.firing(); len(now) != 1 || now[0].Id != all[0].Id || now[0].Count != 2 {
			t.Errorf("after a restart: %v", now)
		}
		c.runs("bad", "good")
		if s := to.took(); s != "resolved bad: failed" {
			t.Errorf("told %q", s)
		}

		// An edit holds for the next run, and the alert goes on.
		c.runs("bad", "")
		own[0].Repeat = "1h"
		apply(own)
		if now := c.firing(); len(now) != 1 || now[0].NextAt == nil {
			t.Errorf("after an edit: %v", now)
		}
		if s := to.took(); s != "firing bad: failed" {
			t.Errorf("told %q", s)
		}
		if _, err := c.alerts.CreateSilence(t.Context(), &apiv1.CreateSilenceRequest{Rule: "job:bad:0", Duration: "1m"}); err != nil {
			t.Errorf("silence: %v", err)
		}

		// A channel that a job names is not deleted.
		changes := apiv1.NewChangeSetsClient(c.conn)
		drop := &apiv1.ApplyChangeSetRequest{Changes: []*apiv1.Change{{Kind: &apiv1.Change_Delete{Delete: &apiv1.Deletion{Kind: "alertchannel", Name: "ops"}}}, {Kind: &apiv1.Change_Delete{Delete: &apiv1.Deletion{Kind: "alertrule", Name: "none"}}}}}
		if _, err := changes.ApplyChangeSet(t.Context(), drop); err == nil || !strings.Contains(err.Error(), "job bad") {
			t.Errorf("delete the channel: %v", err)
		}

		// Without the entry the alert ends, with its resolve message.
		apply(nil)
		synctest.Wait()
		if s := to.took(); s != "resolved bad: failed" || len(c.firing()) != 0 {
			t.Errorf("without alerts: %q, %v", s, c.firing())
		}
		c.restart(w)
		c.runs("bad", "")
		if s := to.took(); s != "" {
			t.Errorf("a job without alerts: %q", s)
		}

		// So it does with the job.
		time.Sleep(2 * time.Minute)
		apply(own)
		c.runs("bad", "")
		if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "bad"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := to.took(); s != "firing bad: failed; resolved bad: failed" || len(c.firing()) != 0 {
			t.Errorf("without the job: %q, %v", s, c.firing())
		}
		if _, err := apiv1.NewChangeSetsClient(c.conn).ApplyChangeSet(t.Context(), drop); err != nil {
			t.Errorf("delete the channel: %v", err)
		}
	})
}

// TestWrongAlertsInAJob: a job whose alerts could not be followed is refused, with the reason.
func TestWrongAlertsInAJob(t *testing.T) {
	alerting(t, func(t *testing.T, _ *world, c *alertClient, _ *receiver) {
		good := func() *apiv1.JobAlert { return &apiv1.JobAlert{Events: []string{"failed"}, Channels: []string{"ops"}} }
		for want, change := range map[string]func(*apiv1.JobAlert){
			"alerts[0]: events has no event":                      func(a *apiv1.JobAlert) { a.Events = nil },
			`alerts[0]: events has "disk", which is about no job`: func(a *apiv1.JobAlert) { a.Events = []string{"disk"} },
			`name the channel "nosuch", which does not exist`:     func(a *apiv1.JobAlert) { a.Channels = []string{"nosuch"} },
			"alerts[0]: channels is empty":                        func(a *apiv1.JobAlert) { a.Channels = nil },
			"alerts[0]: when.no_success_since is missing":         func(a *apiv1.JobAlert) { a.Events = []string{"no_success_since"} },
			"alerts[0]: wait: \"soon\" is not a duration":         func(a *apiv1.JobAlert) { a.Wait = "soon" },
		} {
			a := good()
			change(a)
			_, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "wrong", Handler: &apiv1.Handler{Name: "native:x"}, Alerts: []*apiv1.JobAlert{a}}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q: %v", want, err)
			}
		}
		many := make([]*apiv1.JobAlert, 9)
		for i := range many {
			many[i] = good()
		}
		_, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "wrong", Handler: &apiv1.Handler{Name: "native:x"}, Alerts: many}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "alerts has 9 entries") {
			t.Errorf("nine alerts: %v", err)
		}
	})
}

// TestPagesOfAlerts: alerts, rules and channels come in pages, each once.
func TestPagesOfAlerts(t *testing.T) {
	alerting(t, func(t *testing.T, _ *world, c *alertClient, _ *receiver) {
		names := []string{"r0", "r1", "r2", "r3", "r4"}
		for _, name := range names {
			c.define(&apiv1.AlertRule{Name: name, Events: []string{"failed"}, Channels: []string{"ops"}}, &apiv1.AlertChannel{Name: "c" + name, Slack: &apiv1.AlertRobot{Url: "https://example.com/hook"}})
		}
		c.runs("bad", "") // the alerts of all rules begin at the same time
		all := c.firing()
		var alerts, rules, channels []string
		for req := (&apiv1.ListAlertsRequest{PageSize: 2}); len(alerts) < 10; {
			r, err := c.alerts.ListAlerts(t.Context(), req)
			if err != nil || len(r.Alerts) > 2 {
				t.Fatalf("%v, %v", r, err)
			}
			for _, a := range r.Alerts {
				alerts = append(alerts, a.Id)
			}
			if req.PageToken = r.NextPageToken; req.PageToken == "" {
				break
			}
		}
		for i, a := range all {
			if len(all) != 5 || len(alerts) != 5 || alerts[i] != a.Id {
				t.Fatalf("alerts %v of %v", alerts, all)
			}
		}
		for req := (&apiv1.ListAlertRulesRequest{PageSize: 2}); len(rules) < 10; {
			r, err := c.alerts.ListAlertRules(t.Context(), req)
			if err != nil || len(r.Rules) > 2 {
				t.Fatalf("%v, %v", r, err)
			}
			for _, x := range r.Rules {
				rules = append(rules, x.Name)
			}
			if req.PageToken = r.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if !slices.Equal(rules, names) {
			t.Errorf("rules %v", rules)
		}
		for req := (&apiv1.ListAlertChannelsRequest{PageSize: 4}); len(channels) < 10; {
			r, err := c.alerts.ListAlertChannels(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Channels {
				channels = append(channels, x.Name)
			}
			if req.PageToken = r.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if want := []string{"cr0", "cr1", "cr2", "cr3", "cr4", "ops"}; !slices.Equal(channels, want) {
			t.Errorf("channels %v", channels)
		}
		for _, token := range []string{"x", "1", "1.", "x.alert"} {
			if _, err := c.alerts.ListAlerts(t.Context(), &apiv1.ListAlertsRequest{PageToken: token}); status.Code(err) != codes.InvalidArgument {
				t.Errorf("token %q: %v", token, err)
			}
		}
	})
}

// TestTimesOfAlertsAfterATakeOver: what does not happen in time is told within a second of its time by the server that has
// taken over, of rules and of a job.
func TestTimesOfAlertsAfterATakeOver(t *testing.T) {
	for _, standsBy := range []bool{false, true} {
		alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) { // it begins at midnight
			w.standsBy = standsBy
			begin := time.Now()
			c.define(&apiv1.AlertRule{Name: "by", Events: []string{"not_finished_by"}, When: &apiv1.AlertTimes{NotFinishedBy: "02:30"}, Select: &apiv1.AlertSelection{Jobs: []string{"bad"}}, Channels: []string{"ops"}, Wait: "0s"})
			c.apply(&apiv1.Job{Name: "bad", Alerts: []*apiv1.JobAlert{{Events: []string{"no_success_since"}, When: &apiv1.JobAlertTimes{NoSuccessSince: "4h"}, Channels: []string{"ops"}, Wait: "0s"}}})
			time.Sleep(time.Hour)
			w.stopServer()
			time.Sleep(time.Minute)
			w.start()
			c.reconnect(w)
			c.alerts = apiv1.NewAlertsClient(c.conn)
			for _, x := range []struct {
				at   time.Duration
				want string
			}{{2*time.Hour + 30*time.Minute, "firing bad: has not finished in time"}, {4 * time.Hour, "firing bad: has had no success for too long"}} {
				time.Sleep(time.Until(begin.Add(x.at - time.Millisecond)))
				if s := to.took(); s != "" {
					t.Errorf("standby %t: it was told %q before %s", standsBy, s, x.at)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if s := to.took(); s != x.want {
					t.Errorf("standby %t: it was told %q, want %q at %s", standsBy, s, x.want, x.at)
				}
			}
		})
	}
}
