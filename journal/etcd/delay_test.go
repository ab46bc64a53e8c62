package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/journal"
)

// TestCommitDelay: after a transaction of many records, the next one waits until as many
// records are staged, for at most a third of the time of the transaction and at most a
// millisecond. After a transaction of few records it does not wait.
func TestCommitDelay(t *testing.T) {
	const took = 1500 * time.Microsecond
	for _, tc := range []struct {
		name    string
		carried int
		back    []time.Duration // when each record is staged
		took    time.Duration
		want    time.Duration
	}{
		{"few records", 7, nil, took, 0},
		{"none comes", 8, nil, took, took / 3},
		{"none comes, and etcd is slow", 8, nil, time.Second, time.Millisecond},
		{"all are there", 8, make([]time.Duration, 8), took, 0},
		{"all come", 8, []time.Duration{0, 0, 0, 1, 2, 3, 4, 200 * time.Microsecond}, took, 200 * time.Microsecond},
		{"not all come", 9, []time.Duration{0, 0, 0, 1, 2, 3, 4, 200 * time.Microsecond}, took, took / 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := &Cluster{ctx: ctx, kick: make(chan struct{}, 1)}
				first, second := &Journal{c: c, next: 1, end: head{next: 1}}, &Journal{c: c, next: 1, end: head{next: 1}}
				c.journals = []*Journal{first, second}
				record := []journal.Record{{Slot: journal.Slot{App: "app"}, Body: []byte("body")}}
				for range tc.carried {
					if _, err := first.Append(record, func(error) {}); err != nil {
						t.Fatal(err)
					}
				}
				pending := c.gather()
				pending[0].j.wrote(pending[0])
				for i, after := range tc.back {
					j := c.journals[i%2]
					time.AfterFunc(after, func() {
						if _, err := j.Append(record, func(error) {}); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				begin := time.Now()
				c.delayCommit(pending, tc.took)
				if waited := time.Since(begin); waited != tc.want {
					t.Errorf("it waited for %v, want %v", waited, tc.want)
				}
			})
		})
	}
}
