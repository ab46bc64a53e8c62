package node

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestEveryMethodIsRouted: every method has a routing, which finds the partition that
// answers it when an app is split.
func TestEveryMethodIsRouted(t *testing.T) {
	left := map[string]bool{}
	for m := range routings {
		left[m] = true
	}
	for _, d := range routed() {
		var names []string
		for _, m := range d.Methods {
			names = append(names, m.MethodName)
		}
		for _, m := range d.Streams {
			names = append(names, m.StreamName)
		}
		for _, name := range names {
			method := "/" + d.ServiceName + "/" + name
			by := routings[method]
			if delete(left, method); by == unrouted {
				t.Errorf("%s has no routing: add it to routings in route.go", method)
				continue
			}
			kind, err := requestOf(d.ServiceName, name)
			if err != nil {
				t.Fatal(err)
			}
			req := kind.New().Interface()
			switch by {
			case byJob:
				_, named := req.(interface{ GetName() string })
				if _, apply := req.(*apiv1.ApplyJobRequest); !named && !apply {
					t.Errorf("%s is routed by its job, and its request has no name", method)
				}
			case byRun:
				if _, ok := req.(interface{ GetId() string }); !ok {
					t.Errorf("%s is routed by its run, and its request has no id", method)
				}
			case byCaller:
				if _, ok := req.(interface{ GetCaller() *apiv1.Caller }); !ok {
					t.Errorf("%s is routed by its caller, and its request has none", method)
				}
			case byPartitions:
				if _, err := (&router{view: newClusterView(nil, "g", "s", "h:0", nil)}).unite(t.Context(), "app", method, req); err != nil && strings.Contains(err.Error(), "not put together") &&
					name != "ListApps" && name != "ListHosts" { // these are about the whole cluster
					t.Errorf("%s: %v", method, err)
				}
			}
			if _, ok := slotOf(by, req); ok && by != byJob && by != byRun && by != byCaller {
				t.Errorf("%s is not routed by a slot, and has one", method)
			}
		}
	}
	for m := range left {
		t.Errorf("%s is routed, and there is no such method", m)
	}
}

func TestSlotOf(t *testing.T) {
	id := job.OccurrenceID("a", "name", job.RunID{}.Planned(), "")
	for _, tc := range []struct {
		by  routing
		req proto.Message
		ok  bool
	}{
		{byJob, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "name"}}, true},
		{byJob, &apiv1.GetJobRequest{Name: "name"}, true},
		{byJob, &apiv1.GetJobRequest{}, false},
		{byRun, &apiv1.GetRunRequest{Id: id.String()}, true},
		{byRun, &apiv1.GetRunRequest{Id: "none"}, false},
		{byCaller, &apiv1.GuestMapRequest{Caller: &apiv1.Caller{Run: id[:]}}, true},
		{byCaller, &apiv1.GuestMapRequest{Caller: &apiv1.Caller{Run: id[:3]}}, false},
		{byCaller, &apiv1.GuestMapRequest{}, false},
		{byHome, &apiv1.GetJobRequest{Name: "name"}, false},
	} {
		if slot, ok := slotOf(tc.by, tc.req); ok != tc.ok || ok && slot != job.SlotOf("name") {
			t.Errorf("%T: slot %d, %v", tc.req, slot, ok)
		}
	}
}

