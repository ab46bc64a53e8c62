package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/trigger"
)

const (
	// searchTime is the time after which a page of a search ends, so that no call takes long in a
	// history of any size.
	searchTime = 50 * time.Millisecond
	// searchPage is the number of runs that a search reads at once. Payloads have up to 64 KiB each.
	searchPage = 256
	// maxSearched bounds the text of a search, in bytes.
	maxSearched = 1 << 10
)

// runSearch selects runs by their payloads. It is for one page. The nil search selects all runs, and is
// never over.
type runSearch struct {
	input, output payloadSearch
	end           time.Time

	examined       int32
	newest, oldest *timestamppb.Timestamp // ends of the runs that were examined; nil: none had ended
}

// payloadSearch selects inputs or outputs. The zero value selects all of them.
type payloadSearch struct {
	text   string
	values []trigger.Condition
}

// newRunSearch checks and reads the search of a list; nil: it has none.
func newRunSearch(req *apiv1.ListRunsRequest, now time.Time) (*runSearch, error) {
	s := &runSearch{
		input:  payloadSearch{req.Input, trigger.Conditions(req.InputValues)},
		output: payloadSearch{req.Output, trigger.Conditions(req.OutputValues)},
		end:    now.Add(searchTime),
	}
	if !s.input.set() && !s.output.set() {
		return nil, nil
	}
	for _, part := range []struct {
		name, text string
		values     map[string]string
	}{{"input", req.Input, req.InputValues}, {"output", req.Output, req.OutputValues}} {
		if len(part.text) > maxSearched {
			return nil, status.Errorf(codes.InvalidArgument, "%s: the text has %d bytes, the limit is %d", part.name, len(part.text), maxSearched)
		}
		if err := trigger.CheckConditions(part.name+"_values", part.values); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	if req.Since == nil {
		return nil, status.Error(codes.InvalidArgument, "a search by input or output needs the start of a time range: set since, such as 24 hours ago")
	}
	return s, nil
}

func (p payloadSearch) set() bool { return p.text != "" || len(p.values) > 0 }

// byOutput reports whether only runs with an output match.
func (s *runSearch) byOutput() bool { return s != nil && s.output.set() }

// over reports whether the page must end.
func (s *runSearch) over() bool { return s != nil && !time.Now().Before(s.end) }

// keeps reports whether a run matches, and counts it. A deleted payload does not match.
func (s *runSearch) keeps(r *apiv1.Run) bool {
	if s == nil {
		return true
	}
	s.examined++
	if r.FinishedAt != nil {
		if s.newest == nil {
			s.newest = r.FinishedAt
		}
		s.oldest = r.FinishedAt
	}
	return r.PayloadDeletedAt == nil && s.input.keeps(r.Input, r.InputBytes) && s.output.keeps(r.Output, r.OutputBytes)
}

// keeps reports whether a payload matches. raw has it if it is not valid UTF-8.
func (p payloadSearch) keeps(text string, raw []byte) bool {
	if p.text != "" && !strings.Contains(text, p.text) && !bytes.Contains(raw, []byte(p.text)) {
		return false
	}
	if len(p.values) == 0 {
		return true
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var document any
	if d.Decode(&document) != nil || d.More() {
		return false
	}
	for _, c := range p.values {
		if !c.Holds(document) {
			return false
		}
	}
	return true
}

// report writes into a page how far the search has come.
func (s *runSearch) report(page *apiv1.ListRunsResponse) {
	if s != nil {
		page.Examined, page.ExaminedNewest, page.ExaminedOldest = s.examined, s.newest, s.oldest
	}
}
