package core

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// TestNoChangeWithoutEvent makes a change of access in a batch with a record that cannot be encoded, as one
// with its event. Nothing of the batch reaches the journal, nor anything after it, and the caller gets
// an error.
func TestNoChangeWithoutEvent(t *testing.T) {
	for _, tt := range []struct {
		author string // of the record that follows the change
		want   int    // records in the journal
	}{{"ada", 3}, {"\xff", 0}} {
		l := bare(t, time.Unix(1000, 0))
		j := &memoryJournal{room: 1 << 30}
		l.cfg.Journal = j
		var answers []error
		change := func(name string) {
			l.commits.by = &apiv1.Attribution{Author: "admin"}
			if err := l.ChangeAccess(func(*access.State) ([]access.Change, error) {
				return []access.Change{{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Principal{Principal: &apiv1.PrincipalRow{Name: name, Kind: access.KindService}}}}}, nil
			}); err != nil {
				answers = append(answers, err)
				return
			}
			l.commits.onDurable(func(err error) { answers = append(answers, err) })
		}
		change("ci")
		l.commits.recordUnnamed(&apiv1.Record{Attribution: &apiv1.Attribution{Author: tt.author}})
		l.commits.submit()
		l.commits.answerDurable()
		if len(j.records) != tt.want {
			t.Errorf("with the author %q: %d records are in the journal, want %d", tt.author, len(j.records), tt.want)
		}
		if tt.want > 0 {
			continue
		}
		change("late")
		l.commits.submit()
		l.commits.answerDurable()
		if len(j.records) > 0 || len(answers) != 2 || answers[0] == nil || answers[1] == nil {
			t.Errorf("%d records are in the journal, and the answers are %v", len(j.records), answers)
		}
	}
}

// TestCordonHasEvent cordons a host while the disk has no room for the event, and then while it has.
func TestCordonHasEvent(t *testing.T) {
	l := bare(t, time.Unix(1000, 0))
	j := &memoryJournal{room: endRoom - 1}
	l.cfg.Journal = j
	h := &hosts.Host{Hello: &apiv1.Hello{Name: "h"}, Connected: true, Out: hosts.NewOutbox()}
	l.Sessions.hosts = map[string]*hosts.Host{"h1": h}
	l.commits.by = &apiv1.Attribution{Author: "admin"}
	for _, full := range []bool{true, false} {
		if !full {
			j.room = 1 << 30
		}
		_, err := l.Sessions.Cordon("h1", true, false)
		l.commits.submit()
		if refused := status.Code(err) == codes.ResourceExhausted; refused != full || h.Cordoned == full || (len(j.records) == 0) != full {
			t.Errorf("on a full disk, %t: the host is cordoned: %t, with %d events and %v", full, h.Cordoned, len(j.records), err)
		}
	}
}