// TestPagesOfUnits: merged pages name each job once and in order, whatever the pages of
// the partitions are, and a job that moved meanwhile once.
func TestPagesOfUnits(t *testing.T) {
	partitions := [3][]string{}
	var all []string
	for i := range 100 {
		name := fmt.Sprintf("job-%03d", i)
		partitions[2-i%7%3] = append(partitions[2-i%7%3], name)
		all = append(all, name)
	}
	partitions[0] = append(partitions[0], "job-050") // it is in two partitions
	partitions[1] = append(partitions[1], "job-050")
	for i := range partitions {
		slices.Sort(partitions[i])
		partitions[i] = slices.Compact(partitions[i])
	}
	for _, size := range []int{1, 2, 7, 50, 1000} {
		var got []string
		cut := map[string]bool{} // as if these jobs were deleted while a page was made
		for token := ""; ; {
			after, err := base64.RawURLEncoding.DecodeString(token)
			if err != nil {
				t.Fatal(err)
			}
			var pages []*apiv1.ListJobsResponse
			for _, names := range partitions {
				p := &apiv1.ListJobsResponse{}
				for i, name := range names {
					if name <= string(after) {
						continue
					}
					if len(p.Jobs) == size {
						p.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(names[i-1]))
						for _, j := range p.Jobs[size-size*3/4:] {
							cut[j.Name] = true
						}
						p.Jobs = p.Jobs[:size-size*3/4]
						break
					}
					p.Jobs = append(p.Jobs, &apiv1.Job{Name: name})
				}
				pages = append(pages, p)
			}
			full := len(pages[0].Jobs) + len(pages[1].Jobs) + len(pages[2].Jobs)
			m, err := mergeJobs(pages, size)
			if err != nil || len(m.Jobs) > size || full > 0 && len(m.Jobs) == 0 && size > 3 {
				t.Fatalf("a page of %d has %d, %v", size, len(m.Jobs), err)
			}
			for _, j := range m.Jobs {
				got = append(got, j.Name)
			}
			if token = m.NextPageToken; token == "" {
				break
			}
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("pages of %d: %v", size, got)
		}
		for _, name := range all {
			if !cut[name] && !slices.Contains(got, name) {
				t.Errorf("pages of %d leave out %s", size, name)
			}
		}
	}
	if _, err := mergeJobs([]*apiv1.ListJobsResponse{{NextPageToken: "%"}}, 5); err == nil {
		t.Error("a token that is none was taken")
	}
}

func TestUnitTokens(t *testing.T) {
	partitions := []string{"main", "main.1"}
	if got, err := parsePartitionTokens("", partitions); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := parsePartitionTokens("live.5", partitions); err != nil || got["main"] != "live.5" || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	want := partitionTokens{"main.1": "live.7"}
	if got, err := parsePartitionTokens(want.String(), partitions); err != nil || got["main.1"] != "live.7" || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{partitionsToken, partitionsToken + "!", partitionsToken + "e30", (partitionTokens{"other": "x"}).String()} {
		if got, err := parsePartitionTokens(s, partitions); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
	if s := (partitionTokens{}).String(); s != "" {
		t.Errorf("no token is %q", s)
	}
}

// FuzzPlaces gives the cluster view rows with any content.
func FuzzPlaces(f *testing.F) {
	for _, row := range [][2]string{{"slot/hot/3", "main.1 7"}, {"slot/a%2Fb/15", "main 1"}, {"had/hot/main.1", "1"}, {"split/hot", `{"units":["a"]}`}, {"slot/hot/99", "x"}, {"slot/%zz/1", "m 1"}} {
		f.Add(row[0], row[1], false)
		f.Add(row[0], row[1], true)
	}
	f.Fuzz(func(t *testing.T, key, value string, deleted bool) {
		p := newPlacements()
		kind, rest, _ := strings.Cut(key, "/")
		p.hear(kind+"/", rest, value, deleted)
		v := view{homes: map[string]string{"hot": "main"}, placements: p.clone()}
		if got := v.partitionsOf("hot"); len(got) != job.Slots {
			t.Fatalf("%d seats", len(got))
		}
		for app, w := range v.placements.wishes {
			if len(w.Units) != job.Slots {
				t.Fatalf("%s is wished %d seats", app, len(w.Units))
			}
		}
	})
}

// TestMergedPagesAreBounded merges full pages of several partitions.
func TestMergedPagesAreBounded(t *testing.T) {
	const partitions, jobs = 4, 40
	var pages []*apiv1.ListJobsResponse
	for u := range partitions {
		p := &apiv1.ListJobsResponse{}
		for i := range jobs {
			p.Jobs = append(p.Jobs, &apiv1.Job{Name: fmt.Sprintf("job-%03d", i*partitions+u), Input: strings.Repeat("x", 60_000)})
		}
		pages = append(pages, p)
	}
	m, err := mergeJobs(pages, 1000)
	if err != nil || proto.Size(m) > 4<<20 || len(m.Jobs) < 40 {
		t.Errorf("a page has %d jobs and %d bytes, %v", len(m.Jobs), proto.Size(m), err)
	}
	last, err := base64.RawURLEncoding.DecodeString(m.NextPageToken)
	if err != nil || string(last) != m.Jobs[len(m.Jobs)-1].Name {
		t.Errorf("the list goes on after %q, %v", last, err)
	}
}
