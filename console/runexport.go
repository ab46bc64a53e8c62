package console

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	maxExport  = 100_000         // runs of one file
	exportTime = 5 * time.Minute // after which a file ends, however few runs match
	exportSize = 64 << 10        // bytes that are sent at once
)

// runWriter writes runs in one format.
type runWriter interface {
	head() error
	run(*apiv1.Run) error
	// cut writes that runs are missing, in a form that the readers of the format take.
	cut(rows int, why string) error
	flush() error
}

// exportRuns sends the runs of a filter as a file.
func (c *console) exportRuns(v *visit) error {
	f, err := readRunFilter(v, "", time.Now())
	if err != nil {
		return err
	}
	to := bufio.NewWriterSize(patient{v.w, http.NewResponseController(v.w)}, exportSize)
	var out runWriter
	format := v.r.URL.Query().Get("format")
	switch format {
	case "csv":
		out = &csvRuns{csv.NewWriter(to)}
	case "jsonl":
		out = jsonRuns{to}
	default:
		return status.Errorf(codes.InvalidArgument, "there is no format %.40q: want csv or jsonl", format)
	}
	e := export{runScan: runScan{list: c.runs.ListRuns, end: time.Now().Add(exportTime)}, most: maxExport, keeps: f.keeps}
	defer func() { _ = http.NewResponseController(v.w).SetWriteDeadline(time.Time{}) }() // later requests may use the same connection
	return e.write(v.ctx, f.request(v.app), out, to, func() {
		attachment(v.w, v.app+"-runs."+format, map[string]string{"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}[format])
	})
}

// export is a scan whose runs go to a file.
type export struct {
	runScan
	most  int // runs of the file
	keeps func(*apiv1.Run) bool
}

// write writes the runs of a request. It calls begin before the first byte: until then an error can
// still become a page. Once the file has begun, the file says that runs are missing.
func (e export) write(ctx context.Context, req *apiv1.ListRunsRequest, out runWriter, to *bufio.Writer, begin func()) error {
	rows, begun := 0, false
	var broken error // the browser has disconnected
	start := func() error {
		if begun {
			return nil
		}
		begun = true
		begin()
		return out.head()
	}
	done, err := e.each(ctx, req, "", func(r *apiv1.Run) bool {
		if broken = start(); broken != nil {
			return false
		}
		if !e.keeps(r) {
			return true
		}
		rows++
		broken = out.run(r)
		return broken == nil && rows < e.most
	})
	if err != nil && !begun {
		return err
	}
	why := ""
	switch {
	case broken != nil:
		return nil
	case err != nil:
		why = "reading failed: " + status.Convert(err).Message()
	case done.Next != "" && rows == e.most:
		why = "a file has at most this number of runs: choose a shorter time range"
	case done.Next != "":
		why = "reading took too long: choose a shorter time range"
	case done.Unreadable > 0:
		why = fmt.Sprintf("%d damaged blocks of the history were passed over, each of up to 256 runs", done.Unreadable)
	}
	if err := start(); err != nil {
		return nil
	}
	if why != "" && out.cut(rows, why) != nil || out.flush() != nil {
		return nil
	}
	_ = to.Flush()
	return nil
}

// patient writes to a browser that may stop reading for writeLimit.
type patient struct {
	to       io.Writer
	deadline *http.ResponseController
}

func (p patient) Write(b []byte) (int, error) {
	_ = p.deadline.SetWriteDeadline(time.Now().Add(writeLimit)) // an error means that the writer supports no deadlines
	return p.to.Write(b)
}

// jsonRuns writes each run as an object on a line of its own, in the form of the API.
type jsonRuns struct{ to io.Writer }

func (jsonRuns) head() error { return nil }

func (j jsonRuns) run(r *apiv1.Run) error {
	b, err := jsonForm().Marshal(r)
	if err != nil {
		return err
	}
	_, err = j.to.Write(append(b, '\n'))
	return err
}

func (j jsonRuns) cut(rows int, why string) error {
	return json.NewEncoder(j.to).Encode(struct {
		Cut  bool   `json:"cut"`
		Rows int    `json:"rows"`
		Why  string `json:"why"`
	}{true, rows, why})
}

func (jsonRuns) flush() error { return nil }

// csvRuns writes each run as a row.
type csvRuns struct{ *csv.Writer }

// csvColumns are the names of the columns and how a run fills them.
var csvColumns = []struct {
	name string
	of   func(*apiv1.Run) string
}{
	{"id", (*apiv1.Run).GetId},
	{"job", (*apiv1.Run).GetJob},
	{"state", (*apiv1.Run).GetState},
	{"trigger", (*apiv1.Run).GetTrigger},
	{"planned_at", func(r *apiv1.Run) string { return exact(r.PlannedAt) }},
	{"accepted_at", func(r *apiv1.Run) string { return exact(r.AcceptedAt) }},
	{"started_at", func(r *apiv1.Run) string { return exact(r.StartedAt) }},
	{"finished_at", func(r *apiv1.Run) string { return exact(r.FinishedAt) }},
	{"seconds", func(r *apiv1.Run) string { return seconds(r) }},
	{"attempt", func(r *apiv1.Run) string { return strconv.Itoa(int(r.Attempt)) }},
	{"max_attempts", func(r *apiv1.Run) string { return strconv.Itoa(int(r.MaxAttempts)) }},
	{"host", (*apiv1.Run).GetHost},
	{"module", (*apiv1.Run).GetModule},
	{"handler", (*apiv1.Run).GetHandler},
	{"code", (*apiv1.Run).GetCode},
	{"error", (*apiv1.Run).GetError},
	{"labels", func(r *apiv1.Run) string { return labelText(r.Labels) }},
	{"parent", (*apiv1.Run).GetParent},
	{"cause", (*apiv1.Run).GetCause},
	{"triggered_by", (*apiv1.Run).GetTriggeredBy},
	{"job_revision", func(r *apiv1.Run) string { return strconv.FormatInt(r.JobRevision, 10) }},
}

func (c *csvRuns) head() error {
	names := make([]string, len(csvColumns))
	for i, column := range csvColumns {
		names[i] = column.name
	}
	return c.Write(names)
}

func (c *csvRuns) run(r *apiv1.Run) error {
	cells := make([]string, len(csvColumns))
	for i, column := range csvColumns {
		cells[i] = plainCell(column.of(r))
	}
	return c.Write(cells)
}

// cut writes a row with all cells, because readers refuse rows of other lengths.
func (c *csvRuns) cut(rows int, why string) error {
	return c.run(&apiv1.Run{Id: "(cut)", State: "(cut)", Error: fmt.Sprintf("runs are missing after %d rows: %s", rows, why)})
}

func (c *csvRuns) flush() error {
	c.Flush()
	return c.Error()
}

// plainCell returns a cell that spreadsheets show as text: one that begins like a formula gets an
// apostrophe, which they take away.
func plainCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", firstRune(s)) {
		return "'" + s
	}
	return s
}

func firstRune(s string) rune {
	for _, r := range s {
		return r
	}
	return 0
}

// exact formats an instant for programs; "": there is none.
func exact(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02T15:04:05.000Z")
}

// seconds returns how long a run took; "": it has not ended, or has never started.
func seconds(r *apiv1.Run) string {
	if r.StartedAt == nil || r.FinishedAt == nil {
		return ""
	}
	return strconv.FormatFloat(max(0, r.FinishedAt.AsTime().Sub(r.StartedAt.AsTime()).Seconds()), 'f', 3, 64)
}

// labelText returns labels in order of their names, as a=1,b=2.
func labelText(labels map[string]string) string {
	texts := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, name+"="+labels[name])
	}
	return strings.Join(texts, ",")
}
