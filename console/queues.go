package console

import (
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// peeked bounds the messages of one page, and peekedText and peekedBytes what it shows of each:
	// characters of a text, or bytes of another body.
	peeked      = 20
	peekedText  = 2000
	peekedBytes = 256
)

// queuesView shows the logs and queues of the server that answers.
type queuesView struct{ *apiv1.GetQueuesResponse }

func (c *console) queuesPage(v *visit) error {
	answer, err := c.queues.GetQueues(v.ctx, &apiv1.GetQueuesRequest{})
	if err != nil {
		return err
	}
	return c.show(v, "queues", "queues", queuesView{answer})
}

// Records returns the number of records in a log.
func (queuesView) Records(l *apiv1.LogStats) uint64 { return l.Next - min(l.First, l.Next) }

// Pending returns the number of records of a log that are not durable yet.
func (queuesView) Pending(l *apiv1.LogStats) uint64 { return l.Next - min(l.Durable, l.Next) }

// PerSync returns how many records one sync has made durable on average, as "12.5"; "–" without any.
func (queuesView) PerSync(l *apiv1.LogStats) string {
	if l.Syncs == 0 {
		return "–"
	}
	return strconv.FormatFloat(float64(l.Records)/float64(l.Syncs), 'f', 1, 64)
}

// Flush returns how long the last flush took.
func (queuesView) Flush(l *apiv1.LogStats) string {
	if l.Flushes == 0 {
		return "–"
	}
	return span(time.Duration(l.LastFlushUs) * time.Microsecond)
}

// Disk returns the used share of the file system in percent.
func (q queuesView) Disk() int { return int(100*q.DiskUsed + 0.5) }

// messagesView shows messages of a log or of a topic without consuming them.
type messagesView struct {
	Log, Topic string // Topic is empty for a log
	From       string // of the form
	Messages   []messageView
	Next       uint64 // sequence after the last message; 0: there are no more at present
}

type messageView struct {
	*apiv1.Message
	Shown payload
}

func (c *console) messagesPage(v *visit) error {
	q := v.r.URL.Query()
	view := messagesView{Log: q.Get("log"), Topic: q.Get("topic"), From: q.Get("from")}
	req := &apiv1.PeekMessagesRequest{Log: view.Log, Topic: view.Topic, Limit: peeked}
	if view.From != "" {
		var err error
		if req.From, err = strconv.ParseUint(view.From, 10, 64); err != nil {
			return status.Errorf(codes.InvalidArgument, "from: %.40q is not a sequence", view.From)
		}
	}
	answer, err := c.queues.PeekMessages(v.ctx, req)
	if err != nil {
		return err
	}
	for _, m := range answer.Messages {
		view.Messages = append(view.Messages, messageView{m, peek(m)})
	}
	if n := len(answer.Messages); n == peeked {
		view.Next = answer.Messages[n-1].Sequence + 1
	}
	return c.show(v, "messages", "queues", view)
}

// peek returns the beginning of the body of a message.
func peek(m *apiv1.Message) payload {
	if m.Text != "" {
		return payload{Size: int64(max(len(m.Body), len(m.Text))), Text: shorten(peekedText, m.Text), Cut: utf8.RuneCountInString(m.Text) > peekedText}
	}
	return payload{Size: int64(len(m.Body)), Binary: true, Text: hex.Dump(m.Body[:min(len(m.Body), peekedBytes)]), Cut: len(m.Body) > peekedBytes}
}
