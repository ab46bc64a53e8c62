package console

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// scanSlice is the time after which a page of a scan asks for no further runs: the visitor continues.
	scanSlice = 50 * time.Millisecond
	// scanPage is the number of runs for which a scan asks at once.
	scanPage = 1000
)

// runScan reads runs, the newest first.
type runScan struct {
	list func(context.Context, *apiv1.ListRunsRequest, ...grpc.CallOption) (*apiv1.ListRunsResponse, error)
	page int32 // runs of one call; 0: scanPage
	// end is the time after which no further page is read; zero: the scan has no such bound.
	end time.Time
}

// scanned says how far a scan has come.
type scanned struct {
	Read       int                    // number of runs
	Newest     *timestamppb.Timestamp // end of the first ended run that was read; nil: none was
	Oldest     *timestamppb.Timestamp // end of the last one
	Next       string                 // the cursor of the rest; "": all runs were read
	Unreadable int32                  // damaged blocks of the history that were passed over
}

// slice returns a scan of the runs of the API that ends after scanSlice.
func (c *console) slice() runScan {
	return runScan{list: c.runs.ListRuns, end: time.Now().Add(scanSlice)}
}

// each calls yield for the runs of a request from a cursor on, until it returns false. A cursor is
// the token of a page and the last run of that page that was read: the pages of the history keep
// their runs, while live runs move. A run that ends meanwhile is read once.
func (s runScan) each(ctx context.Context, req *apiv1.ListRunsRequest, from string, yield func(*apiv1.Run) bool) (done scanned, err error) {
	req = proto.CloneOf(req)
	req.PageSize = cmp.Or(s.page, scanPage)
	token, after, _ := strings.Cut(from, cursorMark)
	live := map[string]bool{} // the live runs that were read
	for {
		req.PageToken = token
		answer, err := s.list(ctx, req)
		if err != nil {
			return done, err
		}
		done.Unreadable += answer.UnreadableBlocks
		done.searched(answer)
		runs := runsAfter(answer.Runs, after)
		for i, r := range runs {
			if live[r.Id] {
				continue
			}
			if r.FinishedAt == nil {
				live[r.Id] = true
			}
			if answer.Examined == 0 {
				done.count(r)
			}
			if yield(r) {
				continue
			}
			if i < len(runs)-1 {
				done.Next = token + cursorMark + r.Id
			} else if answer.NextPageToken != "" {
				done.Next = answer.NextPageToken
			}
			return done, nil
		}
		if token, after = answer.NextPageToken, ""; token == "" {
			return done, nil
		}
		if !s.end.IsZero() && time.Now().After(s.end) {
			done.Next = token
			return done, nil
		}
	}
}

func (d *scanned) count(r *apiv1.Run) {
	d.Read++
	if r.FinishedAt == nil {
		return
	}
	if d.Newest == nil {
		d.Newest = r.FinishedAt
	}
	d.Oldest = r.FinishedAt
}

// searched counts the runs that the API has read for a page of a search.
func (d *scanned) searched(page *apiv1.ListRunsResponse) {
	d.Read += int(page.Examined)
	if d.Newest == nil {
		d.Newest = page.ExaminedNewest
	}
	if page.ExaminedOldest != nil {
		d.Oldest = page.ExaminedOldest
	}
}

// after adds the next piece of a scan.
func (d *scanned) after(next scanned) {
	d.Read += next.Read
	d.Unreadable += next.Unreadable
	if d.Newest == nil {
		d.Newest = next.Newest
	}
	if next.Oldest != nil {
		d.Oldest = next.Oldest
	}
	d.Next = next.Next
}

// cursorMark separates the parts of a cursor. No token or id contains it.
const cursorMark = "~"

// runsAfter returns the runs after the one with an id. Without it all of them come after.
func runsAfter(runs []*apiv1.Run, id string) []*apiv1.Run {
	for i, r := range runs {
		if id != "" && r.Id == id {
			return runs[i+1:]
		}
	}
	return runs
}
