package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// queuePages returns the addresses of the pages of queues, with texts that each must contain.
func queuePages() map[string][]string {
	return map[string][]string{
		"/queues": {
			"12\u202f345", "1.5ms", "12.5", "commands", "applier", "Delayed", "warning: little room", "81 %", "no space left &lt;on&gt; device", "Damaged positions: 2",
			`href="/queues/messages?app=default&amp;log=journal"`, `href="/queues/messages?app=default&amp;topic=commands"`, `href="/dead-letters"`,
		},
		"/queues/messages?topic=commands":          {"Messages of commands", "message 1 &lt;script&gt;", "Only the beginning is shown.", "from=21", "00 01"},
		"/queues/messages?topic=commands&from=21":  {"message 21", "First page"},
		"/queues/messages?topic=commands&from=100": {"No message from here on."},
		"/queues/messages?log=journal":             {"Records of journal"},
	}
}

func (f *fakeAPI) GetQueues(context.Context, *apiv1.GetQueuesRequest) (*apiv1.GetQueuesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.GetQueuesResponse{
		DeadLetters: int64(len(f.letters)), Duplicates: 3, DiskUsed: 0.81, DiskMark: "warn",
		Logs: []*apiv1.LogStats{
			{Name: "journal", Writer: "pwrite", Sync: "always", First: 100, Next: 12445, Durable: 12440, Records: 250, Syncs: 20, Flushes: 20, LastFlushUs: 1500, DiskBytes: 5 << 20, Damaged: 2},
			{Name: "ingress", Writer: "mmap", Sync: "os", First: 1, Next: 1, Durable: 1, Error: "no space left <on> device"},
		},
		Topics: []*apiv1.TopicStats{
			{Topic: "commands", Published: 77, Groups: []*apiv1.GroupStats{{Group: "applier", Lag: 7, Ready: 4, Delayed: 2, Unacked: 1, OldestAt: timestamppb.New(time.Now().Add(-time.Minute))}}},
			{Topic: "unread" + evil},
		},
	}, nil
}

// PeekMessages has 25 messages in the topic commands.
func (f *fakeAPI) PeekMessages(_ context.Context, r *apiv1.PeekMessagesRequest) (*apiv1.PeekMessagesResponse, error) {
	if r.Topic == "none" {
		return nil, status.Errorf(codes.NotFound, "there is no topic %q", r.Topic)
	}
	out := &apiv1.PeekMessagesResponse{}
	for i := max(r.From, 1); i <= 25 && len(out.Messages) < int(r.Limit); i++ {
		m := &apiv1.Message{Sequence: i, Topic: r.Topic, Key: "default/totals", PublishedAt: timestamppb.Now(), Text: fmt.Sprintf("message %d %s", i, evil)}
		switch i {
		case 2:
			m.Text = strings.Repeat("long ", 1000)
		case 3:
			m.Text, m.Key, m.Type, m.Body = "", "", 4, []byte{0, 1}
		}
		out.Messages = append(out.Messages, m)
	}
	return out, nil
}

func TestQueuesAreBounded(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", "/queues/messages?topic=commands", nil)
	if n := strings.Count(body, "<details>"); n != peeked {
		t.Errorf("the page has %d messages, want %d", n, peeked)
	}
	if strings.Contains(body, strings.Repeat("long ", peekedText/5+1)) {
		t.Error("a long text is shown whole")
	}
	for _, m := range s.fake.asked {
		if r, ok := m.(*apiv1.PeekMessagesRequest); ok && r.Limit != peeked {
			t.Errorf("the page asks for %d messages", r.Limit)
		}
	}
}

func TestQueueMistakes(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]int{
		"/queues/messages?topic=none":            http.StatusNotFound,
		"/queues/messages?topic=commands&from=x": http.StatusBadRequest,
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
		checkPage(t, body)
	}
	s2 := newSite(t, newFake().populate())
	s2.fake.denied, s2.fake.may = "queues.read", []string{"jobs.read"}
	s2.signIn(t)
	if resp, body := s2.do(t, "GET", "/queues", nil); resp.StatusCode != http.StatusForbidden || strings.Contains(body, `href="/queues"`) {
		t.Errorf("a visitor without queues.read: %s", resp.Status)
	}
}

// testQueues reads messages with the keyboard alone, on a narrow screen.
func testQueues(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	press := pressing(t, b, 400)
	b.visit("/queues")
	press(`a[href*="topic=commands"]`, "Messages of commands")
	press(`main details summary`, "message 1 ")
	press(`.pages a:last-child`, "message 21")
	press(`.crumbs a`, "Queues and their consumers")
	press(`main a[href="/dead-letters"]`, "no such job")
}
