package router

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/job"
)

// fill sets every string of a message to x, and of the messages in it.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != nil, f.IsMap():
		case f.IsList():
			if f.Kind() == protoreflect.MessageKind && depth > 0 {
				fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
			}
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("x"))
		case f.Kind() == protoreflect.MessageKind && depth > 0:
			fill(m.Mutable(f).Message(), depth-1)
		}
	}
}

// TestOptionsOfMethods checks the options of every method: its route, the field with its
// app, and how answers are merged. A call with a wrong option would be answered by the
// wrong partition.
func TestOptionsOfMethods(t *testing.T) {
	partitioned := map[string]bool{}
	for _, d := range routed() {
		partitioned[d.ServiceName] = true
	}
	for method, rule := range methods.All() {
		service, name := pathOf(method)
		kind, err := requestOf(service, name)
		if err != nil {
			t.Fatal(err)
		}
		request := kind.New()
		fill(request, 3)
		req := request.Interface()
		m := methodOf(t, service, name)
		switch rule.Apps {
		case methods.Unknown:
			t.Errorf("%s has no option app_field, or one that is not a field of its request", method)
		case methods.None, methods.Each, methods.Many:
			if got := rule.App(req); got != "" {
				t.Errorf("%s names the app %q in a field", method, got)
			}
		default:
			if got := rule.App(req); got != "x" {
				t.Errorf("%s: the app of a filled request is %q", method, got)
			}
		}
		switch rule.Route {
		case apiv1.Route_ROUTE_UNSPECIFIED:
			t.Errorf("%s has no option route", method)
		case apiv1.Route_ROUTE_JOB:
			_, named := req.(interface{ GetName() string })
			if _, defined := req.(interface{ GetJob() *apiv1.Job }); !named && !defined {
				t.Errorf("%s is routed by its job, and its request has no name", method)
			}
		case apiv1.Route_ROUTE_RUN:
			if _, ok := req.(interface{ GetId() string }); !ok {
				t.Errorf("%s is routed by its run, and its request has no id", method)
			}
		case apiv1.Route_ROUTE_CALLER:
			if _, ok := req.(interface{ GetCaller() *apiv1.Caller }); !ok {
				t.Errorf("%s is routed by its caller, and its request has none", method)
			}
		case apiv1.Route_ROUTE_SERVER:
		default:
			if !partitioned[service] {
				t.Errorf("%s is routed to partitions, which do not have its service", method)
			}
		}
		if merged := rule.Route == apiv1.Route_ROUTE_MERGED; merged != (rule.Merge != apiv1.Merge_MERGE_UNSPECIFIED) {
			t.Errorf("%s: the route is %v, and merge is %v", method, rule.Route, rule.Merge)
		}
		if _, ok := slotOf(rule.Route, req); ok && rule.Route != apiv1.Route_ROUTE_JOB && rule.Route != apiv1.Route_ROUTE_RUN && rule.Route != apiv1.Route_ROUTE_CALLER {
			t.Errorf("%s is not routed by a slot, and has one", method)
		}
		checkMerge(t, method, m, rule)
	}
}

// checkMerge checks that the answers of a method have what their merging needs.
func checkMerge(t *testing.T, method string, m protoreflect.MethodDescriptor, rule methods.Method) {
	t.Helper()
	switch rule.Merge {
	case apiv1.Merge_MERGE_COUNTS:
		fields := m.Output().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			switch how, _ := proto.GetExtension(f.Options(), apiv1.E_Combine).(apiv1.Combine); {
			case how == apiv1.Combine_COMBINE_FIRST,
				how == apiv1.Combine_COMBINE_SUM && f.Kind() == protoreflect.Int64Kind,
				how == apiv1.Combine_COMBINE_MAX && (f.Kind() == protoreflect.Int32Kind || f.Kind() == protoreflect.DoubleKind):
			default:
				t.Errorf("%s: %s cannot be combined by %v", method, f.FullName(), how)
			}
		}
	case apiv1.Merge_MERGE_NAMES:
		reply, err := replyOf(method)
		if err != nil {
			t.Fatal(err)
		}
		page := reply.New()
		f := entriesOf(page.Interface())
		if f == nil {
			t.Fatalf("%s has no list", method)
		}
		if _, ok := page.NewField(f).List().NewElement().Message().Interface().(namedEntry); !ok {
			t.Errorf("%s is merged by names, and its entries have none", method)
		}
		if _, ok := page.Interface().(interface{ GetNextPageToken() string }); !ok || m.Input().Fields().ByName("page_size") == nil {
			t.Errorf("%s is merged by names, and has no pages", method)
		}
	}
}

func methodOf(t *testing.T, service, name string) protoreflect.MethodDescriptor {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MethodDescriptor)
}

