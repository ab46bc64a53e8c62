package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// history is a list of ended runs, the newest first, in pages of size runs. A token is the number of
// the first run of a page.
type history struct {
	runs  []*apiv1.Run
	size  int
	calls int
	// failAfter is the number of calls after which further ones fail; -1: all fail, 0: none does.
	failAfter int
	damaged   int32 // blocks of each page
}

var errBroken = errors.New("broken")

func newHistory(n, size int) *history {
	h := &history{size: size, damaged: 1}
	for i := range n {
		h.runs = append(h.runs, &apiv1.Run{Id: fmt.Sprintf("run%d", i), Job: "totals", State: "failed", Error: "line 1", FinishedAt: timestamppb.New(time.Unix(int64(1e9-i), 0))})
	}
	return h
}

func (h *history) list(_ context.Context, req *apiv1.ListRunsRequest, _ ...grpc.CallOption) (*apiv1.ListRunsResponse, error) {
	h.calls++
	if h.failAfter < 0 || h.failAfter > 0 && h.calls > h.failAfter {
		return nil, errBroken
	}
	from := 0
	if req.PageToken != "" {
		var err error
		if from, err = strconv.Atoi(req.PageToken); err != nil {
			return nil, err
		}
	}
	end := min(from+h.size, len(h.runs))
	answer := &apiv1.ListRunsResponse{Runs: h.runs[from:end], UnreadableBlocks: h.damaged}
	if end < len(h.runs) {
		answer.NextPageToken = strconv.Itoa(end)
	}
	return answer, nil
}

// TestScanContinues: the pieces of a scan have each run once, wherever one stops.
func TestScanContinues(t *testing.T) {
	for most := 1; most <= 12; most++ {
		h := newHistory(10, 4)
		var ids []string
		for cursor := ""; ; {
			piece := 0
			done, err := runScan{list: h.list}.each(t.Context(), &apiv1.ListRunsRequest{}, cursor, func(r *apiv1.Run) bool {
				ids, piece = append(ids, r.Id), piece+1
				return piece < most
			})
			if err != nil || done.Read != piece {
				t.Fatalf("read %d of %d: %v", done.Read, piece, err)
			}
			if cursor = done.Next; cursor == "" {
				break
			}
		}
		want := []string{}
		for _, r := range h.runs {
			want = append(want, r.Id)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("in pieces of %d: %v", most, ids)
		}
	}
}

func TestScanEndsAfterItsTime(t *testing.T) {
	h := newHistory(10, 4)
	all := func(*apiv1.Run) bool { return true }
	done, err := runScan{list: h.list, end: time.Now()}.each(t.Context(), &apiv1.ListRunsRequest{}, "", all)
	if err != nil || done.Read != 4 || done.Next != "4" || h.calls != 1 || done.Unreadable != 1 {
		t.Errorf("%+v after %d calls: %v", done, h.calls, err)
	}
	if done.Newest.Seconds != 1e9 || done.Oldest.Seconds != 1e9-3 {
		t.Errorf("read from %v to %v", done.Oldest, done.Newest)
	}
	done, err = runScan{list: h.list, end: time.Now().Add(time.Hour)}.each(t.Context(), &apiv1.ListRunsRequest{}, done.Next, all)
	if err != nil || done.Read != 6 || done.Next != "" || done.Unreadable != 2 {
		t.Errorf("%+v: %v", done, err)
	}
}

// TestScanOfMovingRuns: when the last run has moved to another page, the scan repeats runs and leaves
// out none.
func TestScanOfMovingRuns(t *testing.T) {
	h := newHistory(3, 4)
	read := 0
	if _, err := (runScan{list: h.list}).each(t.Context(), &apiv1.ListRunsRequest{}, "~gone", func(*apiv1.Run) bool { read++; return true }); err != nil || read != 3 {
		t.Errorf("read %d: %v", read, err)
	}
}

// TestScanOfEndingRuns: a run that ends while the scan reads is on a page of live runs and on one of
// the history.
func TestScanOfEndingRuns(t *testing.T) {
	h := newHistory(4, 2)
	ended := h.runs[2]
	h.runs[1] = &apiv1.Run{Id: ended.Id, State: "running"}
	var states []string
	_, err := runScan{list: h.list}.each(t.Context(), &apiv1.ListRunsRequest{}, "", func(r *apiv1.Run) bool {
		states = append(states, r.Id+" "+r.State)
		return true
	})
	if want := []string{"run0 failed", "run2 running", "run3 failed"}; err != nil || !slices.Equal(states, want) {
		t.Errorf("%q, want %q: %v", states, want, err)
	}
}
