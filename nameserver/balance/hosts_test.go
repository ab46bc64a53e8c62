package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func partitionNames(n int) (partitions []string) {
	for i := range n {
		partitions = append(partitions, fmt.Sprint("u", i))
	}
	return partitions
}

// TestSeat: hosts are spread evenly over partitions, or by weight. An added partition
// takes its share from all others, and no other host moves. A partition with an invalid
// weight gets no hosts.
func TestAssign(t *testing.T) {
	const hosts = 20_000
	partitions := partitionNames(6)
	count := func(partitions []string, weights []float64) map[string]int {
		n := map[string]int{}
		for i := range hosts {
			n[Assign(fmt.Sprint("host-", i), partitions, weights)]++
		}
		return n
	}
	for u, n := range count(partitions, nil) {
		if even := hosts / 6; n < even*9/10 || n > even*11/10 {
			t.Errorf("%s has %d of %d hosts", u, n, hosts)
		}
	}
	weights := []float64{1, 2, 0, math.NaN(), 1, -1}
	n := count(partitions, weights)
	if n["u2"]+n["u3"]+n["u5"] != 0 || n["u1"] < hosts*45/100 || n["u1"] > hosts*55/100 {
		t.Errorf("weights %v give %v", weights, n)
	}
	if got := Assign("h", nil, nil); got != "" {
		t.Errorf("of no units %q", got)
	}
	more, moved := append(slices.Clone(partitions), "u6"), 0
	for i := range hosts {
		host := fmt.Sprint("host-", i)
		was, is := Assign(host, partitions, nil), Assign(host, more, nil)
		if was == is {
			continue
		}
		if moved++; is != "u6" {
			t.Fatalf("%s goes from %s to %s because u6 was added", host, was, is)
		}
	}
	if moved < hosts/7*9/10 || moved > hosts/7*11/10 {
		t.Errorf("a seventh unit gets %d of %d hosts", moved, hosts)
	}
}

// TestSeats: a smaller number of partitions is a subset of a larger one, whatever their
// order, and the first is that of Assign.
func TestAssigns(t *testing.T) {
	partitions := partitionNames(6)
	other := slices.Clone(partitions)
	slices.Reverse(other)
	for i := range 1000 {
		host := fmt.Sprint("host-", i)
		last := AssignSeveral(host, partitions, 9)
		if len(last) != 6 || last[0] != Assign(host, partitions, nil) || !slices.Equal(AssignSeveral(host, other, 6), last) || len(AssignSeveral(host, partitions, -1)) != 0 {
			t.Fatalf("%s: %v", host, last)
		}
		for n := range 7 {
			if got := AssignSeveral(host, partitions, n); !slices.Equal(got, last[:n]) {
				t.Fatalf("%s: %d are %v, all %v", host, n, got, last)
			}
		}
	}
}

func TestUnitsPerHost(t *testing.T) {
	for _, tc := range []struct{ most, hosts, partitions, want int }{
		{100, 0, 6, 0},
		{100, 100, 6, 0},
		{100, 101, 6, 6},
		{100, 121, 6, 5},
		{100, 300, 6, 2},
		{100, 599, 6, 2},
		{100, 600, 6, 1},
		{100, 10_000, 6, 1},
		{2, 3, 3, 2},
		{2, 6, 3, 1},
		{0, 100, 6, 0},
		{0, 1000, 6, 1},
		{math.MaxInt32, 1_000_000, 6, 0},
	} {
		got := Config{MaxHosts: tc.most}.UnitsPerHost(tc.hosts, tc.partitions)
		if got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
		if of := tc.hosts * got / tc.partitions; got > 0 && tc.most < 1000 && of > max(tc.most, 100)+tc.hosts/tc.partitions {
			t.Errorf("%+v: a unit has %d hosts", tc, of)
		}
	}
}

// TestAttend: the number falls at once and rises after a while.
func TestAttend(t *testing.T) {
	cfg, now := Config{MaxHosts: 100, Merge: time.Minute}, time.Unix(1e9, 0)
	n, since := 0, time.Time{}
	look := func(hosts, want int) {
		t.Helper()
		if n, since = cfg.Attend(n, hosts, 6, since, now); n != want {
			t.Errorf("with %d hosts each works for %d, want %d", hosts, n, want)
		}
		now = now.Add(10 * time.Second)
	}
	look(100, 0)
	look(300, 2)
	look(900, 1)
	for range 6 {
		look(50, 1)
	}
	look(50, 0)
	look(900, 1)
	for range 5 {
		look(300, 1)
	}
	look(700, 1) // the time starts again
	for range 6 {
		look(300, 1)
	}
	look(300, 2)
	look(101, 2)
}

