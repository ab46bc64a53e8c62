package job

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestPurge checks what a purge drops and keeps.
func TestPurge(t *testing.T) {
	row := &apiv1.RunRow{
		Job: "j", State: "failed", HasInput: true, Input: []byte("secret"), Output: []byte("secret"), Error: "bad", Code: "exit", Nth: 7,
		Attempts: []*apiv1.AttemptRow{{Number: 1, Error: "bad"}},
		Nodes:    []*apiv1.NodeRow{{Name: "a", Output: []byte("secret"), Nodes: []*apiv1.NodeRow{{Name: "b", Output: []byte("secret")}}}},
	}
	value, err := proto.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	purged, err := Purge(value, 5)
	if err != nil || bytes.Contains(purged, []byte("secret")) {
		t.Fatal(purged, err)
	}
	got := &apiv1.RunRow{}
	if err := proto.Unmarshal(purged, got); err != nil {
		t.Fatal(err)
	}
	row.HasInput, row.Input, row.Output, row.PayloadDeletedMs = false, nil, nil, 5
	row.Nodes[0].Output, row.Nodes[0].Nodes[0].Output = nil, nil
	if !proto.Equal(got, row) {
		t.Errorf("%v, want %v", got, row)
	}
	if again, err := Purge(purged, 5); err != nil || !bytes.Equal(again, purged) {
		t.Error("a second purge changes the row", err)
	}
	if _, err := Purge([]byte{0xff}, 5); err == nil {
		t.Error("a damaged row has no error")
	}
}

// TestRunsRemoved checks that a record leaves live runs alone.
func TestRunsRemoved(t *testing.T) {
	s := NewSlot("default", 0)
	a, b := RunID{1}, RunID{2}
	s.Runs.add(&Run{ID: b, App: "default", slot: s})
	rec := &apiv1.Record{AtMs: 3, Kind: &apiv1.Record_RunsRemoved{RunsRemoved: &apiv1.RunsRemoved{Runs: [][]byte{b[:], {1, 2}}, Run: a[:]}}}
	fx := s.Apply(rec, nil)
	if len(fx) != 1 || fx[0].Change != RunDeleted || fx[0].Run.ID != a || fx[0].AtMs != 3 {
		t.Errorf("%v", fx)
	}
}
