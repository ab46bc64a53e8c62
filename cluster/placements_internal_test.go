package cluster

import (
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/job"
)

// FuzzPlaces gives the cluster view rows with any content.
func FuzzPlaces(f *testing.F) {
	for _, row := range [][2]string{{"slot/hot/3", "main.1 7"}, {"slot/a%2Fb/15", "main 1"}, {"had/hot/main.1", "1"}, {"split/hot", `{"units":["a"]}`}, {"slot/hot/99", "x"}, {"slot/%zz/1", "m 1"}} {
		f.Add(row[0], row[1], false)
		f.Add(row[0], row[1], true)
	}
	f.Fuzz(func(t *testing.T, key, value string, deleted bool) {
		p := newPlacements()
		kind, rest, _ := strings.Cut(key, "/")
		p.Receive(kind+"/", rest, value, deleted)
		v := Snapshot{homes: map[string]string{"hot": "main"}, placements: p.clone()}
		if got := v.PartitionsOf("hot"); len(got) != job.Slots {
			t.Fatalf("%d seats", len(got))
		}
		for app, w := range v.placements.desired {
			if len(w.Units) != job.Slots {
				t.Fatalf("%s has a desired placement of %d slots", app, len(w.Units))
			}
		}
	})
}
