package sched_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestErrorMarks: marks of errors are there after a restart, of an app without alert rules too, until
// they are cleared or their time has passed.
func TestErrorMarks(t *testing.T) {
	const first, second = "0123456789abcdef", "fedcba9876543210"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		c := &alertClient{client: w.client()}
		c.alerts = apiv1.NewAlertsClient(c.conn)
		c.push()
		c.apply(&apiv1.Job{Name: "totals"})
		marks := func() []*apiv1.ErrorMark {
			t.Helper()
			r, err := c.alerts.ListErrorMarks(t.Context(), &apiv1.ListErrorMarksRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return r.Marks
		}
		if all := marks(); len(all) != 0 {
			t.Errorf("a new app has marks: %v", all)
		}
		m, err := c.alerts.MarkError(t.Context(), &apiv1.MarkErrorRequest{Fingerprint: first, State: "acknowledged", Note: "the gateway is down", Job: "totals"})
		if err != nil || m.MarkedBy == "" || m.MarkedAt == nil || m.App != "default" {
			t.Fatalf("mark %v, %v", m, err)
		}
		until := time.Now().Add(time.Hour)
		if _, err := c.alerts.MarkError(t.Context(), &apiv1.MarkErrorRequest{Fingerprint: second, State: "ignored", Until: timestamppb.New(until)}); err != nil {
			t.Fatal(err)
		}
		c.restart(w)
		all := marks()
		if len(all) != 2 || all[0].Fingerprint != first && all[1].Fingerprint != first {
			t.Fatalf("after a restart: %v", all)
		}
		for _, m := range all {
			switch {
			case m.Fingerprint == first && (m.Note != "the gateway is down" || m.Job != "totals" || m.State != "acknowledged" || m.Until != nil):
				t.Errorf("the first mark is %v", m)
			case m.Fingerprint == second && !m.Until.AsTime().Equal(until):
				t.Errorf("the second mark is %v", m)
			}
		}
		time.Sleep(time.Hour)
		if all := marks(); len(all) != 1 || all[0].Fingerprint != first {
			t.Errorf("after the time of the second: %v", all)
		}
		if _, err := c.alerts.ClearErrorMark(t.Context(), &apiv1.ClearErrorMarkRequest{Fingerprint: first}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.alerts.ClearErrorMark(t.Context(), &apiv1.ClearErrorMarkRequest{Fingerprint: first}); status.Code(err) != codes.NotFound {
			t.Errorf("clear a mark twice: %v", err)
		}
		c.restart(w)
		if all := marks(); len(all) != 0 {
			t.Errorf("after clearing: %v", all)
		}
		for _, bad := range []*apiv1.MarkErrorRequest{
			{Fingerprint: "x", State: "ignored"},
			{Fingerprint: first, State: "fixed"},
			{Fingerprint: first, State: "acknowledged", Until: timestamppb.New(time.Now().Add(time.Hour))},
			{Fingerprint: first, State: "ignored", Until: timestamppb.New(time.Now().Add(-time.Hour))},
			{Fingerprint: first, State: "ignored", Note: string(make([]byte, 501))},
			{Fingerprint: first, State: "ignored", Job: "no job"},
		} {
			if _, err := c.alerts.MarkError(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", bad, err)
			}
		}
		c.close()
		w.close()
	})
}
