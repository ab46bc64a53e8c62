// Package route chooses the host of a run: it compiles the routing of a definition into a
// [Route], which ranks the hosts as one job sees them.
//
// Everything here is pure. What a strategy remembers of earlier starts is in a [State],
// which is part of the state of a slot.
package route

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/reason"
)

// Limits of a routing and of its state.
const (
	MaxNamedHosts = 1000 // designated hosts
	MaxLabels     = 64   // conditions
	MaxUses       = 1024 // hosts in a State; the least recently used one is removed first

	// maxDebt is the number of runs, at most, by which lfu counts a host behind the most
	// used one, and so the number that the host can receive in a row.
	maxDebt = 16
)

// Candidate is a host as one job sees it now.
type Candidate struct {
	ID, Name  string
	Labels    map[string]string // read only
	Connected bool
	Draining  bool
	Cordoned  bool    // an operator keeps tasks from it
	Serves    bool    // it serves the app of the job
	Credits   int64   // tasks that it can take now, including its queue
	Slots     int32   // tasks that it can execute at once
	Running   int32   // tasks that it was sent and that have not ended, including its queue
	CPU       float64 // used share of its processors, 0 to 1; 0 before its first report
	Memory    uint64  // bytes; 0 before its first report
	Lacks     string  // what the run needs and the host did not announce, for a message; "": nothing
	OfJob     int32   // runs of the job among Running; read only if [Route.MaxHosts] is not 0
}

// HostsOfJob returns the number of candidates on which the job runs.
func HostsOfJob(cands []Candidate) int32 {
	var n int32
	for i := range cands {
		if cands[i].OfJob > 0 {
			n++
		}
	}
	return n
}

// Run is a run as a strategy sees it.
type Run struct {
	ID       [16]byte
	App, Job string
	Attempt  int32                       // the number of the last attempt
	Failed   []string                    // the hosts of its failed attempts, in order
	Input    interface{ Given() []byte } // read under hash by input only
}

// Route chooses a host for a run. It is the compiled routing of a definition.
//
// [Route.Able] decides which hosts may take the run. The strategy orders the able hosts:
//
//   - least_loaded (default): the fewest running tasks per slot; of equals, the most
//     credits; of equals, the lowest hash of run and host, so that idle hosts get equal
//     shares.
//   - first, last: the lowest or the highest id.
//   - round_robin: the lowest id above that of the host that started the job's last run;
//     after the highest id, the lowest of all.
//   - random: the lowest hash of the run, the number of its attempt and the host. It is
//     deterministic, also on another server.
//   - hash: the lowest hash of the key and the host (rendezvous hashing). A key stays
//     with its host as long as the host is able. If one of n hosts comes or goes, only
//     its share of the keys moves, about 1/n. The key is the job, the run's input or the
//     run.
//   - lfu: the host that started the fewest runs of the job. A host counts as at most 16
//     runs behind the most used one, so a host that is new, or was away for a day, is not
//     flooded with the runs that it missed.
//   - lru: the host whose last start of the job is the oldest, counted in starts, not in
//     time; a host without a start comes first.
//   - failover: the lowest id among the hosts with the fewest failed attempts of this
//     run: each host once, in order, then each a second time.
//   - busy_transfer: the lowest id with a free slot; if all are busy, the most credits.
//
// Under lfu and lru, equals take turns as under round_robin. Under the other strategies,
// the lowest id of equals wins.
//
// Under every strategy, the host of the last failed or lost attempt comes after all other
// able hosts.
//
// A nil Route is the default: least_loaded over all hosts. A Route is immutable, so jobs
// with the same routing can share one.
type Route struct {
	by        strategy
	key       string
	hosts     []string // ids or names, sorted; empty: all hosts
	labels    []Selector
	maxHosts  int32
	freeCPU   float64
	maxMemory uint64
	freeSlots int32
}

type strategy uint8

const (
	byLoad strategy = iota
	byFirst
	byLast
	byTurn
	byChance
	byHash
	byCount
	byAge
	byFailures
	byFreeSlot
)

// strategies are the names in the API, by strategy.
var strategies = [...]string{
	"least_loaded", "first", "last", "round_robin", "random", "hash", "lfu", "lru", "failover", "busy_transfer",
}

