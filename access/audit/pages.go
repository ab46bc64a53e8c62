package audit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Tokens is the token of a page: by partition, the event behind which the next page begins. A
// partition without one begins at the end of its log.
type Tokens map[string]Mark

// Mark is an event that was returned last.
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
		if err != nil || err2 != nil || name == "" || n == 0 || pos < 0 {
			return nil, fmt.Errorf("the page_token %.40q is not one of this list", text)
		}
		t[name] = Mark{n, pos}
	}
	return t, nil
}

// MergePages merges the pages of partitions, the newest events first: of the next event of each
// partition it takes the one with the latest time. asked is the token of the request.
func MergePages(asked Tokens, partitions []string, pages []*apiv1.ListAuditEventsResponse, size int) (*apiv1.ListAuditEventsResponse, error) {
	all := &apiv1.ListAuditEventsResponse{}
	next := Tokens{}
	for _, name := range partitions {
		next[name] = NoMore
	}
	var rest [][]*apiv1.AuditEvent // of partitions, none is empty
	for _, p := range pages {
		own, err := ParseTokens(p.NextPageToken)
		if err != nil {
			return nil, err
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
		newest := 0
		for i := range rest {
			if rest[i][0].Time.AsTime().After(rest[newest][0].Time.AsTime()) {
				newest = i
			}
		}
		e := rest[newest][0]
		all.Events, last[e.Partition] = append(all.Events, e), MarkOf(e)
		if rest[newest] = rest[newest][1:]; len(rest[newest]) == 0 {
			rest = slices.Delete(rest, newest, newest+1)
		}
	}
	for _, events := range rest { // on the next page
		next[events[0].Partition] = last[events[0].Partition]
	}
	maps.DeleteFunc(next, func(_ string, at Mark) bool { return at == Mark{} })
	if slices.ContainsFunc(partitions, func(name string) bool { return next[name] != NoMore }) {
		all.NextPageToken = next.String()
	}
	return all, nil
}
