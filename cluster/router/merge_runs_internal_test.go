package router

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched"
)

// partitionRuns are the runs of partitions, by partition. ask lists them in pages as the owner
// of a partition does.
type partitionRuns map[string][]*apiv1.Run

func (u partitionRuns) ask(partition, token string, size int) (*apiv1.ListRunsResponse, error) {
	from := 0
	if token != "" {
		from, _ = strconv.Atoi(token)
	}
	rest, resp, page := u[partition][from:], &apiv1.ListRunsResponse{}, sched.Page{}
	for len(resp.Runs) < min(size, len(rest)) && page.Fits(rest[len(resp.Runs)]) {
		resp.Runs = append(resp.Runs, rest[len(resp.Runs)])
	}
	if n := from + len(resp.Runs); n < len(u[partition]) {
		resp.NextPageToken = strconv.Itoa(n)
	}
	return resp, nil
}

// TestMergedRunsAreBounded: a page of the runs of an app in several partitions is at most
// as large as one partition's page, and following the pages shows each run once.
func TestMergedRunsAreBounded(t *testing.T) {
	const mostBytes = 3<<20 + 4<<10 // a page, and what its messages and tokens add
	for name, c := range map[string]struct{ partitions, runs, errorBytes, size, pages int }{
		"small runs":                           {6, 100, 10, 60, 10},
		"fewer runs asked for than partitions": {6, 3, 10, 1, 3},
		"long errors":                          {6, 40, 60 << 10, 1000, 6},
		"one partition's page is full":         {2, 120, 60 << 10, 1000, 6},
		"very long errors":                     {24, 2, 1 << 20, 1000, 24},
		"each is a page of its own":            {3, 2, 4 << 20, 1000, 6},
	} {
		t.Run(name, func(t *testing.T) {
			of := partitionRuns{}
			for i := range c.partitions {
				partition := fmt.Sprint("u", i)
				for k := range c.runs {
					of[partition] = append(of[partition], &apiv1.Run{
						Id: fmt.Sprintf("%s-%d", partition, k), State: "failed", Error: strings.Repeat("e", c.errorBytes),
						PlannedAt: timestamppb.New(time.Unix(int64(1_000_000-k), 0)),
					})
				}
			}
			partitions := slices.Sorted(maps.Keys(of))
			seen, pages := map[string]int{}, 0
			for token := ""; pages == 0 || token != ""; pages++ {
				from, err := parsePartitionTokens(token, partitions)
				if err != nil {
					t.Fatal(err)
				}
				page, err := mergeRuns(partitions, from, c.size, of.ask)
				if err != nil {
					t.Fatal(err)
				}
				if n := proto.Size(page); n > mostBytes && len(page.Runs) > 1 {
					t.Errorf("a page of %d runs has %d bytes", len(page.Runs), n)
				}
				if len(page.Runs) == 0 {
					t.Fatal("a page has nothing, and the list goes on")
				}
				for _, r := range page.Runs {
					seen[r.Id]++
				}
				token = page.NextPageToken
			}
			if len(seen) != c.partitions*c.runs {
				t.Errorf("%d runs were shown of %d", len(seen), c.partitions*c.runs)
			}
			for id, n := range seen {
				if n > 1 {
					t.Errorf("%s was shown %d times", id, n)
				}
			}
			if pages > 2*c.pages {
				t.Errorf("it took %d pages, %d would do", pages, c.pages)
			}
		})
	}
}
