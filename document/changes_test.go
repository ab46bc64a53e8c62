package document_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
)

// TestRevisionChanges: a deleted definition and one before the first revision have no fields.
func TestRevisionChanges(t *testing.T) {
	job := func(timeout string, priority int32) *apiv1.Revision {
		return &apiv1.Revision{Job: &apiv1.Job{App: "default", Name: "a", Timeout: timeout, Priority: priority, Etag: timeout, Revision: 7}}
	}
	by := func(caller string) *apiv1.Revision {
		r := job("3s", 0)
		r.Job.CreatedBy, r.Job.ChangedBy = "ada", caller
		return r
	}
	deleted := &apiv1.Revision{Deleted: true}
	for name, c := range map[string]struct {
		old, next *apiv1.Revision
		want      []document.Change
	}{
		"equal":    {job("3s", 0), job("3s", 0), nil},
		"authors":  {by("ada"), by("bo"), nil},
		"changed":  {job("3s", 0), job("5s", 2), []document.Change{{Field: "timeout", Old: "3s", New: "5s"}, {Field: "priority", New: "2"}}},
		"created":  {nil, job("3s", 0), []document.Change{{Field: "name", New: "a"}, {Field: "timeout", New: "3s"}}},
		"deleted":  {job("3s", 0), deleted, []document.Change{{Field: "name", Old: "a"}, {Field: "timeout", Old: "3s"}}},
		"neither":  {deleted, nil, nil},
		"calendar": {&apiv1.Revision{Calendar: &apiv1.Calendar{Days: []string{"sat"}}}, &apiv1.Revision{Calendar: &apiv1.Calendar{Days: []string{"sun"}}}, []document.Change{{Field: "days", Old: "[sat]", New: "[sun]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := document.RevisionChanges(c.old, c.next)
			byField := func(l []document.Change) map[string]document.Change { // the order is that of the messages' fields
				m := map[string]document.Change{}
				for _, x := range l {
					m[x.Field] = x
				}
				return m
			}
			if diff := cmp.Diff(byField(c.want), byField(got)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}
