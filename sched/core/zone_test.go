package core

import (
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// TestZoneOfHosts checks that a server reports the zone of most of its connected hosts.
func TestZoneOfHosts(t *testing.T) {
	type h struct {
		zone string
		away bool
	}
	for _, c := range []struct {
		hosts []h
		want  string
	}{
		{nil, ""},
		{[]h{{"", false}, {"", false}}, ""},
		{[]h{{"", false}, {"", false}, {"z1", false}}, "z1"},
		{[]h{{"z2", false}, {"z1", false}, {"z2", false}}, "z2"},
		{[]h{{"z2", true}, {"z1", false}, {"z2", true}}, "z1"},
		{[]h{{"z2", false}, {"z1", false}}, "z1"}, // a tie: the first by name
	} {
		l := bare(t, time.Now())
		for i, x := range c.hosts {
			l.Sessions.hosts[string(rune('a'+i))] = &hosts.Host{Connected: !x.away, Hello: &apiv1.Hello{Labels: map[string]string{"zone": x.zone}}}
		}
		if got := l.PartitionLoad().Zone; got != c.want {
			t.Errorf("%v: %q, want %q", c.hosts, got, c.want)
		}
	}
}
