package cluster

import (
	"fmt"
	"testing"

	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

func TestClusterStatus(t *testing.T) {
	v := Snapshot{
		Partitions: []string{"main", "main.1", "main.2", "main.3"},
		Servers: map[string]Presence{
			"a": {Address: "h:1", Owns: map[string]PartitionReport{"main": {Rate: 2, Hosts: 3, Apps: 4}}, Follows: map[string]FollowState{"main.1": {}}},
			"b": {Address: "h:2", Owns: map[string]PartitionReport{"main.1": {Rate: 5}}, Follows: map[string]FollowState{"main": {}}},
		},
		Wants:    map[string]string{"main": "b", "main.1": "b"},
		Draining: map[string]bool{"b": true, "c": true},
		Owners:   map[string]etcd.Owner{"main": {Server: "a", Address: "h:1", Epoch: 9}, "main.1": {Server: "b", Address: "h:2"}, "main.3": {Server: "d", Address: "h:4"}},
	}
	st := Status(v, "main", "a", "b", nil)
	var got []string
	for _, m := range st.Servers {
		got = append(got, fmt.Sprintf("%s %s %d %.0f", m.Id, m.State, m.Units, m.ScheduleRate))
	}
	for _, u := range st.Units {
		got = append(got, fmt.Sprintf("%s %s %s>%s %d %d %v", u.Name, u.State, u.Owner, u.To, u.Apps, u.Hosts, u.Standbys))
	}
	want := []string{
		"a up 1 2", "b draining 1 5", "c lost 0 0", "d lost 1 0",
		"main moving a>b 4 3 [b]", "main.1 owned b> 0 0 [a]", "main.2 free > 0 0 []", "main.3 owned d> 0 0 []",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	v.Owners["main.1"] = etcd.Owner{Server: "a"}
	if st := Status(v, "main", "a", "b", nil); st.Servers[1].State != "drained" {
		t.Errorf("%v", st.Servers[1])
	}
}
