package etcd

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestLeaderlessMember: a member that servers reach, but that is cut off from the other
// members, delays no request that another member can serve.
func TestLeaderlessMember(t *testing.T) {
	t.Parallel()
	e := begin(t, 3, nil)
	const lone = 1
	e.cutOff(t, lone)
	c := connect(t, "a", "", e.urls()...)
	// Each member has its turn among these requests, and would hold one that it cannot
	// serve for seconds.
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

// TestNearMemberIsAskedAgain: after a transaction that the member in the process of a
// server did not accept, it gets no requests until it has another leader. Streams, such
// as the renewal of a lease, restart then.
func TestNearMemberIsAskedAgain(t *testing.T) {
	t.Parallel()
	e := begin(t, 3, nil)
	near := e.members[0]
	c := connectAs(t, Config{Endpoints: e.urls(), Member: near, Server: "a", Address: "a.test:1", Keep: time.Hour})
	if c.nearest() != c.near {
		t.Fatal("the member in the process is not asked at first")
	}
	was := near.leader()
	to, going, done := c.steady(t.Context())
	defer done()
	if to != c.near || going.Err() != nil {
		t.Errorf("what goes on does not go to the member in the process: %v", going.Err())
	}
	c.missed(was)
	c.away.Load().until = time.Now().Add(time.Hour) // however slow the machine is
	if c.nearest() != c.client {
		t.Error("the member is asked again though nothing has changed")
	}
	i := slices.IndexFunc(e.members, func(m *Member) bool { return uint64(m.etcd.Server.MemberID()) == was })
	next := e.members[(i+1)%3].etcd.Server.MemberID()
	if err := e.members[i].etcd.Server.MoveLeader(within(t, 20*time.Second), was, uint64(next)); err != nil {
		t.Fatal(err)
	}
	for end := within(t, 20*time.Second); near.leader() == was || near.leader() == 0; {
		select {
		case <-time.After(time.Millisecond):
		case <-end.Done():
			t.Fatal("the lead did not move")
		}
	}
	select {
	case <-going.Done():
	case <-within(t, 20*time.Second).Done():
		t.Error("what goes on still waits for the old leader")
	}
	if c.nearest() != c.near {
		t.Error("the member is not asked under its new leader")
	}
}

// cutOff cuts a member off from the others, in both directions, and waits until it knows
// no leader and the others know one.
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
