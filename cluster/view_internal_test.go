package cluster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

func quietView(partitions ...string) *View {
	r := NewView(nil, "main", "me", "h:0", slog.New(slog.DiscardHandler))
	r.Partitions = partitions
	return r
}

func facts(rows ...string) (all []etcd.Fact) {
	for i := 0; i < len(rows); i += 2 {
		all = append(all, etcd.Fact{Key: rows[i], Value: rows[i+1]})
	}
	return all
}

// TestAssignmentToWhoWasHereBefore: a server whose disk was lost comes back with another
// id. For the rest of the lease etcd names the old id, at the same address.
func TestAssignmentToWhoWasHereBefore(t *testing.T) {
	r := quietView("main")
	for _, c := range []struct {
		owner etcd.Owner
		want  string
	}{
		{etcd.Owner{Server: "before", Address: "h:0", Epoch: 3}, ""},
		{etcd.Owner{Server: "you", Address: "h:1", Epoch: 4}, "you"},
		{etcd.Owner{Server: "me", Address: "h:0", Epoch: 5}, "me"},
	} {
		r.ReceiveOwners(map[string]etcd.Owner{"main": c.owner})
		if a := r.Assignment("main"); a.Server != c.want || (a.Address == "") != (c.want == "") || a.Epoch != c.owner.Epoch {
			t.Errorf("%+v: %v", c.owner, a)
		}
	}
}

// TestLacking: a key seals when every server has reported it. Servers of older versions report none.
func TestLacking(t *testing.T) {
	r := quietView("main")
	lacking := func(key, want string) {
		t.Helper()
		if got := strings.Join(r.Snapshot().Lacking(key), " "); got != want {
			t.Errorf("%s: %q lack it, want %q", key, got, want)
		}
	}
	if got := r.Snapshot().Lacking("a"); len(got) != 1 {
		t.Errorf("before anything is known %q lack it", got)
	}
	r.ReceiveOwners(nil)
	row := func(keys ...string) string {
		text, err := json.Marshal(Presence{Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	r.Receive(facts("server/one", row("a", "b"), "server/two", row("a")), true)
	lacking("a", "")
	lacking("b", "two")
	lacking("c", "one two")
	r.Receive(facts("server/two", row("a", "b"), "server/old", `{"address":"h:1"}`), false)
	lacking("b", "old")
	r.Receive([]etcd.Fact{{Key: "server/old", Deleted: true}}, false)
	lacking("b", "")
}

func TestViewHears(t *testing.T) {
	r := quietView("main", "main.1")
	here, err := json.Marshal(Presence{Address: "h:1", Owns: map[string]PartitionReport{"main": {Rate: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	before := r.Change()
	r.Receive(facts("server/you", string(here), "want/main.1", "you", "want/main", "gone", "ready/main.1/you", "7", "app/a%2Fb", "main.1", "drain/me", "1", "known/main", "1"), true)
	select {
	case <-before:
	default:
		t.Error("nobody is told of the change")
	}
	r.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "you", Epoch: 3}, "main.1": {Server: "me", Epoch: 7}})
	if partition, ok := r.PartitionOf("a/b"); partition != "main.1" || !ok {
		t.Errorf("the app is in %q", partition)
	}
	if s := r.StandingOf("main.1"); s.Want != "you" || !s.Ready || s.Owner.Server != "me" {
		t.Errorf("%+v", s)
	}
	if s := r.StandingOf("main"); s.Want != "" {
		t.Errorf("a server that is not there is wanted: %+v", s)
	}
	// Ready for an ownership that has ended does not mean ready for this one.
	r.ReceiveOwners(map[string]etcd.Owner{"main.1": {Server: "me", Epoch: 8}})
	if s := r.StandingOf("main.1"); s.Ready {
		t.Errorf("%+v", s)
	}
	r.Receive([]etcd.Fact{{Key: "server/you", Deleted: true}, {Key: "drain/me", Deleted: true}}, false)
	if v := r.Snapshot(); len(v.Servers) != 0 || len(v.Draining) != 0 || v.apps != 1 {
		t.Errorf("%+v", v)
	}
	r.Receive(nil, true)
	if v := r.Snapshot(); v.apps != 0 || len(v.Wants) != 0 || len(v.known) != 0 {
		t.Errorf("a whole table says all: %+v", v)
	}
}

func TestViewPlaces(t *testing.T) {
	r := quietView("main", "main.1", "main.2")
	r.Receive(facts("known/main", "1", "known/main.1", "1"), true)
	if partition, err := emptiest(r.Partitions, r.known, r.servers, r.apps); err == nil {
		t.Errorf("placed in %s while nobody knows what main.2 holds", partition)
	}
	busy := `{"owns":{"main":{"rate":50},"main.1":{"rate":0.1}}}`
	r.Receive(facts("known/main.2", "1", "server/x", busy), false)
	for i, want := range []string{"main.2", "main.1", "main.2", "main.1", "main.2"} {
		partition, err := emptiest(r.Partitions, r.known, r.servers, r.apps)
		if partition != want || err != nil {
			t.Errorf("app %d goes to %s, %v, want %s", i, partition, err, want)
		}
		r.Receive(facts(fmt.Sprint("app/", i), partition), false)
	}
}

func TestFindsServers(t *testing.T) {
	v := Snapshot{Servers: map[string]Presence{"srv-a": {Address: "h:1"}, "srv-b": {Address: "h:2"}}}
	for name, want := range map[string]string{"srv-a": "srv-a", "h:2": "srv-b"} {
		if got, err := v.Find(name); got != want || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := v.Find("h:3"); err == nil {
		t.Error("found one that is not there")
	}
}

// FuzzRoster: rows in etcd may come from another version, or be garbage.
func FuzzRoster(f *testing.F) {
	for _, seed := range [][2]string{
		{"app/a", "main"},
		{"app/%zz", "main"},
		{"server/x", "{}"},
		{"server/x", `{"owns":null}`},
		{"server/x", "null"},
		{"server/", "["},
		{"want/main", ""},
		{"want/", "x"},
		{"ready/main/x", "-1"},
		{"ready/main", "18446744073709551616"},
		{"drain/", ""},
		{"", ""},
		{"/", "/"},
		{"units", "[]"},
	} {
		f.Add(seed[0], seed[1], false)
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, key, value string, deleted bool) {
		r := quietView("main")
		r.Receive([]etcd.Fact{{Key: key, Value: value, Deleted: deleted}}, true)
		v := r.Snapshot()
		Status(v, "main", "me", "", nil)
		NewBalancer(r, BalancerConfig{Settle: time.Second}, r.log).decide(v, time.Unix(0, 0))
		r.StandingOf("main")
		if _, err := emptiest(r.Partitions, r.known, r.servers, r.apps); err == nil && !v.known["main"] {
			t.Error("placed where nobody knows what there is")
		}
	})
}
