package ingress

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
)

// Register registers the Queues service on r.
func (i *Ingress) Register(r grpc.ServiceRegistrar) {
	apiv1.RegisterQueuesServer(r, NewQueues(i.cfg.Queue, map[string]*mq.Log{"journal": i.cfg.Journal}))
}

// Queues is the Queues service over some logs and a queue. The queue is nil in a server
// without an ingress.
type Queues struct {
	apiv1.UnimplementedQueuesServer
	q    *queue.Queue
	logs map[string]*mq.Log
}

// NewQueues returns the service over q, which may be nil, and the named logs.
func NewQueues(q *queue.Queue, logs map[string]*mq.Log) *Queues { return &Queues{q: q, logs: logs} }

const (
	ingressLog = "ingress"
	maxPage    = 1000
)

func limit(n int32, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return int(min(n, maxPage))
}

// GetQueues implements the RPC.
func (s *Queues) GetQueues(context.Context, *apiv1.GetQueuesRequest) (*apiv1.GetQueuesResponse, error) {
	resp := &apiv1.GetQueuesResponse{}
	for _, name := range sortedKeys(s.logs) {
		l := s.logs[name]
		resp.Logs = append(resp.Logs, logStats(name, l.Stats(), l.Err()))
	}
	if s.q == nil {
		return resp, nil
	}
	st := s.q.Stats()
	resp.Logs = append(resp.Logs, logStats(ingressLog, st.Log, s.q.Err()))
	resp.DeadLetters, resp.Duplicates, resp.LostUnconsumed = int64(st.Dead), int64(st.Duplicates), int64(st.Lost)
	resp.DiskUsed, resp.DiskMark = float64(st.DiskUsed)/100, st.DiskLevel
	for _, t := range st.Topics {
		m := &apiv1.TopicStats{Topic: t.Name, Published: t.Next, First: t.First, Next: t.Next}
		for _, g := range t.Groups {
			gm := &apiv1.GroupStats{
				Group: g.Name, Lag: int64(g.Lag), Ready: int64(g.Ready), Delayed: int64(g.Delayed),
				Unacked: int64(g.Unacked), Retrying: int64(g.Retrying), Dead: int64(g.Dead),
			}
			if g.Oldest > 0 {
				gm.OldestAt = timestamppb.New(time.Now().Add(-g.Oldest))
			}
			m.Groups = append(m.Groups, gm)
		}
		resp.Topics = append(resp.Topics, m)
	}
	return resp, nil
}

func sortedKeys(m map[string]*mq.Log) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func logStats(name string, s mq.Stats, err error) *apiv1.LogStats {
	m := &apiv1.LogStats{
		Name: name, Writer: s.Writer, Sync: s.Sync.String(), First: s.First, Next: s.Next, Durable: s.Durable,
		Segments: int64(s.Segments), Spares: int64(s.Spares), DiskBytes: s.DiskBytes, RoomBytes: s.Room,
		Appends: s.Appends, Records: s.Records, Bytes: s.Bytes, Flushes: s.Flushes, Syncs: s.Syncs,
		LastFlushUs: s.LastFlush.Microseconds(), CutBytes: s.CutBytes,
		ScrubbedBytes: s.Scrubbed, Damaged: uint64(s.Corrupt),
	}
	if err != nil {
		m.Error = err.Error()
	}
	return m
}

// source returns the log that a request names, or a nil log and a topic of the ingress.
func (s *Queues) source(name, named string) (*mq.Log, string, error) {
	if name == "" || name == ingressLog {
		if s.q == nil {
			return nil, "", noIngress()
		}
		return nil, cmp.Or(named, topic), nil
	}
	l, err := s.log(name)
	if err == nil && named != "" {
		err = status.Errorf(codes.InvalidArgument, "the log %s has no topics, only the ingress has", name)
	}
	return l, "", err
}

func (s *Queues) log(name string) (*mq.Log, error) {
	if l := s.logs[name]; l != nil {
		return l, nil
	}
	names := sortedKeys(s.logs)
	if s.q != nil {
		names = append(names, ingressLog)
	}
	return nil, status.Errorf(codes.NotFound, "there is no log %q here: there is %s", name, strings.Join(names, ", "))
}

func noIngress() error { return status.Error(codes.NotFound, "there is no ingress here") }

