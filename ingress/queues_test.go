package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
)

// sink is the receiving end of a stream. Methods other than Send and Context are not
// implemented.
type sink[M any] struct {
	apiv1.Queues_TailMessagesServer
	ctx  context.Context
	got  []*M
	stop func(n int) error // called after n messages; nil never stops
}

func (s *sink[M]) Context() context.Context { return s.ctx }

// tailSink and verifySink give Send its two types.
type (
	tailSink   struct{ *sink[apiv1.Message] }
	verifySink struct{ *sink[apiv1.VerifyLogResponse] }
)

func (s *sink[M]) take(m *M) error {
	s.got = append(s.got, m)
	if s.stop == nil {
		return nil
	}
	return s.stop(len(s.got))
}

func (s tailSink) Send(m *apiv1.Message) error             { return s.take(m) }
func (s verifySink) Send(m *apiv1.VerifyLogResponse) error { return s.take(m) }

func openLog(t testing.TB, dir string) *mq.Log {
	t.Helper()
	cfg := small("").Log
	cfg.Dir = dir
	l, err := mq.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func write(t testing.TB, l *mq.Log, n int) {
	t.Helper()
	for i := range n {
		if _, err := l.Write([]mq.Record{{Queue: 7, Type: 1, Body: fmt.Appendf(nil, "record %d %01000d", i, 0)}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPeek(t *testing.T) {
	q, l := openQueue(t, small(t.TempDir())), openLog(t, t.TempDir())
	for i := range 5 {
		if _, err := q.PublishSync(queue.Message{Topic: topic, Key: fmt.Sprint(i), Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	write(t, l, 5)
	s := NewQueues(q, map[string]*mq.Log{"journal": l})
	for _, tt := range []struct {
		req  *apiv1.PeekMessagesRequest
		want string // sequences, or the code
	}{
		{&apiv1.PeekMessagesRequest{}, "0 1 2 3 4"},
		{&apiv1.PeekMessagesRequest{Log: "ingress", Topic: topic, From: 2, Limit: 2}, "2 3"},
		{&apiv1.PeekMessagesRequest{From: 99}, ""},
		{&apiv1.PeekMessagesRequest{Topic: "other"}, "NotFound"},
		{&apiv1.PeekMessagesRequest{Log: "journal"}, "1 2 3 4 5"},
		{&apiv1.PeekMessagesRequest{Log: "journal", From: 4, Limit: 1}, "4"},
		{&apiv1.PeekMessagesRequest{Log: "journal", From: 99}, ""},
		{&apiv1.PeekMessagesRequest{Log: "journal", Topic: topic}, "InvalidArgument"},
		{&apiv1.PeekMessagesRequest{Log: "other"}, "NotFound"},
	} {
		resp, err := s.PeekMessages(t.Context(), tt.req)
		var got []string
		for _, m := range resp.GetMessages() {
			got = append(got, fmt.Sprint(m.Sequence))
		}
		if err != nil {
			got = []string{status.Code(err).String()}
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%v: %s, want %s (%v)", tt.req, text, tt.want, err)
		}
	}
	none := NewQueues(nil, nil)
	if _, err := none.PeekMessages(t.Context(), &apiv1.PeekMessagesRequest{}); status.Code(err) != codes.NotFound {
		t.Errorf("without an ingress: %v", err)
	}
}

func TestTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := openQueue(t, small(t.TempDir())), openLog(t, t.TempDir())
		s := NewQueues(q, map[string]*mq.Log{"journal": l})
		publish := func() {
			if _, err := q.PublishSync(queue.Message{Topic: topic, Body: []byte("x")}); err != nil {
				t.Error(err)
			}
			write(t, l, 1)
		}
		publish()
		publish()
		for _, tt := range []struct {
			req  *apiv1.TailMessagesRequest
			want []uint64 // of three messages that come later, and those already there
		}{
			{&apiv1.TailMessagesRequest{}, []uint64{2, 3}},
			{&apiv1.TailMessagesRequest{From: 1}, []uint64{1, 2}},
			{&apiv1.TailMessagesRequest{Log: "journal"}, []uint64{7, 8}},
			{&apiv1.TailMessagesRequest{Log: "journal", From: 2}, []uint64{2, 3}},
		} {
			out := tailSink{&sink[apiv1.Message]{ctx: t.Context(), stop: func(n int) error {
				if n == 2 {
					return errEnough
				}
				return nil
			}}}
			done := make(chan error, 1)
			go func() { done <- s.TailMessages(tt.req, out) }()
			synctest.Wait()
			publish()
			publish()
			time.Sleep(time.Second)
			<-done
			for i, want := range tt.want {
				if len(out.got) != 2 || out.got[i].Sequence != want {
					t.Errorf("%v: got %v, want %v", tt.req, out.got, tt.want)
					break
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, log := range []string{"journal", "ingress"} {
			if err := s.TailMessages(&apiv1.TailMessagesRequest{Log: log}, tailSink{&sink[apiv1.Message]{ctx: ctx}}); status.Code(err) != codes.Canceled {
				t.Errorf("%s: a caller that left: %v", log, err)
			}
		}
	})
}

// flip changes one bit of a file.
func flip(t testing.TB, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyLog(t *testing.T) {
	dir := t.TempDir()
	q, l := openQueue(t, small(t.TempDir())), openLog(t, dir)
	write(t, l, 300) // several segments
	s := NewQueues(q, map[string]*mq.Log{"journal": l})
	verify := func(name string) (*apiv1.VerifyLogResponse, []*apiv1.VerifyLogResponse) {
		t.Helper()
		out := verifySink{&sink[apiv1.VerifyLogResponse]{ctx: t.Context()}}
		if err := s.VerifyLog(&apiv1.VerifyLogRequest{Log: name}, out); err != nil {
			t.Fatal(err)
		}
		last := len(out.got) - 1
		return out.got[last], out.got[:last]
	}
	for _, name := range []string{"journal", "ingress", ""} {
		found, progress := verify(name)
		if !found.Done || len(found.Damages) != 0 || found.Bytes == 0 {
			t.Errorf("%s: %v", name, found)
		}
		for i, p := range progress {
			if p.Done || p.Bytes > p.TotalBytes || i > 0 && p.Bytes < progress[i-1].Bytes {
				t.Errorf("%s: progress %v", name, progress)
			}
		}
		if name == "journal" && (len(progress) < 3 || found.First != 1 || found.Last != 300 || found.Records != 300) {
			t.Errorf("%d messages about progress, then %v", len(progress), found)
		}
	}
	flip(t, filepath.Join(dir, "0000000000000001.seg"), 4096+2000)
	found, _ := verify("journal")
	if len(found.Damages) != 1 || found.Records != 299 {
		t.Fatalf("after a flipped bit: %v", found)
	}
	if d := found.Damages[0]; d.File != "0000000000000001.seg" || d.Kind != "rot" || d.First != 2 || d.Last != 2 {
		t.Errorf("the damage is %v", d)
	}

	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for want, out := range map[codes.Code]verifySink{
		codes.Canceled:    {&sink[apiv1.VerifyLogResponse]{ctx: ctx}},
		codes.Unavailable: {&sink[apiv1.VerifyLogResponse]{ctx: t.Context(), stop: func(int) error { return stopped }}},
	} {
		if err := s.VerifyLog(&apiv1.VerifyLogRequest{Log: "journal"}, out); status.Code(err) != want {
			t.Errorf("a caller that left: %v, want %v", err, want)
		}
	}
	if err := s.VerifyLog(&apiv1.VerifyLogRequest{Log: "other"}, verifySink{}); status.Code(err) != codes.NotFound {
		t.Errorf("a log that is not there: %v", err)
	}
}

func TestFindings(t *testing.T) {
	m := Findings(mq.Report{
		First: 3, Next: 9, Records: 4, Bytes: 100, Unfinished: true,
		Damage:   []mq.Damage{{Segment: "1.seg", Offset: 64, First: 5, End: 7, Why: "bits"}, {Segment: "1.seg", First: 5, End: 5, Why: "header"}},
		Segments: []mq.SegmentReport{{Name: "1.seg"}, {Name: "2.seg", TornAt: 40, TornBytes: 8}},
	})
	var got []string
	for _, d := range m.Damages {
		got = append(got, fmt.Sprintf("%s@%d %s %d-%d", d.File, d.Offset, d.Kind, d.First, d.Last))
	}
	want := "1.seg@64 rot 5-6, 1.seg@0 rot 0-0, 2.seg@40 torn 0-0, REPAIR@0 unfinished 0-0"
	if strings.Join(got, ", ") != want || m.First != 3 || m.Last != 8 || !m.Done {
		t.Errorf("%s in %v, want %s", got, m, want)
	}
	if m := Findings(mq.Report{First: 1, Next: 1}); m.First != 0 || m.Last != 0 {
		t.Errorf("an empty log has the sequences %d to %d", m.First, m.Last)
	}
}

// TestPeekOverAHole: the service reports records that a repair gave up and shows the
// records behind them.
func TestPeekOverAHole(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	write(t, l, 10)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, "0000000000000001.seg"), 4096+2000)
	if _, err := mq.Repair(dir, mq.SkipDamaged, mq.RepairOptions{}); err != nil {
		t.Fatal(err)
	}
	s := NewQueues(nil, map[string]*mq.Log{"journal": openLog(t, dir)})
	resp, err := s.PeekMessages(t.Context(), &apiv1.PeekMessagesRequest{Log: "journal"})
	if err != nil || len(resp.Messages) != 10 {
		t.Fatalf("%d messages, %v; want 9 and one about the hole", len(resp.GetMessages()), err)
	}
	if m := resp.Messages[1]; m.Sequence != 2 || !strings.Contains(m.Text, "given up by a repair") || resp.Messages[2].Sequence != 3 {
		t.Errorf("the second is %v", m)
	}
}

// graves returns a service with three dead letters; the second is not a command.
func graves(t *testing.T) *Queues {
	t.Helper()
	q := openQueue(t, small(t.TempDir()))
	c, err := q.Consumer(topic, group)
	if err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(&apiv1.Ingress{Command: trigger("a", "k"), AtMs: 7})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range [][]byte{body, []byte("junk"), body} {
		if _, err := q.PublishSync(queue.Message{Topic: topic, Key: fmt.Sprint("k", i), Body: b}); err != nil {
			t.Fatal(err)
		}
		ds, err := c.Fetch(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Nack(ds[0], fmt.Errorf("broken %d", i), true); err != nil {
			t.Fatal(err)
		}
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	return service(q)
}

func TestChoosingDeadLetters(t *testing.T) {
	ids := func(s *Queues) (ids []string) {
		for _, d := range listed(t, s) {
			ids = append(ids, d.Id)
		}
		return ids
	}
	all := ids(graves(t))
	for _, tt := range []struct {
		req  *apiv1.DropDeadLettersRequest
		code codes.Code
		n    int64
	}{
		{&apiv1.DropDeadLettersRequest{}, codes.InvalidArgument, 0},
		{&apiv1.DropDeadLettersRequest{Filter: &apiv1.DeadLetterFilter{}}, codes.InvalidArgument, 0},
		{&apiv1.DropDeadLettersRequest{Ids: []string{"x"}}, codes.InvalidArgument, 0},
		{&apiv1.DropDeadLettersRequest{Filter: &apiv1.DeadLetterFilter{Reason: "expired"}}, codes.InvalidArgument, 0},
		{&apiv1.DropDeadLettersRequest{All: true}, codes.OK, 3},
		{&apiv1.DropDeadLettersRequest{Ids: []string{all[0], all[2], "99"}}, codes.OK, 2},
		{&apiv1.DropDeadLettersRequest{Filter: &apiv1.DeadLetterFilter{Error: "broken 1"}}, codes.OK, 1},
		{&apiv1.DropDeadLettersRequest{Filter: &apiv1.DeadLetterFilter{Key: "k2", Reason: "permanent"}}, codes.OK, 1},
		{&apiv1.DropDeadLettersRequest{Filter: &apiv1.DeadLetterFilter{Reason: "attempts"}}, codes.OK, 0},
	} {
		s := graves(t)
		resp, err := s.DropDeadLetters(t.Context(), tt.req)
		if status.Code(err) != tt.code || resp.GetCount() != tt.n || len(ids(s)) != 3-int(tt.n) {
			t.Errorf("drop %v: %v, %v; %d are left", tt.req, resp, err, len(ids(s)))
		}
		s = graves(t)
		again, err := s.ReplayDeadLetters(t.Context(), &apiv1.ReplayDeadLettersRequest{Ids: tt.req.Ids, Filter: tt.req.Filter, All: tt.req.All})
		if status.Code(err) != tt.code || again.GetCount() != tt.n || len(ids(s)) != 3-int(tt.n) {
			t.Errorf("replay %v: %v, %v; %d are left", tt.req, again, err, len(ids(s)))
		}
	}
	if _, err := NewQueues(nil, nil).DropDeadLetters(t.Context(), &apiv1.DropDeadLettersRequest{All: true}); status.Code(err) != codes.NotFound {
		t.Errorf("without an ingress: %v", err)
	}
}

func TestListInPages(t *testing.T) {
	s := graves(t)
	var got []string
	for token := ""; ; {
		resp, err := s.ListDeadLetters(t.Context(), &apiv1.ListDeadLettersRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range resp.Letters {
			got = append(got, d.LastError)
		}
		if token = resp.NextPageToken; token == "" {
			break
		}
	}
	if text := strings.Join(got, ", "); text != "broken 0, broken 1, broken 2" {
		t.Errorf("the pages hold %s", text)
	}
	if _, err := s.ListDeadLetters(t.Context(), &apiv1.ListDeadLettersRequest{PageToken: "x"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a made-up token: %v", err)
	}
}

func TestEditDeadLetter(t *testing.T) {
	s := graves(t)
	id, junk := listed(t, s)[0].Id, listed(t, s)[1].Id
	for _, tt := range []struct {
		name string
		req  *apiv1.EditDeadLetterRequest
		code codes.Code
		want string // the text after the edit
	}{
		{"nothing", &apiv1.EditDeadLetterRequest{Id: id}, codes.InvalidArgument, ""},
		{"both", &apiv1.EditDeadLetterRequest{Id: id, Body: []byte("x"), Text: "{}"}, codes.InvalidArgument, ""},
		{"no JSON", &apiv1.EditDeadLetterRequest{Id: id, Text: "{"}, codes.InvalidArgument, ""},
		{"no command", &apiv1.EditDeadLetterRequest{Id: id, Text: `{"command":{}}`}, codes.InvalidArgument, ""},
		{"unknown field", &apiv1.EditDeadLetterRequest{Id: id, Text: `{"comand":{}}`}, codes.InvalidArgument, ""},
		{"no such id", &apiv1.EditDeadLetterRequest{Id: "99", Text: `{"command":{"delete":{"app":"x"}}}`}, codes.NotFound, ""},
		{"no such id, bytes", &apiv1.EditDeadLetterRequest{Id: "99", Body: []byte("x")}, codes.NotFound, ""},
		{
			"key and time stay", &apiv1.EditDeadLetterRequest{Id: id, Text: `{"command":{"trigger":{"app":"default","name":"b"}}}`}, codes.OK,
			`{"command":{"trigger":{"app":"default","name":"b","idempotency_key":"k"}},"at_ms":"7"}`,
		},
		{
			"key and time are changed", &apiv1.EditDeadLetterRequest{Id: id, Text: `{"command":{"trigger":{"app":"default","name":"b","idempotencyKey":"l"}},"atMs":"8"}`}, codes.OK,
			`{"command":{"trigger":{"app":"default","name":"b","idempotency_key":"l"}},"at_ms":"8"}`,
		},
		{"bytes", &apiv1.EditDeadLetterRequest{Id: id, Body: []byte("plain")}, codes.OK, ""},
	} {
		d, err := s.EditDeadLetter(t.Context(), tt.req)
		if status.Code(err) != tt.code || d.GetText() != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, d.GetText(), err, tt.want)
		}
	}
	// A dead letter that was not a command gets a key and a time.
	d, err := s.EditDeadLetter(t.Context(), &apiv1.EditDeadLetterRequest{Id: junk, Text: `{"command":{"trigger":{"app":"default","name":"b"}}}`})
	if err != nil || !strings.Contains(d.Text, `"idempotency_key":"ingress/`) || !strings.Contains(d.Text, `"at_ms":"1`) {
		t.Errorf("%v, %v", d.GetText(), err)
	}
}

func TestStats(t *testing.T) {
	l := openLog(t, t.TempDir())
	write(t, l, 3)
	s := graves(t)
	s.logs = map[string]*mq.Log{"journal": l}
	resp, err := s.GetQueues(t.Context(), &apiv1.GetQueuesRequest{})
	if err != nil || len(resp.Logs) != 2 || len(resp.Topics) != 1 || len(resp.Topics[0].Groups) != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	if j := resp.Logs[0]; j.Name != "journal" || j.First != 1 || j.Next != 4 || j.Records != 3 || j.Writer != "pwrite" || j.Sync != "os" || j.Segments != 1 {
		t.Errorf("the journal: %v", j)
	}
	if g := resp.Topics[0].Groups[0]; resp.Logs[1].Name != "ingress" || resp.DeadLetters != 3 || g.Dead != 3 || g.Lag != 0 {
		t.Errorf("the ingress: %v", resp)
	}
}

// FuzzText: a body that is a command has a text, and the text parses to an equal command.
func FuzzText(f *testing.F) {
	for _, c := range []*apiv1.Command{trigger("a", "k"), define("b"), {Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{App: "x", Name: "y"}}}} {
		body, err := proto.Marshal(&apiv1.Ingress{Command: c, AtMs: 7})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte("\xff"))
	s := NewQueues(nil, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		shown := text(body)
		if shown == "" {
			return
		}
		again, err := s.command(0, shown)
		if err != nil {
			t.Fatalf("%q cannot be read back: %v", shown, err)
		}
		one, two := &apiv1.Ingress{}, &apiv1.Ingress{}
		if err := errors.Join(proto.Unmarshal(body, one), proto.Unmarshal(again, two)); err != nil {
			t.Fatal(err)
		}
		if one.AtMs != 0 && one.AtMs != two.AtMs {
			t.Fatalf("%q has the time %d, was %d", shown, two.AtMs, one.AtMs)
		}
		if one.AtMs != 0 && one.Command.GetTrigger() == nil && !bytes.Equal([]byte(text(again)), []byte(shown)) {
			t.Fatalf("%q became %q", shown, text(again))
		}
	})
}
