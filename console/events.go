package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// heartbeat keeps proxies from closing a quiet stream, and detects browsers that
	// disappeared.
	heartbeat = 15 * time.Second
	// writeLimit is how long a browser may stop reading before the console closes its
	// stream.
	writeLimit = 30 * time.Second
)

// event is one message of a text/event-stream.
type event struct {
	name string
	id   string // "": the browser keeps the previous id
	data any    // becomes one line of JSON
}

// runFact is the part of a run that a page needs at once; the page fetches the rest.
type runFact struct {
	Run     string `json:"run"` // app/id
	State   string `json:"state"`
	Attempt int32  `json:"attempt"`
}

// logFact is a line of the log.
type logFact struct {
	Run     string `json:"run"` // app/id
	Offset  int64  `json:"offset"`
	Time    string `json:"time"`
	Attempt int32  `json:"attempt"`
	Level   string `json:"level"`
	Text    string `json:"text"`
}

// endFact says that a run and its log are over, or why they cannot be read.
type endFact struct {
	Run   string `json:"run"` // app/id
	Error string `json:"error,omitempty"`
}

// followed is one run of a stream, and the first line of its log that the browser lacks.
type followed struct {
	app, id string
	from    int64
	zone    *time.Location // of the times of its lines
}

func (f followed) key() string { return f.app + "/" + f.id }

// events serves one stream for several runs, as all tabs of a browser share a stream. Each
// parameter run is app/id@line. The browser reconnects with other parameters, so events
// have no ids.
func (c *console) events(v *visit) error {
	var runs []followed
	for _, text := range v.r.URL.Query()["run"] {
		f, err := readFollowed(text)
		if err != nil {
			return err
		}
		runs = append(runs, f)
	}
	if len(runs) == 0 {
		return status.Error(codes.InvalidArgument, "no run is named: add run=APP/ID@LINE for each")
	}
	return c.stream(v, runs)
}

func readFollowed(text string) (followed, error) {
	name, line, _ := strings.Cut(text, "@")
	app, id, ok := strings.Cut(name, "/")
	from, err := strconv.ParseInt(line, 10, 64)
	if !ok || app == "" || id == "" || err != nil || from < 0 {
		return followed{}, status.Errorf(codes.InvalidArgument, "run %q is not of the form APP/ID@LINE", text)
	}
	return followed{app: app, id: id, from: from}, nil
}

// runEvents serves the stream of a single run: "run" when the run changed, "log" for each
// line, "end" when both are over. The id of an event is the offset of the last line, so
// that a reconnecting client continues after it.
func (c *console) runEvents(v *visit) error {
	from, err := resumeAt(v.r)
	if err != nil {
		return err
	}
	return c.stream(v, []followed{{app: v.app, id: v.r.PathValue("id"), from: from}})
}

func (c *console) stream(v *visit, runs []followed) error {
	if !v.session.acquire(len(runs)) {
		http.Error(v.w, fmt.Sprintf("this session follows %d runs already; close some pages", maxStreams), http.StatusTooManyRequests)
		return nil
	}
	defer v.session.release(len(runs))

	events := make(chan event, 64)
	g, ctx := errgroup.WithContext(v.ctx)
	sources, sourcesCtx := errgroup.WithContext(ctx)
	zone := zoneOf(v.r).Location
	for _, f := range runs {
		f.zone = zone
		sources.Go(func() error {
			err := c.followRun(sourcesCtx, f, events)
			if err != nil && !permanent(err) {
				return err // without an end event the browser reconnects
			}
			end := endFact{Run: f.key()}
			if err != nil {
				end.Error = status.Convert(err).Message()
			}
			return emit(ctx, events, event{name: "end", data: end})
		})
	}
	g.Go(func() error {
		defer close(events) // after its only senders have ended
		_ = sources.Wait()  // an error ends the stream
		return nil
	})
	g.Go(func() error { return writeEvents(ctx, v.w, events, len(runs) == 1) })
	if err := g.Wait(); err != nil && v.r.Context().Err() == nil {
		c.log.DebugContext(v.ctx, "live page ended", "path", v.r.URL.Path, "error", err)
	}
	return nil
}