// PeekMessages implements the RPC.
func (s *Queues) PeekMessages(_ context.Context, req *apiv1.PeekMessagesRequest) (*apiv1.PeekMessagesResponse, error) {
	l, topic, err := s.source(req.Log, req.Topic)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.PeekMessagesResponse{}
	n := limit(req.Limit, 20)
	if l == nil {
		views, err := s.q.Peek(topic, req.From, n)
		for _, v := range views {
			resp.Messages = append(resp.Messages, viewMessage(v))
		}
		return resp, translate(err)
	}
	size := 0
	_, err = readLog(l, req.From, func(m *apiv1.Message) error {
		resp.Messages = append(resp.Messages, m)
		size += len(m.Body)
		if len(resp.Messages) == n || size > pageBytes {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return resp, translate(err)
}

// pageBytes bounds the sum of the bodies in one response without the last body.
const pageBytes = 8 << 20

var errEnough = errors.New("enough")

// readLog calls fn for the records of a log from a sequence on, until fn returns an
// error. It returns the sequence to continue from. Records that a repair gave up become
// one message that reports them.
func readLog(l *mq.Log, from uint64, fn func(*apiv1.Message) error) (uint64, error) {
	for {
		from = max(from, l.First())
		err := l.Read(from, func(e mq.Entry) error {
			from = e.Seq + 1
			return fn(entryMessage(e))
		})
		var lost *mq.LostError
		switch {
		case errors.As(err, &lost):
			from = lost.End
			if err := fn(&apiv1.Message{Sequence: lost.First, Text: lost.Error()}); err != nil {
				return from, err
			}
		case errors.Is(err, mq.ErrTrimmed) && from < l.First():
		case errors.Is(err, mq.ErrBeyondEnd):
			return from, nil
		default:
			return from, err
		}
	}
}

func entryMessage(e mq.Entry) *apiv1.Message {
	return &apiv1.Message{Sequence: e.Seq, Type: uint32(e.Type), Queue: e.Queue, Body: slices.Clone(e.Body)}
}

func viewMessage(v queue.View) *apiv1.Message {
	m := &apiv1.Message{
		Sequence: v.Position, Topic: v.Topic, Key: v.Key, PublishedAt: timestamppb.New(v.Published), Body: v.Body, Text: text(v.Body),
	}
	if !v.Due.IsZero() {
		m.DueAt = timestamppb.New(v.Due)
	}
	return m
}

// text returns the command in a body as JSON, or "" when the body holds none.
func text(body []byte) string {
	m := &apiv1.Ingress{}
	if err := proto.Unmarshal(body, m); err != nil || m.Command.GetKind() == nil {
		return ""
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return ""
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, b); err != nil { // protojson varies its spaces on purpose
		return ""
	}
	return plain.String()
}

// tailPause is the interval between two reads of the end of a log.
const tailPause = 100 * time.Millisecond

// TailMessages implements the RPC.
func (s *Queues) TailMessages(req *apiv1.TailMessagesRequest, stream apiv1.Queues_TailMessagesServer) error {
	l, topic, err := s.source(req.Log, req.Topic)
	if err != nil {
		return err
	}
	ctx, from := stream.Context(), req.From
	if l == nil {
		if from == 0 {
			from = s.next(topic)
		}
		return translate(s.q.Tail(ctx, topic, from, func(v queue.View) error { return stream.Send(viewMessage(v)) }))
	}
	if from == 0 {
		from = l.Durable()
	}
	tick := time.NewTicker(tailPause)
	defer tick.Stop()
	for {
		if from, err = readLog(l, from, stream.Send); err != nil {
			return translate(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return translate(ctx.Err())
		}
	}
}

// next returns the position of the next message of a topic.
func (s *Queues) next(topic string) uint64 {
	for _, t := range s.q.Stats().Topics {
		if t.Name == topic {
			return t.Next
		}
	}
	return 0
}

// VerifyLog implements the RPC.
func (s *Queues) VerifyLog(req *apiv1.VerifyLogRequest, stream apiv1.Queues_VerifyLogServer) error {
	verify := func(mq.Progress) (mq.Report, error) { return mq.Report{}, noIngress() }
	if s.q != nil {
		verify = s.q.VerifyLog
	}
	if req.Log != "" && req.Log != ingressLog {
		l, err := s.log(req.Log)
		if err != nil {
			return err
		}
		verify = l.Verify
	}
	var told int64
	var at time.Time
	report, err := verify(func(done, total int64) error {
		if err := stream.Context().Err(); err != nil {
			return err
		}
		if done-told < max(total/100, 1) && time.Since(at) < verifyPause {
			return nil
		}
		told, at = done, time.Now()
		return stream.Send(&apiv1.VerifyLogResponse{Bytes: done, TotalBytes: total})
	})
	if err != nil {
		return translate(err)
	}
	return stream.Send(Findings(report))
}

// verifyPause is the longest time between two progress messages of VerifyLog, unless one
// read of the disk takes longer.
const verifyPause = 500 * time.Millisecond

// Findings converts a report to the message of the API.
func Findings(r mq.Report) *apiv1.VerifyLogResponse {
	m := &apiv1.VerifyLogResponse{Bytes: r.Bytes, TotalBytes: r.Bytes, Done: true, Records: r.Records}
	if r.Next > r.First {
		m.First, m.Last = r.First, r.Next-1
	}
	for _, d := range r.Damage {
		found := &apiv1.LogDamage{File: d.Segment, Offset: d.Offset, Kind: "rot", Why: d.Why}
		if d.End > d.First {
			found.First, found.Last = d.First, d.End-1
		}
		m.Damages = append(m.Damages, found)
	}
	for _, seg := range r.Segments {
		if seg.TornBytes > 0 {
			m.Damages = append(m.Damages, &apiv1.LogDamage{
				File: seg.Name, Offset: seg.TornAt, Kind: "torn",
				Why: fmt.Sprintf("a crash left %d bytes that nobody was told are durable; the next start clears them", seg.TornBytes),
			})
		}
	}
	if r.Unfinished {
		m.Damages = append(m.Damages, &apiv1.LogDamage{
			File: "REPAIR", Kind: "unfinished", Why: "a repair was interrupted: repeat it with the same choice",
		})
	}
	return m
}

// letterID parses the id of a dead letter.
func letterID(id string) (uint64, error) {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "%q is not the id of a dead letter: `wheelwork mq dlq list` shows them", id)
	}
	return n, nil
}

// letterError is translate for requests about one dead letter: its ErrNotFound names the
// letter.
func letterError(id uint64, err error) error {
	if errors.Is(err, queue.ErrNotFound) {
		return status.Errorf(codes.NotFound, "there is no dead letter %d: `wheelwork mq dlq list` shows them", id)
	}
	return translate(err)
}

func filterOf(ids []string, f *apiv1.DeadLetterFilter) (queue.Filter, error) {
	out := queue.Filter{Topic: f.GetTopic(), Group: f.GetGroup(), Key: f.GetKey(), Error: f.GetError()}
	for _, id := range ids {
		n, err := letterID(id)
		if err != nil {
			return out, err
		}
		out.IDs = append(out.IDs, n)
	}
	if r := f.GetReason(); r != "" {
		for _, known := range []queue.Reason{queue.Permanent, queue.Attempts} {
			if known.String() == r {
				out.Reason = known
			}
		}
		if out.Reason == 0 {
			return out, status.Errorf(codes.InvalidArgument, "filter.reason: %q is neither %s nor %s", r, queue.Permanent, queue.Attempts)
		}
	}
	if f.GetSince() != nil {
		out.From = f.Since.AsTime()
	}
	if f.GetUntil() != nil {
		out.To = f.Until.AsTime()
	}
	return out, nil
}

// chosen is filterOf for requests that change dead letters. It refuses a request that
// selects none.
func (s *Queues) chosen(ids []string, f *apiv1.DeadLetterFilter, all bool) (queue.Filter, error) {
	if s.q == nil {
		return queue.Filter{}, noIngress()
	}
	if len(ids) == 0 && proto.Size(f) == 0 && !all {
		return queue.Filter{}, status.Error(codes.InvalidArgument, "say which dead letters: by ids, by a filter, or all of them with all")
	}
	return filterOf(ids, f)
}

// ListDeadLetters implements the RPC.
func (s *Queues) ListDeadLetters(_ context.Context, req *apiv1.ListDeadLettersRequest) (*apiv1.ListDeadLettersResponse, error) {
	if s.q == nil {
		return &apiv1.ListDeadLettersResponse{}, nil
	}
	f, err := filterOf(nil, req.Filter)
	if err != nil {
		return nil, err
	}
	letters, next, err := s.q.Dead(f, req.PageToken, limit(req.PageSize, 50))
	if err != nil {
		return nil, translate(err)
	}
	resp := &apiv1.ListDeadLettersResponse{NextPageToken: next}
	for _, d := range letters {
		m := letter(d)
		m.Body, m.Text = nil, ""
		resp.Letters = append(resp.Letters, m)
	}
	return resp, nil
}

func letter(d queue.Dead) *apiv1.DeadLetter {
	return &apiv1.DeadLetter{
		Id: strconv.FormatUint(d.ID, 10), Topic: d.Topic, Group: d.Group, Key: d.Key, Reason: d.Reason.String(), Attempts: int32(d.Attempts),
		Origin: d.Origin, PublishedAt: timestamppb.New(d.Published), DeadAt: timestamppb.New(d.Died),
		FirstError: d.FirstError, FirstErrorAt: timestamppb.New(d.FirstFailed),
		LastError: d.LastError, LastErrorAt: timestamppb.New(d.LastFailed), Body: d.Body, Text: text(d.Body),
	}
}

// GetDeadLetter implements the RPC.
func (s *Queues) GetDeadLetter(_ context.Context, req *apiv1.GetDeadLetterRequest) (*apiv1.DeadLetter, error) {
	id, err := letterID(req.Id)
	if err != nil {
		return nil, err
	}
	if s.q == nil {
		return nil, noIngress()
	}
	d, err := s.q.GetDead(id)
	if err != nil {
		return nil, letterError(id, err)
	}
	return letter(d), nil
}

// EditDeadLetter implements the RPC.
func (s *Queues) EditDeadLetter(ctx context.Context, req *apiv1.EditDeadLetterRequest) (*apiv1.DeadLetter, error) {
	id, err := letterID(req.Id)
	if err != nil {
		return nil, err
	}
	body := req.Body
	switch {
	case req.Text != "" && len(req.Body) > 0:
		return nil, status.Error(codes.InvalidArgument, "body and text are both set: use one")
	case req.Text != "":
		if body, err = s.command(id, req.Text); err != nil {
			return nil, err
		}
	case len(body) == 0:
		return nil, status.Error(codes.InvalidArgument, "the new body is missing")
	}
	if s.q == nil {
		return nil, noIngress()
	}
	if err := s.q.Edit(id, body); err != nil {
		return nil, letterError(id, err)
	}
	return s.GetDeadLetter(ctx, &apiv1.GetDeadLetterRequest{Id: req.Id})
}

// command returns the new body of a dead letter whose text was edited. It keeps the key
// and the time that decide the id of a run, or creates them. The command therefore takes
// effect once, however often it is tried.
func (s *Queues) command(id uint64, text string) ([]byte, error) {
	m := &apiv1.Ingress{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "text is not a command as JSON: %v", err)
	}
	if m.Command.GetKind() == nil {
		return nil, status.Error(codes.InvalidArgument, `text has no command: want {"command": {"apply": …}}, or delete, or trigger`)
	}
	before := &apiv1.Ingress{}
	if s.q != nil {
		d, err := s.q.GetDead(id)
		if err != nil {
			return nil, letterError(id, err)
		}
		_ = proto.Unmarshal(d.Body, before) // an old body that is not a command has nothing to keep
	}
	if m.AtMs == 0 {
		m.AtMs = cmp.Or(before.AtMs, time.Now().UnixMilli())
	}
	// An edited trigger stays the same run, so a second replay does not start another
	// one.
	if t, had := m.Command.GetTrigger(), before.Command.GetTrigger(); t != nil && t.IdempotencyKey == "" {
		switch {
		case had.GetIdempotencyKey() != "":
			t.IdempotencyKey = had.IdempotencyKey
		case len(before.Run) > 0 && had.GetApp() == t.App && had.GetName() == t.Name:
			m.Run = before.Run
		case len(m.Run) == 0:
			t.IdempotencyKey = "ingress/" + rand.Text()
		}
	}
	body, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	return body, nil
}

// ReplayDeadLetters implements the RPC.
func (s *Queues) ReplayDeadLetters(_ context.Context, req *apiv1.ReplayDeadLettersRequest) (*apiv1.ReplayDeadLettersResponse, error) {
	f, err := s.chosen(req.Ids, req.Filter, req.All)
	if err != nil {
		return nil, err
	}
	n, err := s.q.Replay(f)
	return &apiv1.ReplayDeadLettersResponse{Count: int64(n)}, translate(err)
}

// DropDeadLetters implements the RPC.
func (s *Queues) DropDeadLetters(_ context.Context, req *apiv1.DropDeadLettersRequest) (*apiv1.DropDeadLettersResponse, error) {
	f, err := s.chosen(req.Ids, req.Filter, req.All)
	if err != nil {
		return nil, err
	}
	n, err := s.q.Drop(f)
	return &apiv1.DropDeadLettersResponse{Count: int64(n)}, translate(err)
}
