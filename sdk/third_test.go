package sdk_test

import (
	"testing"
	"testing/synctest"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestThirdServer uses one server that refuses connections, and one that accepts them and
// stays silent for longer than the first one rests. The first call must still reach the
// third server.
func TestThirdServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		a, stopA := w.serve(in, addressA)
		b, stopB := w.serve(in, addressB)
		_, stopC := w.serve(in, addressC)
		a.setRefuse(true)
		b.mute = true
		c := w.dial(t, bothServers+", http://"+addressC, sdk.Options{})
		c.Close() //nolint:errcheck // nothing is under way
		stopA()
		stopB()
		stopC()
	})
}