// TestCombine checks the fields that answers combine, by their options.
func TestCombine(t *testing.T) {
	all := &apiv1.Overview{Jobs: 3, Running: 1, HostsUp: 2, LatenessP99Ms: 5, Writable: true}
	part := &apiv1.Overview{Jobs: 4, Running: 2, HostsUp: 1, LatenessP99Ms: 7, NotWritableReason: "the disk is full"}
	combine(all.ProtoReflect(), part.ProtoReflect())
	combineOverviews(all, part)
	if all.Jobs != 7 || all.Running != 3 || all.HostsUp != 2 || all.LatenessP99Ms != 7 || all.Writable || all.NotWritableReason != "the disk is full" {
		t.Errorf("%v", all)
	}
}

func TestSlotOf(t *testing.T) {
	id := job.OccurrenceID("a", "name", job.RunID{}.Planned(), "")
	for _, tc := range []struct {
		by  apiv1.Route
		req proto.Message
		ok  bool
	}{
		{apiv1.Route_ROUTE_JOB, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "name"}}, true},
		{apiv1.Route_ROUTE_JOB, &apiv1.GetJobRequest{Name: "name"}, true},
		{apiv1.Route_ROUTE_JOB, &apiv1.GetJobRequest{}, false},
		{apiv1.Route_ROUTE_RUN, &apiv1.GetRunRequest{Id: id.String()}, true},
		{apiv1.Route_ROUTE_RUN, &apiv1.GetRunRequest{Id: "none"}, false},
		{apiv1.Route_ROUTE_CALLER, &apiv1.GuestMapRequest{Caller: &apiv1.Caller{Run: id[:]}}, true},
		{apiv1.Route_ROUTE_CALLER, &apiv1.GuestMapRequest{Caller: &apiv1.Caller{Run: id[:3]}}, false},
		{apiv1.Route_ROUTE_CALLER, &apiv1.GuestMapRequest{}, false},
		{apiv1.Route_ROUTE_PRIMARY, &apiv1.GetJobRequest{Name: "name"}, false},
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

// mergeJobs is mergeNames for lists of jobs.
func mergeJobs(pages []*apiv1.ListJobsResponse, size int) (*apiv1.ListJobsResponse, error) {
	var all []proto.Message
	for _, p := range pages {
		all = append(all, p)
	}
	m, err := mergeNames(all, size, namedEntry.GetName)
	if err != nil {
		return nil, err
	}
	return m.(*apiv1.ListJobsResponse), nil
}

func TestPartitionTokens(t *testing.T) {
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

func BenchmarkAppOf(b *testing.B) {
	rule := methods.Of("/wheelwork.v1.Jobs/ApplyJob")
	req := &apiv1.ApplyJobRequest{Job: &apiv1.Job{App: "orders"}}
	b.ReportAllocs()
	for b.Loop() {
		if rule.App(req) != "orders" {
			b.Fatal("another app")
		}
	}
}

// TestVersionHasThePublicURL asks any server of a cluster: it answers for itself, with its own public URL.
func TestVersionHasThePublicURL(t *testing.T) {
	for _, public := range []string{"", "https://wheel.example"} {
		answer, err := (&Router{PublicURL: public}).call(t.Context(), "", grpc.MethodDesc{}, "", &apiv1.GetVersionRequest{})
		if v, ok := answer.(*apiv1.Version); err != nil || !ok || v.PublicUrl != public || v.Version == "" {
			t.Errorf("%v, %v", answer, err)
		}
	}
}

// TestMergeInOrder merges pages of jobs by the end of their last runs.
func TestMergeInOrder(t *testing.T) {
	page := func(token string, jobs ...*apiv1.Job) proto.Message {
		return &apiv1.ListJobsResponse{Jobs: jobs, NextPageToken: base64.RawURLEncoding.EncodeToString([]byte(token))}
	}
	ended := func(name string, ms int64) *apiv1.Job {
		return &apiv1.Job{Name: name, Stats: &apiv1.JobStats{LastFinishedAt: timestamppb.New(time.UnixMilli(ms))}}
	}
	position, err := positionOfJobs("last_run")
	if err != nil {
		t.Fatal(err)
	}
	names := func(m proto.Message) (names []string) {
		for _, j := range m.(*apiv1.ListJobsResponse).Jobs {
			names = append(names, j.Name)
		}
		return names
	}
	ends := job.ByLastRun.Position("a", 400, 0) // beyond it the first partition has more
	for _, tc := range []struct {
		size int
		want []string
		last string
	}{{10, []string{"z", "y", "a"}, ends}, {1, []string{"z"}, job.ByLastRun.Position("z", 900, 0)}} {
		m, err := mergeNames([]proto.Message{page(ends, ended("y", 500), ended("a", 400)), page("", ended("z", 900), ended("b", 300), &apiv1.Job{Name: "c"})}, tc.size, position)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(m); !slices.Equal(got, tc.want) || m.(*apiv1.ListJobsResponse).NextPageToken != base64.RawURLEncoding.EncodeToString([]byte(tc.last)) {
			t.Errorf("a page of %d: %v, want %v; goes on at %q", tc.size, got, tc.want, m.(*apiv1.ListJobsResponse).NextPageToken)
		}
	}
	if _, err := positionOfJobs("size"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the order size: %v", err)
	}
}
