package digest

import (
	"crypto/sha256"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestSum256 compares it with the one it stands for, from several goroutines, since
// they take turns with what it keeps.
func TestSum256(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for n := range 300 {
				b := make([]byte, n)
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				if got, want := Sum256(b), sha256.Sum256(b); got != want {
					t.Errorf("%d bytes: %x, want %x", n, got, want)
				}
			}
		})
	}
	wg.Wait()
}