// New compiles a routing. A routing without any effect gives nil. An error names the
// field and says what to write.
func New(m *apiv1.Routing) (*Route, error) {
	if m == nil {
		return nil, nil
	}
	r := &Route{
		key: m.Key, maxHosts: m.MaxHosts, freeCPU: m.MinFreeCpu, maxMemory: m.MaxMemoryBytes, freeSlots: m.MinFreeSlots,
	}
	by := 0
	if m.Strategy != "" {
		if by = slices.Index(strategies[:], m.Strategy); by < 0 {
			return nil, fmt.Errorf("routing.strategy: %q is not a strategy: use %s", m.Strategy, strings.Join(strategies[:], ", "))
		}
	}
	r.by = strategy(by)
	switch {
	case m.Key != "" && r.by != byHash:
		return nil, fmt.Errorf("routing.key goes with the strategy hash only")
	case !slices.Contains([]string{"", "job", "input", "run"}, m.Key):
		return nil, fmt.Errorf("routing.key: %q is neither job, input nor run", m.Key)
	case m.MaxHosts < 0:
		return nil, fmt.Errorf("routing.max_hosts is negative: 0 means no limit")
	case m.MinFreeSlots < 0:
		return nil, fmt.Errorf("routing.min_free_slots is negative: 0 means no minimum")
	case !(m.MinFreeCpu >= 0 && m.MinFreeCpu <= 1): // also refuses NaN
		return nil, fmt.Errorf("routing.min_free_cpu is %v, it must be 0 to 1: 0.25 leaves a quarter of the processors idle", m.MinFreeCpu)
	case len(m.Hosts) > MaxNamedHosts:
		return nil, fmt.Errorf("routing.hosts names %d hosts, the limit is %d: give the hosts a label and select it", len(m.Hosts), MaxNamedHosts)
	case len(m.Labels) > MaxLabels:
		return nil, fmt.Errorf("routing.labels has %d conditions, the limit is %d", len(m.Labels), MaxLabels)
	}
	for i, h := range m.Hosts {
		if h == "" || len(h) > 256 {
			return nil, fmt.Errorf("routing.hosts: entry %d is empty or longer than 256 bytes: write the id or the name of a host", i+1)
		}
	}
	for i, text := range m.Labels {
		s, err := ParseSelector(text)
		if err != nil {
			return nil, fmt.Errorf("routing.labels: entry %d: %w", i+1, err)
		}
		r.labels = append(r.labels, s)
	}
	r.hosts = slices.Compact(slices.Sorted(slices.Values(m.Hosts)))
	if r.by == byLoad && len(r.hosts) == 0 && len(r.labels) == 0 &&
		r.maxHosts == 0 && r.freeCPU == 0 && r.maxMemory == 0 && r.freeSlots == 0 {
		return nil, nil
	}
	return r, nil
}

// MaxHosts returns the number of hosts that may run the job at once; 0: no limit.
func (r *Route) MaxHosts() int32 {
	if r == nil {
		return 0
	}
	return r.maxHosts
}

// Remembers reports whether the strategy needs a [State].
func (r *Route) Remembers() bool {
	return r != nil && (r.by == byTurn || r.by == byCount || r.by == byAge)
}

// bar is the reason why a host may not take a run.
type bar uint8

const (
	unbarred bar = iota
	isOffline
	isDraining
	isCordoned
	isForeign
	isUnfit
	isUndesignated
	isMislabelled
	isAnother
	isLarge
	isBusyCPU
	isShort
	isFull
)

// lasting returns the reason that holds as long as neither the host nor the definition
// changes. label is the index of the unmet condition if b is isMislabelled.
func (r *Route) lasting(c *Candidate) (b bar, label int) {
	switch {
	case !c.Connected:
		return isOffline, 0
	case c.Draining:
		return isDraining, 0
	case c.Cordoned:
		return isCordoned, 0
	case !c.Serves:
		return isForeign, 0
	case c.Lacks != "":
		return isUnfit, 0
	case r == nil:
		return unbarred, 0
	case len(r.hosts) > 0 && !r.designates(c):
		return isUndesignated, 0
	}
	for i := range r.labels {
		if !r.labels[i].Matches(c.Labels) {
			return isMislabelled, i
		}
	}
	return unbarred, 0
}

// passing returns the reason that holds only for now.
func (r *Route) passing(c *Candidate, hosts int32) bar {
	if r != nil {
		switch {
		case r.maxHosts > 0 && c.OfJob == 0 && hosts >= r.maxHosts:
			return isAnother
		case r.maxMemory > 0 && c.Memory >= r.maxMemory:
			return isLarge
		case r.freeCPU > 0 && !(1-c.CPU >= r.freeCPU): // also refuses NaN
			return isBusyCPU
		case r.freeSlots > 0 && c.freeSlots() < r.freeSlots:
			return isShort
		}
	}
	if c.Credits <= 0 {
		return isFull
	}
	return unbarred
}

func (r *Route) designates(c *Candidate) bool {
	if _, ok := slices.BinarySearch(r.hosts, c.ID); ok {
		return true
	}
	_, ok := slices.BinarySearch(r.hosts, c.Name)
	return ok
}

func (c *Candidate) freeSlots() int32 { return max(c.Slots-c.Running, 0) }

