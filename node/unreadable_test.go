package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestListsTellOfDamagedHistory: a list skips a block of the history that was damaged
// while the server works, and reports that to the client.
func TestListsTellOfDamagedHistory(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := dev(t, node.DevConfig{Data: data})
	c := client(t, p, p.Token)
	l := &remembered{}
	list := func(c *sdk.Client) (runs, told int) {
		t.Helper()
		q := sdk.RunQuery{Unreadable: func(blocks int) { told += blocks }}
		for _, err := range c.Runs(within(t), q) {
			if err != nil {
				t.Fatal(err)
			}
			runs++
		}
		return runs, told
	}
	// Each list writes the runs that ended before it as a block.
	l.fill(t, c, "default", 3)
	if runs, told := list(c); runs != 3 || told != 0 {
		t.Fatalf("%d runs, and %d blocks cannot be read", runs, told)
	}
	for i := range 3 {
		a, err := c.Trigger(within(t), sdk.Trigger{Job: l.runs[i].job})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.Wait(within(t), "", a.RunID); err != nil || r.State != "succeeded" {
			t.Fatal(r, err)
		}
	}
	if runs, told := list(c); runs != 6 || told != 0 {
		t.Fatalf("%d runs, and %d blocks cannot be read", runs, told)
	}
	f, err := os.OpenFile(filepath.Join(data, "store", "history", "00000000000000000000.seg"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test's
	const inFirstBlock = 100
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, inFirstBlock); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, inFirstBlock); err != nil {
		t.Fatal(err)
	}
	runs, told := list(c)
	if told == 0 || runs == 0 || runs >= 6 {
		t.Errorf("%d runs of 6 are listed, and the client is told of %d damaged blocks", runs, told)
	}
}
