package node

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

// TestCallsWaitForTheTable: a server that has just started does not look for apps in the
// fallback partition before it knows where the apps are.
func TestCallsWaitForTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{view: newClusterView(nil, "main", "s", "127.0.0.1:1", slog.New(slog.DiscardHandler)), units: map[string]*unit{"main": nil, "main.1": {}}}
		r.view.units = []string{"main", "main.1"}
		if unit, err := r.unitOf(t.Context(), "a", false); status.Code(err) != codes.Unavailable {
			t.Errorf("without the table the app is in %q: %v", unit, err)
		}
		type answer struct {
			unit string
			err  error
		}
		got := make(chan answer, 1)
		go func() {
			unit, err := r.unitOf(t.Context(), "a", false)
			got <- answer{unit, err}
		}()
		synctest.Wait()
		r.view.hear([]etcd.Fact{{Key: rowApp + "a", Value: "main.1"}}, true)
		if a := <-got; a != (answer{"main.1", nil}) {
			t.Errorf("with the table the app is in %q: %v", a.unit, a.err)
		}
		if unit, err := r.unitOf(t.Context(), "nowhere", false); unit != "main" || err != nil {
			t.Errorf("an app that is nowhere is in %q: %v", unit, err)
		}
	})
}
