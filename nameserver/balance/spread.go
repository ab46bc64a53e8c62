package balance

import (
	"cmp"
	"slices"
	"time"
)

// Unit is a group of apps with one owner, which moves as a whole.
type Unit struct {
	Name     string
	Server   string  // that owns it; "": nobody does
	Draining bool    // its server is to own nothing
	Rate     float64 // schedules a second
	Hosts    int     // that work for it
}

// App is an app whose slots are in units.
type App struct {
	Name  string
	Home  string         // the unit where it began: its first slot stays there
	At    [Slots]string  // the unit of each slot
	Rates [Slots]float64 // schedules a second
	Hosts int            // that serve it by name
	// Wish is where the slots are to be, nil while nobody has said so; ByHand says
	// that a person did, and then it stays.
	Wish   []string
	ByHand bool
	Since  time.Time // the wish is what it is; zero: for long
	Hot    time.Time // it is hot since then, as [Config.Hot] says; zero: it is not
	Small  time.Time // it has been small since then; zero: it is not
}

// Rate is the sum of the rates of the app's slots.
func (a *App) Rate() (sum float64) {
	for _, r := range a.Rates {
		sum += r
	}
	return sum
}

// Hot reports whether an app is to be spread over units of all servers: it does more
// than LeastRate, and more than HotShare of what one of them should have, and to
// spread it helps. One whose work is that of one or two jobs would have one busy unit
// as before, and commands on their way to several.
func (c Config) Hot(a *App, units []Unit) bool {
	servers := serversOf(units)
	return c.hot(a, total(units), servers, 1) && busiest(a, Place(a, Choose(a.Home, units, servers))) <= mostKept*a.Rate()
}

// hot reports whether an app does more than a part of LeastRate and of HotShare.
func (c Config) hot(a *App, total float64, servers int, part float64) bool {
	c = c.withDefaults(servers)
	r := a.Rate()
	return servers > 1 && r >= part*c.LeastRate && r > part*c.HotShare*total/float64(servers)
}

// Small reports whether an app that is split need not be: it is below half of
// what would split it.
func (c Config) Small(a *App, units []Unit) bool {
	return !c.hot(a, total(units), serversOf(units), 0.5) && !c.Divided(a.Hosts, true)
}

func total(units []Unit) (sum float64) {
	for _, u := range units {
		sum += u.Rate
	}
	return sum
}

func serversOf(units []Unit) int {
	seen := map[string]bool{}
	for _, u := range units {
		if u.Server != "" && !u.Draining {
			seen[u.Server] = true
		}
	}
	return len(seen)
}

// Spread returns for apps that are too hot for one unit, or have too many hosts,
// or not any more, where their slots are to be from now on. One that has been hot for
// [Config].Lasts gets one unit of each server, one with many hosts a unit for every
// [Config].MaxHosts, of as many servers as there are; one that has been small for [Config].Merge goes home. What was decided stays for
// [Config].Settle, and what a person decided stays.
func Spread(cfg Config, apps []App, units []Unit, now time.Time) map[string][]string {
	servers := serversOf(units)
	c := cfg.withDefaults(servers)
	out := map[string][]string{}
	apps = slices.Clone(apps)
	slices.SortFunc(apps, func(a, b App) int { return cmp.Compare(a.Name, b.Name) })
	for i := range apps {
		a := &apps[i]
		if a.ByHand || a.Home == "" || now.Sub(a.Since) < c.Settle {
			continue
		}
		over := wished(a)
		want := min(cfg.parts(a), len(units), servers)
		if !a.Hot.IsZero() && now.Sub(a.Hot) >= c.Lasts {
			want = max(want, servers)
		}
		switch {
		case len(over) < want:
			to := Choose(a.Home, units, want)
			if len(to) > len(over) {
				out[a.Name] = Place(a, to)
			}
		case len(over) > 1 && !a.Small.IsZero() && now.Sub(a.Small) >= c.Merge:
			out[a.Name] = Place(a, []string{a.Home})
		}
	}
	return out
}

// mostKept is the part of an app's rate that one unit may have afterwards for a split to help.
const mostKept = 0.6

// busiest is the rate of the unit that does most of an app whose slots are there.
func busiest(a *App, at []string) (most float64) {
	rates := map[string]float64{}
	for i, u := range at {
		rates[u] += a.Rates[i]
		most = max(most, rates[u])
	}
	return most
}

// wished returns the units that an app is to be in, or is in, each once.
func wished(a *App) []string {
	units := slices.Clone(a.Wish)
	if len(units) != Slots {
		units = a.At[:]
	}
	units = slices.Clone(units)
	slices.Sort(units)
	return slices.Compact(units)
}

func (u *Unit) count() float64 { return u.Rate + Config{}.withDefaults(0).HostCost*float64(u.Hosts) }

// Choose returns up to n units for an app, home first: of different servers as
// far as there are, and of each server the one that does least. A host counts
// what it costs beside a schedule.
func Choose(home string, units []Unit, n int) []string {
	chosen := []string{home}
	used := map[string]int{} // units by server
	for _, u := range units {
		if u.Name == home && u.Server != "" {
			used[u.Server]++
		}
	}
	for len(chosen) < n {
		var best *Unit
		for i := range units {
			u := &units[i]
			if u.Server == "" || u.Draining || slices.Contains(chosen, u.Name) {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(used[u.Server], used[best.Server]), cmp.Compare(u.count(), best.count()), cmp.Compare(u.Name, best.Name)) < 0 {
				best = u
			}
		}
		if best == nil {
			break
		}
		used[best.Server]++
		chosen = append(chosen, best.Name)
	}
	return chosen
}

// Place divides the slots of an app over units, of which home is one: by rate,
// then by number. The first slot stays at home, and others where they are when
// that is as good.
func Place(a *App, units []string) []string {
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
		for _, u := range units {
			if best == "" || cmp.Or(
				cmp.Compare(rate[u], rate[best]), cmp.Compare(n[u], n[best]), // the least
				cmp.Compare(away(a, i, u), away(a, i, best)), cmp.Compare(slices.Index(units, u), slices.Index(units, best))) < 0 {
				best = u
			}
		}
		at[i] = best
		rate[best] += a.Rates[i]
		n[best]++
	}
	return at
}

// away is 1 when a slot would have to move to be in a unit.
func away(a *App, slot int, unit string) int {
	if a.At[slot] == unit {
		return 0
	}
	return 1
}