// followRun sends the changes and the log of a run until both are over.
func (c *console) followRun(ctx context.Context, f followed, to chan<- event) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.watchRun(ctx, f, to) })
	g.Go(func() error { return c.followLog(ctx, f, to) })
	return g.Wait()
}

// resumeAt returns the offset of the first requested line. A reconnecting browser sends
// the id of its last line in Last-Event-ID; a new page may set the parameter from.
func resumeAt(r *http.Request) (int64, error) {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			return 0, status.Errorf(codes.InvalidArgument, "Last-Event-ID %q is not the offset of a line", last)
		}
		return n + 1, nil
	}
	from := r.URL.Query().Get("from")
	if from == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(from, 10, 64)
	if err != nil || n < 0 {
		return 0, status.Errorf(codes.InvalidArgument, "from %q is not the offset of a line", from)
	}
	return n, nil
}

// permanent reports whether a retry would fail in the same way.
func permanent(err error) bool {
	switch status.Code(err) {
	case codes.NotFound, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return false
}

func (c *console) watchRun(ctx context.Context, f followed, to chan<- event) error {
	stream, err := c.runs.WatchRun(ctx, &apiv1.WatchRunRequest{App: f.app, Id: f.id})
	for err == nil {
		var run *apiv1.Run
		if run, err = stream.Recv(); err == nil {
			err = emit(ctx, to, event{name: "run", data: runFact{Run: f.key(), State: run.State, Attempt: run.Attempt}})
		}
	}
	return untilEOF(err)
}

func (c *console) followLog(ctx context.Context, f followed, to chan<- event) error {
	stream, err := c.runs.ReadLog(ctx, &apiv1.ReadLogRequest{App: f.app, Id: f.id, From: f.from, Follow: true})
	for err == nil {
		var l *apiv1.LogLine
		if l, err = stream.Recv(); err == nil {
			err = emit(ctx, to, event{name: "log", id: strconv.FormatInt(l.Offset, 10), data: logFact{
				Run: f.key(), Offset: l.Offset, Time: stamp(l.Time).In(f.zone).Format("15:04:05.000"), Attempt: l.Attempt, Level: l.Level, Text: l.Text,
			}})
		}
	}
	return untilEOF(err)
}

func untilEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func emit(ctx context.Context, to chan<- event, e event) error {
	select {
	case to <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeEvents writes events as they arrive and flushes when none is pending. So a burst
// costs one flush, and a single line is sent at once.
func writeEvents(ctx context.Context, w http.ResponseWriter, from <-chan event, ids bool) error {
	out := http.NewResponseController(w)
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }() // later requests may use the same connection
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a buffering proxy would delay lines
	if _, err := io.WriteString(w, "retry: 2000\n\n"); err != nil {
		return err
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		if len(from) == 0 {
			_ = out.SetWriteDeadline(time.Now().Add(writeLimit)) // an error means that the writer supports no deadlines
			if err := out.Flush(); err != nil {
				return err
			}
		}
		select {
		case e, ok := <-from:
			if !ok {
				return out.Flush()
			}
			if !ids {
				e.id = ""
			}
			if err := writeEvent(w, e); err != nil {
				return err
			}
		case <-beat.C:
			if _, err := io.WriteString(w, ": still here\n\n"); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeEvent encodes one event. JSON has no raw line breaks, so no text of a run can end
// the event early.
func writeEvent(w io.Writer, e event) error {
	data, err := json.Marshal(e.data)
	if err != nil {
		return err
	}
	if e.id != "" {
		if _, err := fmt.Fprintf(w, "id: %s\n", e.id); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.name, data)
	return err
}
