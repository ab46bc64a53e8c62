package node

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

// TestCallsWaitForTheTable: a server that has just started does not look for apps in the
// fallback partition before it knows where the apps are.
func TestCallsWaitForTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router.Router{View: cluster.NewView(nil, "main", "s", "127.0.0.1:1", slog.New(slog.DiscardHandler)), Partitions: map[string]router.Hosted{"main": &partition{}, "main.1": &partition{}}}
		r.View.Partitions = []string{"main", "main.1"}
		if partition, err := r.PartitionOf(t.Context(), "a", false); status.Code(err) != codes.Unavailable {
			t.Errorf("without the table the app is in %q: %v", partition, err)
		}
		type answer struct {
			partition string
			err       error
		}
		got := make(chan answer, 1)
		go func() {
			partition, err := r.PartitionOf(t.Context(), "a", false)
			got <- answer{partition, err}
		}()
		synctest.Wait()
		r.View.Hear([]etcd.Fact{{Key: cluster.RowApp + "a", Value: "main.1"}}, true)
		if a := <-got; a != (answer{"main.1", nil}) {
			t.Errorf("with the table the app is in %q: %v", a.partition, a.err)
		}
		if partition, err := r.PartitionOf(t.Context(), "nowhere", false); partition != "main" || err != nil {
			t.Errorf("an app that is nowhere is in %q: %v", partition, err)
		}
	})
}
