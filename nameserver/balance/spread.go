package balance

import (
	"cmp"
	"slices"
	"time"
)

// Slots is the number of slots of an app.
const Slots = 16

// App is an app and the partitions of its slots.
type App struct {
	Name  string
	Home  string         // its primary partition; the first slot stays there
	At    [Slots]string  // partition of each slot
	Rates [Slots]float64 // schedules a second
	Hosts int            // hosts that serve the app by name
	// Desired is the desired partition of each slot, nil if none was decided. ByHand means
	// that an operator decided it; such a placement stays.
	Desired []string
	ByHand  bool
	Since   time.Time // time of the last change of Desired; zero: long ago
	Hot     time.Time // time since when the app is hot in the sense of [Config.Hot]; zero: it is not
	Small   time.Time // time since when the app is small; zero: it is not
}

// Rate returns the sum of the rates of the slots.
func (a *App) Rate() (sum float64) {
	for _, r := range a.Rates {
		sum += r
	}
	return sum
}

// Hot reports whether an app should be spread over partitions of all servers: it exceeds
// LeastRate and HotShare of the even load, and a spread helps. A spread does not help an
// app whose work is in one or two jobs: one partition would be as busy as before, and
// commands would go to several.
func (c Config) Hot(a *App, partitions []Partition) bool {
	servers := serversOf(partitions)
	return c.hot(a, total(partitions), servers, 1) && busiest(a, Place(a, Choose(a.Home, partitions, servers))) <= mostKept*a.Rate()
}

// hot reports whether an app exceeds the given part of LeastRate and of HotShare.
func (c Config) hot(a *App, total float64, servers int, part float64) bool {
	c = c.withDefaults(servers)
	r := a.Rate()
	return servers > 1 && r >= part*c.LeastRate && r > part*c.HotShare*total/float64(servers)
}

// Small reports whether a split app can be merged: it is below half of the limits that
// split it.
func (c Config) Small(a *App, partitions []Partition) bool {
	return !c.hot(a, total(partitions), serversOf(partitions), 0.5) && !c.Divided(a.Hosts, true)
}

func total(partitions []Partition) (sum float64) {
	for _, u := range partitions {
		sum += u.Rate
	}
	return sum
}

func serversOf(partitions []Partition) int {
	seen := map[string]bool{}
	for _, u := range partitions {
		if u.Owner != "" && !u.Draining {
			seen[u.Owner] = true
		}
	}
	return len(seen)
}

// Spread returns new placements, by app, for apps that are too hot, have too many hosts,
// or have become small. An app that has been hot for [Config].Lasts gets one partition of
// each server. An app with many hosts gets one partition for every [Config].MaxHosts, on
// different servers and on no more than exist. An app that has been small for
// [Config].Merge returns to its primary partition. A placement stays for at least
// [Config].Settle, and an operator's placement stays until the operator changes it.
func Spread(cfg Config, apps []App, partitions []Partition, now time.Time) map[string][]string {
	servers := serversOf(partitions)
	c := cfg.withDefaults(servers)
	out := map[string][]string{}
	apps = slices.Clone(apps)
	slices.SortFunc(apps, func(a, b App) int { return cmp.Compare(a.Name, b.Name) })
	for i := range apps {
		a := &apps[i]
		if a.ByHand || a.Home == "" || now.Sub(a.Since) < c.Settle {
			continue
		}
		over := targetPartitions(a)
		want := min(cfg.parts(a), len(partitions), servers)
		if !a.Hot.IsZero() && now.Sub(a.Hot) >= c.Lasts {
			want = max(want, servers)
		}
		switch {
		case len(over) < want:
			to := Choose(a.Home, partitions, want)
			if len(to) > len(over) {
				out[a.Name] = Place(a, to)
			}
		case len(over) > 1 && !a.Small.IsZero() && now.Sub(a.Small) >= c.Merge:
			out[a.Name] = Place(a, []string{a.Home})
		}
	}
	return out
}

// mostKept is the largest share of an app's rate that one partition may have after a
// split; with more, the split does not help.
const mostKept = 0.6

// busiest returns the rate of the partition with the most work of an app that is placed
// like at.
func busiest(a *App, at []string) (most float64) {
	rates := map[string]float64{}
	for i, u := range at {
		rates[u] += a.Rates[i]
		most = max(most, rates[u])
	}
	return most
}

// targetPartitions returns the partitions of the desired or, without one, of the present placement,
// each once.
func targetPartitions(a *App) []string {
	partitions := slices.Clone(a.Desired)
	if len(partitions) != Slots {
		partitions = a.At[:]
	}
	partitions = slices.Clone(partitions)
	slices.Sort(partitions)
	return slices.Compact(partitions)
}

func (u *Partition) count() float64 {
	return u.Rate + Config{}.withDefaults(0).HostCost*float64(u.Hosts)
}

// Choose returns up to n partitions for an app, home first. It prefers different servers
// and takes the partition with the least load of each server. A host counts as its cost
// in schedules.
func Choose(home string, partitions []Partition, n int) []string {
	chosen := []string{home}
	used := map[string]int{} // partitions by server
	for _, u := range partitions {
		if u.Name == home && u.Owner != "" {
			used[u.Owner]++
		}
	}
	for len(chosen) < n {
		var best *Partition
		for i := range partitions {
			u := &partitions[i]
			if u.Owner == "" || u.Draining || slices.Contains(chosen, u.Name) {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(used[u.Owner], used[best.Owner]), cmp.Compare(u.count(), best.count()), cmp.Compare(u.Name, best.Name)) < 0 {
				best = u
			}
		}
		if best == nil {
			break
		}
		used[best.Owner]++
		chosen = append(chosen, best.Name)
	}
	return chosen
}

// Place divides the slots of an app over partitions, which include the primary one: by
// rate, then by number. The first slot stays in the primary partition. Others stay where
// they are if that is as good.
func Place(a *App, partitions []string) []string {
	at := make([]string, Slots)
	at[0] = a.Home
	rate, n := map[string]float64{a.Home: a.Rates[0]}, map[string]int{a.Home: 1}
	order := make([]int, 0, Slots-1)
	for i := 1; i < Slots; i++ {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(x, y int) int { return -cmp.Compare(a.Rates[x], a.Rates[y]) })
	for _, i := range order {
		best := ""
		for _, u := range partitions {
			if best == "" || cmp.Or(
				cmp.Compare(rate[u], rate[best]), cmp.Compare(n[u], n[best]), // the least loaded
				cmp.Compare(away(a, i, u), away(a, i, best)), cmp.Compare(slices.Index(partitions, u), slices.Index(partitions, best))) < 0 {
				best = u
			}
		}
		at[i] = best
		rate[best] += a.Rates[i]
		n[best]++
	}
	return at
}

// away returns 1 if a slot must move to be in a partition.
func away(a *App, slot int, partition string) int {
	if a.At[slot] == partition {
		return 0
	}
	return 1
}
