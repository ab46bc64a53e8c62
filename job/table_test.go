package job

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestTableIsLikeAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		want := map[string]*Job{}
		var got Jobs
		names := 1 + r.IntN(300)
		for range 3000 {
			name := fmt.Sprint("job ", r.IntN(names))
			switch {
			case want[name] == nil && r.IntN(3) > 0:
				j := &Job{kind: &kind{}}
				j.write(name, nil)
				want[name] = j
				got.put(j)
			case r.IntN(2) == 0:
				delete(want, name)
				got.remove(name)
			}
			if j := want[name]; j != nil && got.At(j.Number()) != j {
				t.Fatalf("seed %d: number %d of %s is %p, want %p", seed, j.Number(), name, got.At(j.Number()), j)
			}
			if got.Get(name) != want[name] || got.Len() != len(want) {
				t.Fatalf("seed %d: %s is %p of %d, want %p of %d", seed, name, got.Get(name), got.Len(), want[name], len(want))
			}
		}
		seen := map[*Job]bool{}
		for j := range got.All() {
			if seen[j] || want[j.Name()] != j {
				t.Fatalf("seed %d: %s comes twice, or was removed", seed, j.Name())
			}
			seen[j] = true
		}
		for name, j := range want {
			if got.At(j.Number()) != j {
				t.Fatalf("seed %d: the number of %s is another's", seed, name)
			}
			if got.Get(name) != j || !seen[j] {
				t.Fatalf("seed %d: %s is lost", seed, name)
			}
		}
	}
}
