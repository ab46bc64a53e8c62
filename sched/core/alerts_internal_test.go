package core

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	alerts "github.com/wheelworkhq/wheelwork/alert/state"
)

// TestAlerted: as many groups as an app may have change in one turn, as when their rule is deleted. No record is
// larger than the journal takes.
func TestAlerted(t *testing.T) {
	const limit = 4 << 20 // of a record
	var rows []alerts.Row
	for i := range alerts.MaxGroups {
		rows = append(rows, alerts.Row{Key: fmt.Sprint("group/r/", i), Value: make([]byte, 1000)})
	}
	rows = append(rows, alerts.Row{Key: "group/r/large", Value: make([]byte, 2<<20)}, alerts.Row{Key: "group/r/gone"})
	n := 0
	for _, rec := range alerted(rows) {
		if size := proto.Size(rec); size > limit {
			t.Errorf("a record has %d bytes", size)
		}
		for _, r := range rec.Rows {
			if r.Key != rows[n].Key {
				t.Fatalf("row %d is %s, want %s", n, r.Key, rows[n].Key)
			}
			n++
		}
	}
	if n != len(rows) || len(alerted(nil)) != 0 {
		t.Errorf("%d of %d rows are in records", n, len(rows))
	}
}
