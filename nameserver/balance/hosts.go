package balance

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Seat is the unit that a host works for of several that are weighted; nil
// weights are equal. It is a function of the host and the units alone, so
// everybody comes to the same, and when a unit is added or weighs more, hosts
// move to it and between no others. "" when there is none.
func Seat(host string, units []string, weights []float64) string {
	best, most := "", math.Inf(-1)
	of := hash(offset, host)
	for i, u := range units {
		s := float64(lot(of, u))
		if weights != nil {
			w := weights[i]
			if !(w > 0) || math.IsInf(w, 1) {
				continue
			}
			s = w / -math.Log((s+0.5)/(1<<53)) // the largest wins, and each as often as it weighs
		}
		if best == "" || s > most || s == most && u < best {
			best, most = u, s
		}
	}
	return best
}

// Seats are the n units that a host works for of several that weigh the same,
// the one of [Seat] first. Of n-1 they are the same without the last.
func Seats(host string, units []string, n int) []string {
	of := hash(offset, host)
	all := slices.Clone(units)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(lot(of, b), lot(of, a)), strings.Compare(a, b))
	})
	return all[:min(max(n, 0), len(all))]
}

const offset = 14695981039346656037

// hash is FNV-1a.
func hash(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211
}

// lot is what a host draws for a unit, below 1<<53.
func lot(host uint64, unit string) uint64 {
	h := hash(host, unit)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9 // its low bits say little of the last letters
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return (h ^ h>>31) >> 11
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