func TestDivided(t *testing.T) {
	cfg := Config{MaxHosts: 100}
	for hosts, want := range map[int][2]bool{0: {}, 50: {}, 51: {false, true}, 100: {false, true}, 101: {true, true}} {
		if got := [2]bool{cfg.Divided(hosts, false), cfg.Divided(hosts, true)}; got != want {
			t.Errorf("%d hosts: %v", hosts, got)
		}
	}
}

// TestSpreadByHosts: an app with many hosts gets the partitions it needs, on different
// servers. It returns to its primary partition after it has had few hosts for long.
func TestSpreadByHosts(t *testing.T) {
	now := time.Unix(1e9, 0)
	cfg := Config{LeastRate: math.Inf(1), MaxHosts: 100, Settle: 20 * time.Second, Merge: 10 * time.Minute}
	for _, tc := range []struct {
		hosts   int
		desired []string
		small   time.Duration
		want    int // number of partitions; 0: no decision
	}{
		{hosts: 100},
		{hosts: 101, want: 2},
		{hosts: 250, want: 3},
		{hosts: 10_000, want: 3},
		{hosts: 101, desired: []string{"u0", "u2"}},
		{hosts: 201, desired: []string{"u0", "u2"}, want: 3},
		{hosts: 40, desired: []string{"u0", "u2"}, small: 9 * time.Minute},
		{hosts: 40, desired: []string{"u0", "u2"}, small: 10 * time.Minute, want: 1},
	} {
		a, partitions := hot(100), threeServers()
		a.Hosts = tc.hosts
		if tc.desired != nil {
			a.Desired = Place(&a, tc.desired)
		}
		if tc.small > 0 {
			a.Small = now.Add(-tc.small)
		}
		at := Spread(cfg, []App{a}, partitions, now)["hot"]
		used := map[string]bool{}
		for u := range share(a, at) {
			used[partitions[u[1]-'0'].Owner] = true
		}
		if len(used) != tc.want || tc.want > 0 && at[0] != "u0" {
			t.Errorf("%+v: %v", tc, at)
		}
		if small := cfg.Small(&a, partitions); small != (tc.hosts <= 50) {
			t.Errorf("%+v: it is small: %v", tc, small)
		}
	}
}

// TestHostsSimulation has a thousand servers with one partition each and a million hosts.
// Half of the hosts serve all apps, half serve apps by name, with skew. No server has
// more than a quarter above the even number.
func TestHostsSimulation(t *testing.T) {
	const servers, hosts = 1000, 1_000_000
	const every = 4 // one host out of so many equal ones is sampled and counts for all of them
	cfg := Config{}
	rng := rand.New(rand.NewPCG(1, 2))
	var partitions []Partition
	names := partitionNames(servers)
	for i, name := range names {
		partitions = append(partitions, Partition{Name: name, Owner: fmt.Sprint("s", i)})
	}
	if n := cfg.UnitsPerHost(hosts, servers); n != 1 {
		t.Fatalf("of %d units a host works for %d", servers, n)
	}
	n := make([]int, servers)
	at := map[string]int{}
	for i, name := range names {
		at[name] = i
	}
	for i := 0; i < hosts/2; i += every {
		n[at[Assign(fmt.Sprint("any-", i), names, nil)]] += every
	}
	now := time.Unix(1e9, 0)
	left := hosts / 2
	for app := 0; left > 0; app++ {
		of := min(left, max(10, int(8000/math.Pow(float64(app+1), 0.5)))) // an app has 16 slots, which limits its partitions
		left -= of
		for i := range partitions {
			partitions[i].Hosts = n[i]
		}
		a := App{Name: fmt.Sprint("app", app), Home: names[rng.IntN(servers)], Hosts: of}
		for best := range partitions { // an app starts in the partition with the least load
			if partitions[best].Hosts < partitions[at[a.Home]].Hosts {
				a.Home = names[best]
			}
		}
		for i := range a.At {
			a.At[i] = a.Home
		}
		over := []string{a.Home}
		if desired, ok := Spread(cfg, []App{a}, partitions, now)[a.Name]; ok {
			a.Desired = desired
			over = targetPartitions(&a)
		}
		if of > 100 && len(over) < min((of+99)/100, Slots) {
			t.Fatalf("an app with %d hosts is in %d units", of, len(over))
		}
		var weights []float64
		for _, u := range over {
			slots := 0
			for _, x := range a.Desired {
				if x == u {
					slots++
				}
			}
			weights = append(weights, max(float64(slots), 1))
		}
		step := 1
		if of >= 100*every {
			step = every
		}
		for i := 0; i < of; i += step {
			n[at[Assign(fmt.Sprint(app, "-", i), over, weights)]] += min(step, of-i)
		}
	}
	most, even := slices.Max(n), hosts/servers
	if float64(most) > 1.25*float64(even) {
		t.Errorf("a server has %d hosts, even would be %d", most, even)
	}
	t.Logf("hosts of a server: %d to %d, even would be %d", slices.Min(n), most, even)
}
