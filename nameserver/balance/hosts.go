package balance

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Assign returns the partition, out of several with weights, that a host is assigned to, or
// "" without any. Nil weights are equal. The result depends on the host and the
// partitions alone, so every process computes the same. A partition that is added or gets
// more weight takes hosts from the others; no host moves between the others.
func Assign(host string, partitions []string, weights []float64) string {
	best, most := "", math.Inf(-1)
	of := hash(offset, host)
	for i, u := range partitions {
		s := float64(lot(of, u))
		if weights != nil {
			w := weights[i]
			if !(w > 0) || math.IsInf(w, 1) {
				continue
			}
			s = w / -math.Log((s+0.5)/(1<<53)) // the largest score wins, and each partition wins in proportion to its weight
		}
		if best == "" || s > most || s == most && u < best {
			best, most = u, s
		}
	}
	return best
}

// AssignSeveral returns the n partitions, out of several of equal weight, that a host is assigned
// to, that of [Assign] first. A smaller n gives a prefix of the result for a larger one.
func AssignSeveral(host string, partitions []string, n int) []string {
	of := hash(offset, host)
	all := slices.Clone(partitions)
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

// lot returns the pseudo-random number of a host and a partition, below 1<<53.
func lot(host uint64, partition string) uint64 {
	h := hash(host, partition)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9 // the low bits of FNV-1a depend little on the last letters
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return (h ^ h>>31) >> 11
}

// UnitsPerHost returns the number of partitions with which a host that serves all apps
// has sessions, at least one. With that number, a partition has MaxHosts hosts or
// slightly more. 0 means that there are few hosts and each has sessions with all
// partitions.
func (c Config) UnitsPerHost(hosts, partitions int) int {
	c = c.withDefaults(0)
	if hosts <= c.MaxHosts {
		return 0
	}
	return min(max((partitions*c.MaxHosts+hosts-1)/hosts, 1), partitions)
}

// Attend is [Config.UnitsPerHost] with hysteresis. The number falls at once and rises
// after a rise has been due for [Config.Merge]. The caller passes the time since when a
// rise is due, zero for none, and keeps the returned one for the next call.
func (c Config) Attend(is, hosts, partitions int, since, now time.Time) (n int, again time.Time) {
	n = c.UnitsPerHost(hosts, partitions)
	all := func(n int) int { return cmp.Or(n, partitions+1) } // 0 means all
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

// parts returns the number of partitions that an app needs for its hosts.
func (c Config) parts(a *App) int {
	m := c.withDefaults(0).MaxHosts
	return max((a.Hosts+m-1)/m, 1)
}

// Divided reports whether each host of an app in several partitions works for only one of
// them. was is the present answer, for the hysteresis.
func (c Config) Divided(hosts int, was bool) bool {
	m := c.withDefaults(0).MaxHosts
	return hosts > m || was && 2*hosts > m
}
