package projection

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestRowsOfARunGoLater checks in which capture rows are written and deleted: the rows of
// a run's map are deleted later than others.
func TestRowsOfARunGoLater(t *testing.T) {
	var c View
	keys := func() (set, deleted []string) {
		for _, r := range c.guestRows(func(m proto.Message) []byte { b, _ := proto.Marshal(m); return b }) {
			if r.Value != nil {
				set = append(set, r.Key)
			} else {
				deleted = append(deleted, r.Key)
			}
		}
		c.rows = nil // as reset does
		slices.Sort(set)
		slices.Sort(deleted)
		return set, deleted
	}
	want := func(what string, set, deleted []string) {
		t.Helper()
		gotSet, gotDeleted := keys()
		if !slices.Equal(gotSet, set) || !slices.Equal(gotDeleted, deleted) {
			t.Errorf("%s: set %q and deleted %q, want %q and %q", what, gotSet, gotDeleted, set, deleted)
		}
	}
	c.RowChanged(&job.Row{Key: "kv/a/b/k", Value: &apiv1.ValueRow{}}) // an empty value, which is not a deletion
	c.RowChanged(&job.Row{Key: "mapin/a/x/0", Value: &apiv1.MapChunk{First: 1}})
	c.RowChanged(&job.Row{Key: "secret/a/s", Value: &apiv1.SecretRow{Name: "s"}})
	c.RowChanged(&job.Row{Key: "secret/a/s"})
	if !c.fresh() {
		t.Error("nothing is to be written")
	}
	want("first", []string{"kv/a/b/k", "mapin/a/x/0"}, []string{"secret/a/s"})
	c.RowChanged(&job.Row{Key: "kv/a/b/k"})
	c.RowChanged(&job.Row{Key: "mapin/a/x/0"})
	want("when the run has ended", nil, []string{"kv/a/b/k"})
	if !c.fresh() {
		t.Error("the rows of the run are not to be deleted any more")
	}
	want("one later", nil, []string{"mapin/a/x/0"})
	if c.fresh() {
		t.Error("there is something left to write")
	}
	want("two later", nil, nil)
}
