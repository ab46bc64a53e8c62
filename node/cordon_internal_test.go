package node

import (
	"path/filepath"
	"testing"
)

// TestStoreCordon checks that a cordon is found by the next process, and its end too.
func TestStoreCordon(t *testing.T) {
	path := filepath.Join(t.TempDir(), cordonFile)
	for _, on := range []bool{false, true, true, false, false} {
		if err := storeCordon(path, on); err != nil {
			t.Fatal(err)
		}
		if got, err := cordoned(path); err != nil || got != on {
			t.Errorf("cordoned: %v, %v; want %v", got, err, on)
		}
	}
	if err := storeCordon(filepath.Join(path, "no", "directory"), true); err == nil {
		t.Error("a cordon that cannot be stored gave no error")
	}
}
