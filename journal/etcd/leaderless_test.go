package etcd

import (
	"fmt"
	"testing"
	"time"
)

// TestLeaderlessMember: a member that is cut off from the others, and that servers reach,
// holds up nobody who may ask another one.
func TestLeaderlessMember(t *testing.T) {
	t.Parallel()
	e := begin(t, 3, nil)
	const lone = 1
	e.cutOff(t, lone)
	c := connect(t, "a", "", e.urls()...)
	// Each member has its turn among these, and holds what it cannot do for seconds.
	ctx := within(t, 5*time.Second)
	for i := range 30 {
		if err := c.Note(ctx, "table", "key", fmt.Sprint(i), false); err != nil {
			t.Fatalf("after %d changes: %v", i, err)
		}
		if _, _, err := c.position(ctx, "x"); err != nil {
			t.Fatalf("after %d changes: %v", i, err)
		}
	}
	if _, err := c.grant(ctx); err != nil {
		t.Fatal(err)
	}
}

// cutOff cuts a member off from the others, both ways, and waits until it knows of no
// leader and they do.
func (e *ensemble) cutOff(t *testing.T, i int) {
	t.Helper()
	lone := e.members[i].etcd.Server
	for _, other := range lone.Cluster().Members() {
		if other.ID == lone.MemberID() {
			continue
		}
		lone.CutPeer(other.ID)
		for j, m := range e.members {
			if j != i && m.etcd.Server.MemberID() == other.ID {
				m.etcd.Server.CutPeer(lone.MemberID())
			}
		}
	}
	for end := within(t, 20*time.Second); ; {
		led := 0
		for j, m := range e.members {
			if l := m.etcd.Server.Leader(); j != i && l != 0 && l != lone.MemberID() {
				led++
			}
		}
		if lone.Leader() == 0 && led == len(e.members)-1 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-end.Done():
			t.Fatalf("the member that was cut off is led by %v, and %d others are led", lone.Leader(), led)
		}
	}
}
