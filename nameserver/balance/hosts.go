package balance

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Seat is the unit that a host works for of several that are weighted; nil
// weights are equal. It is a function of the host and the units alone, so
// everybody comes to the same, and when a unit is added or weighs more, hosts
// move to it and between no others. "" when there is none.
func Seat(host string, units []string, weights []float64) string {
	best, most := "", math.Inf(-1)
	for i, u := range units {
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		if !(w > 0) || math.IsInf(w, 1) {
			continue
		}
		if s := draw(host, u, w); best == "" || s > most || s == most && u < best {
			best, most = u, s
		}
	}
	return best
}

// Seats are the n units that a host works for of several that weigh the same,
// the one of [Seat] first. Of n-1 they are the same without the last.
func Seats(host string, units []string, n int) []string {
	all := slices.Clone(units)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(-cmp.Compare(draw(host, a, 1), draw(host, b, 1)), cmp.Compare(a, b))
	})
	return all[:min(max(n, 0), len(all))]
}

// draw is the lot of a host for a unit: the largest wins, and each as often as it
// weighs.
func draw(host, unit string, weight float64) float64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, s := range [2]string{unit, host} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9 // its low bits say little of the last letters
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	u := (float64(h>>11) + 0.5) / (1 << 53) // above 0, below 1
	return weight / -math.Log(u)
}

// UnitsPerHost returns with how many of the units a host that serves all apps has
// sessions, when there are so many hosts: so few that a unit has MaxHosts of them
// or a little more, and one at least. 0: there are not so many, and each host has
// sessions with all.
func (c Config) UnitsPerHost(hosts, units int) int {
	c = c.withDefaults(0)
	if hosts <= c.MaxHosts {
		return 0
	}
	return min(max((units*c.MaxHosts+hosts-1)/hosts, 1), units)
}

// Attend is [Config.UnitsPerHost] with hysteresis: it becomes less at once, and
// more when that has been due for [Config.Merge]. since is when that began, zero
// when it is not due, and is to be given back.
func (c Config) Attend(is, hosts, units int, since, now time.Time) (n int, again time.Time) {
	n = c.UnitsPerHost(hosts, units)
	all := func(n int) int { return cmp.Or(n, units+1) } // 0 is the most
	if all(n) <= all(is) {
		return n, time.Time{}
	}
	if since.IsZero() {
		return is, now
	}
	if now.Sub(since) < c.withDefaults(0).Merge {
		return is, since
	}
	return n, time.Time{}
}

// parts returns over how many units an app is to be spread for its hosts.
func (c Config) parts(a *App) int {
	m := c.withDefaults(0).MaxHosts
	return max((a.Hosts+m-1)/m, 1)
}

// Divided reports whether the hosts of an app that is in several units each work
// for one of them; was says whether they do now.
func (c Config) Divided(hosts int, was bool) bool {
	m := c.withDefaults(0).MaxHosts
	return hosts > m || was && 2*hosts > m
}
