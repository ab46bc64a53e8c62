package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// deadLetters returns two dead letters: the body of one is a command, that of the other
// is not.
func deadLetters(ts func(time.Duration) *timestamppb.Timestamp) []*apiv1.DeadLetter {
	return []*apiv1.DeadLetter{
		{
			Id: "1", Topic: "commands", Group: "owner", Key: "default/totals", Reason: "permanent", Attempts: 1, Origin: "producer 10.0.0.9:1234",
			PublishedAt: ts(time.Hour), DeadAt: ts(59 * time.Minute), Body: []byte{10}, Text: `{"command":{"trigger":{"app":"default","name":"totals"}},"at_ms":"1"}`,
			FirstError: "no such job " + evil, FirstErrorAt: ts(59 * time.Minute), LastError: "no such job " + evil, LastErrorAt: ts(59 * time.Minute),
		},
		{
			Id: "2", Topic: "commands", Group: "owner", Reason: "attempts", Attempts: 16, PublishedAt: ts(time.Hour), DeadAt: ts(time.Minute),
			FirstError: "timed out once", FirstErrorAt: ts(time.Hour), LastError: "timed out for good", LastErrorAt: ts(time.Minute), Body: []byte{0, 1, 2, 0xff},
		},
	}
}

func (f *fakeAPI) chosenLetters(ids []string, filter *apiv1.DeadLetterFilter) (chosen []*apiv1.DeadLetter) {
	for _, d := range f.letters {
		if (ids == nil || slices.Contains(ids, d.Id)) && (filter.GetKey() == "" || filter.GetKey() == d.Key) &&
			(filter.GetReason() == "" || filter.GetReason() == d.Reason) && strings.Contains(d.LastError, filter.GetError()) {
			chosen = append(chosen, d)
		}
	}
	return chosen
}

// takeLetters removes the selected letters.
func (f *fakeAPI) takeLetters(ids []string, filter *apiv1.DeadLetterFilter, all bool) (int64, error) {
	if ids == nil && filter == nil && !all {
		return 0, status.Error(codes.InvalidArgument, "say which dead letters")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	chosen := f.chosenLetters(ids, filter)
	f.letters = slices.DeleteFunc(f.letters, func(d *apiv1.DeadLetter) bool { return slices.Contains(chosen, d) })
	return int64(len(chosen)), nil
}

func (f *fakeAPI) ListDeadLetters(_ context.Context, r *apiv1.ListDeadLettersRequest) (*apiv1.ListDeadLettersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListDeadLettersResponse{}
	for _, d := range f.chosenLetters(nil, r.Filter) {
		d = proto.CloneOf(d)
		d.Body, d.Text = nil, ""
		out.Letters = append(out.Letters, d)
	}
	if r.PageToken == "" && len(out.Letters) > 1 {
		out.NextPageToken = "after&2"
	}
	return out, nil
}

func (f *fakeAPI) GetDeadLetter(_ context.Context, r *apiv1.GetDeadLetterRequest) (*apiv1.DeadLetter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.chosenLetters([]string{r.Id}, nil) {
		return proto.CloneOf(d), nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no dead letter %s", r.Id)
}

func (f *fakeAPI) EditDeadLetter(ctx context.Context, r *apiv1.EditDeadLetterRequest) (*apiv1.DeadLetter, error) {
	if !strings.Contains(r.Text, `"command"`) {
		return nil, status.Error(codes.InvalidArgument, "text has no command "+evil)
	}
	f.mu.Lock()
	for _, d := range f.chosenLetters([]string{r.Id}, nil) {
		d.Text = r.Text
	}
	f.mu.Unlock()
	return f.GetDeadLetter(ctx, &apiv1.GetDeadLetterRequest{Id: r.Id})
}

func (f *fakeAPI) ReplayDeadLetters(_ context.Context, r *apiv1.ReplayDeadLettersRequest) (*apiv1.ReplayDeadLettersResponse, error) {
	n, err := f.takeLetters(r.Ids, r.Filter, r.All)
	return &apiv1.ReplayDeadLettersResponse{Count: n}, err
}

func (f *fakeAPI) DropDeadLetters(_ context.Context, r *apiv1.DropDeadLettersRequest) (*apiv1.DropDeadLettersResponse, error) {
	n, err := f.takeLetters(r.Ids, r.Filter, r.All)
	return &apiv1.DropDeadLettersResponse{Count: n}, err
}

// left returns the ids of the remaining letters.
func (f *fakeAPI) left() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := ""
	for _, d := range f.letters {
		ids += d.Id
	}
	return ids
}

func TestReplayAndDropDeadLetters(t *testing.T) {
	for path, want := range map[string]struct{ to, left string }{
		"/dead-letters/1/replay":                      {"/dead-letters", "2"},
		"/dead-letters/replay":                        {"/dead-letters", ""},
		"/dead-letters/replay?reason=attempts":        {"/dead-letters?reason=attempts", "1"},
		"/dead-letters/2/drop":                        {"/dead-letters", "1"},
		"/dead-letters/drop":                          {"/dead-letters", ""},
		"/dead-letters/drop?key=default%2Ftotals":     {"/dead-letters?key=default%2Ftotals", "2"},
		"/dead-letters/drop?error=good&key=elsewhere": {"/dead-letters?error=good&key=elsewhere", "12"},
	} {
		s := newSite(t, newFake().populate()).signIn(t)
		if resp, _ := s.do(t, "GET", path, nil); s.fake.left() != "12" {
			t.Errorf("GET %s changed something: %s", path, resp.Status)
		}
		resp, body := s.post(t, path, "")
		if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != want.to || s.fake.left() != want.left {
			t.Errorf("POST %s: %s to %q, left are %q; want %q, %q\n%.300s", path, resp.Status, to, s.fake.left(), want.to, want.left, body)
		}
	}
}

func TestEditDeadLetter(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const text = `{"command":{"trigger":{"app":"default","name":"fixed"}}}`
	resp, _ := s.post(t, "/dead-letters/1/edit", url.Values{"text": {text}}.Encode())
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/dead-letters/1" {
		t.Fatalf("%s to %q", resp.Status, to)
	}
	_, body := s.do(t, "GET", "/dead-letters/1", nil)
	if !strings.Contains(body, "The body is replaced") || !strings.Contains(body, "fixed") {
		t.Errorf("the page does not show the new body:\n%s", body)
	}
	typed := `{"comand": 1} ` + evil
	resp, body = s.post(t, "/dead-letters/1/edit", url.Values{"text": {typed}}.Encode())
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "text has no command") || !strings.Contains(body, "comand") {
		t.Errorf("a refused edit: %s, want the reason and what was typed\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if d := s.fake.letters[0]; d.Text != text {
		t.Errorf("a refused edit changed the letter to %q", d.Text)
	}
}