// Able reports whether a host may take a run. hostsOfJob is [HostsOfJob] of all
// candidates; it is read only if [Route.MaxHosts] is not 0.
func (r *Route) Able(c *Candidate, hostsOfJob int32) bool {
	b, _ := r.lasting(c)
	return b == unbarred && r.passing(c, hostsOfJob) == unbarred
}

// Why returns why a host may not take a run of an app. If there are several reasons, a lasting
// one comes first. It returns no reason if the host is able.
func (r *Route) Why(app string, c *Candidate, hostsOfJob int32) reason.Reason {
	b, label := r.lasting(c)
	if b == unbarred {
		b = r.passing(c, hostsOfJob)
	}
	switch b {
	case isOffline:
		return reason.New(reason.Disconnected)
	case isDraining:
		return reason.New(reason.Draining)
	case isCordoned:
		return reason.New(reason.Cordoned, "host", c.Name)
	case isForeign:
		return reason.New(reason.OtherApp, "app", app)
	case isUnfit:
		return reason.New(reason.CannotRun, "what", c.Lacks)
	case isUndesignated:
		return reason.New(reason.NotDesignated)
	case isMislabelled:
		s := r.labels[label]
		if v, ok := c.Labels[s.key]; ok {
			return reason.New(reason.LabelDiffers, "label", fmt.Sprintf("%s=%q", s.key, v), "want", s.String())
		}
		return reason.New(reason.LabelMissing, "label", s.key, "want", s.String())
	case isAnother:
		return reason.New(reason.MaxHosts, "n", number(hostsOfJob), "max", number(r.maxHosts))
	case isLarge:
		return reason.New(reason.Memory, "have", mebibytes(c.Memory), "max", mebibytes(r.maxMemory))
	case isBusyCPU:
		return reason.New(reason.CPU, "have", percent(1-c.CPU), "want", percent(r.freeCPU))
	case isShort:
		return reason.New(reason.FreeSlots, "n", number(c.freeSlots()), "slots", number(c.Slots), "want", number(r.freeSlots))
	case isFull:
		if c.freeSlots() == 0 {
			return reason.New(reason.QueueFull, "slots", number(c.Slots))
		}
		return reason.New(reason.Busy, "n", number(c.Running), "slots", number(c.Slots))
	}
	return reason.Reason{}
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func percent(share float64) string { return fmt.Sprintf("%.3g", 100*share) }

// mebibytes formats a size with at most six significant digits.
func mebibytes(n uint64) string { return fmt.Sprintf("%.6g MiB", float64(n)/(1<<20)) }

// Pick returns the index of the candidate for the run's next attempt, or -1 if no
// candidate is able. cands are all hosts, sorted by id. s is the state of the job's
// strategy; nil is an empty state. Pick modifies nothing and allocates nothing, except
// under hash by input for a run with the input of its definition, which it decodes.
func (r *Route) Pick(cands []Candidate, run Run, s *State) int {
	var hosts int32
	if r.MaxHosts() > 0 {
		hosts = HostsOfJob(cands)
	}
	q := r.question(&run, s)
	var best rank
	at := -1
	for i := range cands {
		c := &cands[i]
		if r.passing(c, hosts) != unbarred {
			continue
		}
		k := q.rank(i, c)
		if at >= 0 && !k.before(best) {
			continue
		}
		// Labels are the most expensive check, so only a host that would be picked gets
		// it.
		if b, _ := r.lasting(c); b != unbarred {
			continue
		}
		at, best = i, k
		if best == (rank{}) {
			break // no rank is lower
		}
	}
	return at
}

// rank is the position of a host among the able ones. The lowest rank is picked; of
// equals, the first.
type rank struct {
	again        uint64 // 1: the last failed attempt was on this host
	major, minor uint64
}

func (a rank) before(b rank) bool {
	switch {
	case a.again != b.again:
		return a.again < b.again
	case a.major != b.major:
		return a.major < b.major
	}
	return a.minor < b.minor
}

// question is the state of one call of Pick.
type question struct {
	by    strategy
	avoid string // host of the last failed attempt
	run   *Run
	key   uint64 // least_loaded, random, hash: seed of the hash of each host
	last  string // State.LastHost
	past  bool   // this candidate and all later ones are after last
	uses  []Use  // State.Uses without the hosts before this candidate
	floor int64  // lfu: a lower count is raised to this
}

func (r *Route) question(run *Run, s *State) question {
	q := question{run: run}
	if n := len(run.Failed); n > 0 {
		q.avoid = run.Failed[n-1]
	}
	if r != nil {
		q.by = r.by
	}
	if s != nil {
		q.last, q.uses = s.LastHost, s.Uses
	}
	switch q.by {
	case byLoad, byChance:
		q.key = hash64(uint64(run.Attempt)+1, run.ID[:])
	case byHash:
		q.key = hash64(hash64(0, run.App), run.Job)
		switch r.key {
		case "run":
			q.key = hash64(q.key, run.ID[:])
		case "input":
			q.key = hash64(q.key, run.Input.Given())
		}
	case byCount:
		q.floor = floor(q.uses)
	}
	return q
}

// rank returns the rank of a candidate. Calls are in the order of ids, so one pass finds
// all uses.
func (q *question) rank(i int, c *Candidate) rank {
	var k rank
	if q.avoid != "" && c.ID == q.avoid {
		k.again = 1
	}
	switch q.by {
	case byLoad:
		k.major = uint64(max(c.Running, 0)) << 32 / uint64(max(c.Slots, 1))
		k.minor = (math.MaxUint32-uint64(min(max(c.Credits, 0), math.MaxUint32)))<<32 | hash64(q.key, c.ID)>>32
	case byLast:
		k.major = math.MaxUint64 - uint64(i)
	case byTurn:
		k.major = q.turn(c)
	case byChance, byHash:
		k.major = hash64(q.key, c.ID)
	case byCount:
		k.major, k.minor = uint64(max(q.use(c).Count, q.floor)), q.turn(c)
	case byAge:
		k.major, k.minor = uint64(max(q.use(c).Seq, 0)), q.turn(c)
	case byFailures:
		for _, host := range q.run.Failed {
			if host == c.ID {
				k.major++
			}
		}
	case byFreeSlot:
		if c.freeSlots() == 0 {
			k.major, k.minor = 1, math.MaxUint64-uint64(c.Credits)
		}
	}
	return k
}

// turn is 0 for a host after the last used one in the order of ids, else 1.
func (q *question) turn(c *Candidate) uint64 {
	q.past = q.past || c.ID > q.last
	if q.past {
		return 0
	}
	return 1
}

// use returns the state of one host.
func (q *question) use(c *Candidate) Use {
	for len(q.uses) > 0 {
		switch u := &q.uses[0]; {
		case u.Host == c.ID:
			return *u
		case u.Host > c.ID:
			return Use{}
		}
		q.uses = q.uses[1:]
	}
	return Use{}
}

// State is what round_robin, lfu and lru remember of a job's starts. It is part of
// the state of the slot: it depends only on the records of starts.
type State struct {
	LastHost string // of the last start
	Seq      int64  // number of starts
	Uses     []Use  // Invariant: sorted by host, each once, at most MaxUses
}

// Use is the state of one host in a [State].
type Use struct {
	Host  string
	Count int64 // starts on it, as lfu counts them
	Seq   int64 // Seq of the last start on it
}

// Note returns the state after a start of the job on a host. It modifies s and returns
// it; like append, it allocates the state if s is nil. It returns nil if the strategy has
// no state.
func (r *Route) Note(s *State, host string) *State {
	if !r.Remembers() {
		return nil
	}
	if s == nil {
		s = &State{}
	}
	s.LastHost = host
	if r.by == byTurn {
		s.Seq, s.Uses = 0, nil // left by another strategy, before the definition changed
		return s
	}
	s.Seq++
	low := floor(s.Uses)
	i, ok := slices.BinarySearchFunc(s.Uses, host, func(u Use, host string) int { return strings.Compare(u.Host, host) })
	if !ok {
		if len(s.Uses) >= MaxUses {
			i = s.forget(i)
		}
		s.Uses = slices.Insert(s.Uses, i, Use{Host: host})
	}
	u := &s.Uses[i]
	u.Count, u.Seq = max(u.Count, low)+1, s.Seq
	return s
}

// forget removes the least recently used host and returns the new position of index i.
func (s *State) forget(i int) int {
	oldest := 0
	for j := range s.Uses {
		if s.Uses[j].Seq < s.Uses[oldest].Seq {
			oldest = j
		}
	}
	s.Uses = slices.Delete(s.Uses, oldest, oldest+1)
	if oldest < i {
		return i - 1
	}
	return i
}

// floor returns the count to which lfu raises lower ones.
func floor(uses []Use) int64 {
	var top int64
	for i := range uses {
		top = max(top, uses[i].Count)
	}
	return max(top-maxDebt, 0)
}

// hash64 hashes s with a seed, eight bytes at a time, by the 128-bit product of wyhash.
// It decides which host a key belongs to, on every server and in every release, so it
// must never change.
func hash64[T string | []byte](seed uint64, s T) uint64 {
	const k0, k1 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db
	h, n := seed^k0, uint64(len(s))
	for ; len(s) >= 8; s = s[8:] {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		h = mix(h^w, k1)
	}
	var w uint64
	for i := range len(s) {
		w |= uint64(s[i]) << (8 * i)
	}
	return mix(mix(h^w, k0^n), k1)
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
