package audit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Tokens is the token of a page: by partition, the event behind which the next page begins. A
// partition without one begins at the end of its log, or with the oldest events first at its beginning.
type Tokens map[string]Mark

// Mark is an event that was returned last. The zero value is in the tokens of pages with the oldest
// events first: the partition had no event.
type Mark struct {
	Sequence uint64
	Position int64 // of its entry in the log
}

// MarkOf returns the mark of an event.
func MarkOf(e *apiv1.AuditEvent) Mark { return Mark{e.Sequence, e.Position} }

// NoMore is the mark of a partition whose events were all returned.
var NoMore = Mark{Sequence: math.MaxUint64}

// String returns the text of the token, which [ParseTokens] reads.
func (t Tokens) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s=%d@%d", name, t[name].Sequence, t[name].Position))
	}
	return strings.Join(parts, ",")
}

// ParseTokens reads the text of a token; "": the first page.
func ParseTokens(text string) (Tokens, error) {
	t := Tokens{}
	if text == "" {
		return t, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, mark, _ := strings.Cut(part, "=")
		sequence, position, _ := strings.Cut(mark, "@")
		n, err := strconv.ParseUint(sequence, 10, 64)
		pos, err2 := strconv.ParseInt(position, 10, 64)
		if err != nil || err2 != nil || name == "" || n == 0 && pos != 0 || pos < 0 {
			return nil, fmt.Errorf("the page_token %.40q is not one of this list", text)
		}
		t[name] = Mark{n, pos}
	}
	return t, nil
}

// MergePages merges the pages of partitions, the newest events first: of the next event of each
// partition it takes the one with the latest time. asked is the token of the request.
func MergePages(asked Tokens, partitions []string, pages []*apiv1.ListAuditEventsResponse, size int) (*apiv1.ListAuditEventsResponse, error) {
	next := Tokens{}
	for _, name := range partitions {
		next[name] = NoMore
	}
	all, left, err := merge(asked, next, pages, size, func(a, b time.Time) bool { return a.After(b) })
	if err != nil {
		return nil, err
	}
	maps.Copy(next, left)
	maps.DeleteFunc(next, func(_ string, at Mark) bool { return at == Mark{} })
	if slices.ContainsFunc(partitions, func(name string) bool { return next[name] != NoMore }) {
		all.NextPageToken = next.String()
	}
	return all, nil
}

// MergeOldest merges the pages of partitions, the oldest events first: of the next event of each
// partition it takes the one with the earliest time. asked is the token of the request.
func MergeOldest(asked Tokens, pages []*apiv1.ListAuditEventsResponse, size int) (*apiv1.ListAuditEventsResponse, error) {
	next := Tokens{} // the answer of another server has no other partitions than its own
	all, left, err := merge(asked, next, pages, size, func(a, b time.Time) bool { return a.Before(b) })
	if err != nil {
		return nil, err
	}
	for name, at := range left {
		if all.More = true; at == (Mark{}) { // nothing of it was returned yet
			delete(next, name)
			continue
		}
		next[name] = at
	}
	for _, p := range pages {
		all.More = all.More || p.More
		for _, gap := range p.Gaps {
			if next[gap.Partition].Sequence > gap.Last { // otherwise the next page has it
				all.Gaps = append(all.Gaps, gap)
			}
		}
	}
	all.NextPageToken = next.String()
	return all, nil
}

// merge takes events of pages until there are size ones: each time the next event of a partition whose
// time is before those of the others. It puts the tokens of the pages in next. left has the partitions
// that have further events, with the last event of each that was returned.
func merge(asked, next Tokens, pages []*apiv1.ListAuditEventsResponse, size int, before func(a, b time.Time) bool) (all *apiv1.ListAuditEventsResponse, left Tokens, err error) {
	all = &apiv1.ListAuditEventsResponse{}
	var rest [][]*apiv1.AuditEvent // of partitions, none is empty
	for _, p := range pages {
		own, err := ParseTokens(p.NextPageToken)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(next, own)
		// The answer of another server may be of several partitions.
		byPartition := map[string][]*apiv1.AuditEvent{}
		for _, e := range p.Events {
			byPartition[e.Partition] = append(byPartition[e.Partition], e)
		}
		for _, name := range slices.Sorted(maps.Keys(byPartition)) {
			rest = append(rest, byPartition[name])
		}
	}
	last := maps.Clone(asked)
	for len(rest) > 0 && len(all.Events) < size {
		first := 0
		for i := range rest {
			if before(rest[i][0].Time.AsTime(), rest[first][0].Time.AsTime()) {
				first = i
			}
		}
		e := rest[first][0]
		all.Events, last[e.Partition] = append(all.Events, e), MarkOf(e)
		if rest[first] = rest[first][1:]; len(rest[first]) == 0 {
			rest = slices.Delete(rest, first, first+1)
		}
	}
	left = Tokens{}
	for _, events := range rest {
		left[events[0].Partition] = last[events[0].Partition]
	}
	return all, left, nil
}