// TestDeadLettersDenied checks that a visitor without the permission sees the API's
// sentence.
func TestDeadLettersDenied(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.denied = "queues.operate"
	for _, path := range []string{"/dead-letters/1/replay", "/dead-letters/1/drop", "/dead-letters/1/edit", "/dead-letters/replay", "/dead-letters/drop"} {
		if resp, body := s.post(t, path, "text=x"); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "queues.operate") {
			t.Errorf("POST %s: %s, want 403 with the reason", path, resp.Status)
		}
	}
	if resp, _ := s.do(t, "GET", "/dead-letters/1", nil); resp.StatusCode != http.StatusOK || s.fake.left() != "12" {
		t.Errorf("reading: %s, left are %q", resp.Status, s.fake.left())
	}
}

func TestDeadLetterNotThere(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, path := range []string{"/dead-letters/99", "/dead-letters/99/drop"} {
		if resp, body := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "no dead letter 99") {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	for _, query := range []string{"done=replayed&count=x", "done=<b>&count=1", "done=dropped&count=-1"} {
		if _, body := s.do(t, "GET", "/dead-letters?"+query, nil); strings.Contains(body, `class="alert ok"`) {
			t.Errorf("%s made a notice", query)
		}
	}
}

func TestDeadLettersOverJSON(t *testing.T) {
	s := newSite(t, newFake().populate())
	auth := []string{"Authorization", "Bearer " + goodToken}
	resp, body := s.do(t, "GET", "/api/v1/dead-letters?filter.reason=attempts&page_size=5", nil, auth...)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"last_error":"timed out for good"`) || strings.Contains(body, "no such job") {
		t.Errorf("list: %s %s", resp.Status, body)
	}
	resp, body = s.do(t, "POST", "/api/v1/dead-letters:replay", strings.NewReader(`{"ids":["2"]}`), auth...)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"count":"1"`) || s.fake.left() != "1" {
		t.Errorf("replay: %s %s, left are %q", resp.Status, body, s.fake.left())
	}
	if resp, _ := s.do(t, "POST", "/api/v1/dead-letters:replay", strings.NewReader(`{"all":true}`)); resp.StatusCode != http.StatusUnauthorized || s.fake.left() != "1" {
		t.Errorf("replay without a token: %s, left are %q", resp.Status, s.fake.left())
	}
}

// permission returns the permission that the .proto files declare for a method.
func permission(method string) string {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return ""
	}
	p, _ := proto.GetExtension(d.Options(), apiv1.E_Permission).(string)
	return p
}
