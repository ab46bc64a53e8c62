package balance

import (
	"slices"
	"testing"
	"time"
)

func threeServers() []Partition {
	return []Partition{
		{Name: "u0", Owner: "a", Rate: 100},
		{Name: "u1", Owner: "b", Rate: 10},
		{Name: "u2", Owner: "c", Rate: 10},
		{Name: "u3", Owner: "a", Rate: 10},
		{Name: "u4", Owner: "b", Rate: 5},
		{Name: "u5", Owner: "c", Rate: 20},
	}
}

func hot(rate float64) App {
	a := App{Name: "hot", Home: "u0"}
	for i := range a.At {
		a.At[i], a.Rates[i] = "u0", rate/Slots
	}
	return a
}

// share returns the number of slots and the rate of each partition.
func share(a App, at []string) map[string]float64 {
	sum := map[string]float64{}
	for i, u := range at {
		sum[u] += a.Rates[i]
	}
	return sum
}

func TestSpread(t *testing.T) {
	now := time.Unix(1e9, 0)
	cfg := Config{LeastRate: 50, Settle: 20 * time.Second, Merge: 10 * time.Minute}
	for _, tc := range []struct {
		name       string
		change     func(*App, *[]Partition)
		partitions []string // nil: no decision
	}{
		{"ten times hotter than the rest", func(*App, *[]Partition) {}, []string{"u0", "u2", "u4"}},
		{"too little to be hot", func(a *App, _ *[]Partition) { *a = hot(49) }, nil},
		{"a small part of all", func(a *App, u *[]Partition) { *a = hot(60); (*u)[1].Rate, (*u)[2].Rate = 1000, 1000 }, nil},
		{"it has been hot for a moment", func(a *App, _ *[]Partition) { a.Hot = now.Add(-4 * time.Second) }, nil},
		{"one job does nearly all", func(a *App, _ *[]Partition) { a.Rates = [Slots]float64{7: 61, 8: 20, 9: 19} }, nil},
		{"one job does half", func(a *App, _ *[]Partition) { a.Rates = [Slots]float64{7: 50, 8: 30, 9: 20} }, []string{"u0", "u2", "u4"}},
		{"one job does nearly all, for very many hosts", func(a *App, _ *[]Partition) { a.Rates, a.Hosts = [Slots]float64{7: 100}, 250 }, []string{"u0", "u2", "u4"}},
		{"there is one server", func(_ *App, u *[]Partition) {
			for i := range *u {
				(*u)[i].Owner = "a"
			}
		}, nil},
		{"one server is drained", func(_ *App, u *[]Partition) { (*u)[1].Draining, (*u)[4].Draining = true, true }, []string{"u0", "u2"}},
		{"a unit is free", func(_ *App, u *[]Partition) { (*u)[4].Owner = "" }, []string{"u0", "u1", "u2"}},
		{"a person has decided", func(a *App, _ *[]Partition) { a.ByHand = true }, nil},
		{"it was decided a moment ago", func(a *App, _ *[]Partition) { a.Since = now.Add(-5 * time.Second) }, nil},
		{"it is spread already", func(a *App, _ *[]Partition) { a.Desired = Place(a, []string{"u0", "u2", "u4"}) }, nil},
		{"it is spread over fewer", func(a *App, _ *[]Partition) { a.Desired = Place(a, []string{"u0", "u2"}) }, []string{"u0", "u2", "u4"}},
		{"it has been small for long", func(a *App, _ *[]Partition) {
			*a = hot(1)
			a.Desired, a.Small = Place(a, []string{"u0", "u2"}), now.Add(-11*time.Minute)
		}, []string{"u0"}},
		{"it has been small for a while", func(a *App, _ *[]Partition) {
			*a = hot(1)
			a.Desired, a.Small = Place(a, []string{"u0", "u2"}), now.Add(-9*time.Minute)
		}, nil},
		{"it is at home and small", func(a *App, _ *[]Partition) { *a = hot(1); a.Small = now.Add(-time.Hour) }, nil},
	} {
		a, partitions := hot(100), threeServers()
		tc.change(&a, &partitions)
		if !cfg.Hot(&a, partitions) {
			a.Hot = time.Time{}
		} else if a.Hot.IsZero() {
			a.Hot = now.Add(-time.Minute)
		}
		at := Spread(cfg, []App{a}, partitions, now)["hot"]
		var used []string
		for u := range share(a, at) {
			used = append(used, u)
		}
		slices.Sort(used)
		if !slices.Equal(used, tc.partitions) {
			t.Errorf("%s: it is spread over %v, want %v", tc.name, used, tc.partitions)
		}
		if at != nil && (len(at) != Slots || at[0] != "u0") {
			t.Errorf("%s: %v", tc.name, at)
		}
	}
}

// TestSmall: the load that splits an app is twice the load that keeps it split.
func TestSmall(t *testing.T) {
	cfg := Config{LeastRate: 50}
	for rate, small := range map[float64]bool{100: false, 49: false, 26: false, 24: true, 0: true} {
		if a := hot(rate); cfg.Small(&a, []Partition{{Name: "u0", Owner: "a", Rate: rate}, {Name: "u1", Owner: "b"}}) != small {
			t.Errorf("an app with %v a second is small: %v", rate, !small)
		}
	}
}

// TestPlace: the rates of partitions are nearly even, however the rate is spread over
// slots, and nothing moves when placements are equally good.
func TestPlace(t *testing.T) {
	partitions := []string{"u0", "u1", "u2"}
	for _, rates := range [][Slots]float64{
		{}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {9, 8, 7, 6, 5, 4, 3, 2, 1}, {0, 30, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
	} {
		a := hot(0)
		a.Rates = rates
		at := Place(&a, partitions)
		n, most, least, largest := map[string]int{}, 0.0, 1e9, slices.Max(rates[:])
		for _, u := range at {
			n[u]++
		}
		for _, u := range partitions {
			most, least = max(most, share(a, at)[u]), min(least, share(a, at)[u])
		}
		if most-least > largest || len(n) != 3 {
			t.Errorf("%v: %v", rates, share(a, at))
		}
		copy(a.At[:], at)
		if again := Place(&a, partitions); !slices.Equal(again, at) {
			t.Errorf("%v: what is as good moves: %v, %v", rates, at, again)
		}
	}
}
