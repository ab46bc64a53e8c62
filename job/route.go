package job

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Limits of a routing and of what is remembered for it.
const (
	MaxRouteHosts  = 1000 // designated hosts
	MaxRouteLabels = 64   // conditions
	MaxHostUses    = 1024 // hosts in a RouteState; the one not used for longest is forgotten first

	// maxDebt is how many runs a host can be behind the most used one in the
	// eyes of lfu, and so how many it can get in a row.
	maxDebt = 16
)

// Candidate is a host as one job sees it at this moment.
type Candidate struct {
	ID, Name  string
	Labels    map[string]string // read only
	Connected bool
	Draining  bool
	Serves    bool    // the job's app
	Credits   int64   // tasks that it can take now, its queue included
	Slots     int32   // tasks that it executes at once
	Running   int32   // tasks that it was sent and that have not ended, those in its queue included
	CPU       float64 // the share of its processors that is used, 0 to 1; 0 before its first report
	Memory    uint64  // bytes; 0 before its first report
	Lacks     string  // what the run needs and the host did not say that it runs, for people; "": nothing
	OfJob     int32   // runs of the job among Running; looked at only if [Route.MaxHosts] is not 0
}

// HostsOfJob counts the candidates that the job runs on.
func HostsOfJob(cands []Candidate) int32 {
	var n int32
	for i := range cands {
		if cands[i].OfJob > 0 {
			n++
		}
	}
	return n
}

// Route chooses a host for a run. It is a definition's routing, made ready.
//
// First [Route.Able] says which hosts may take the run at all. Among these the
// strategy has an order of its own, and in it:
//
//   - least_loaded (default): the fewest running tasks for each slot; of equals
//     the one with the most credits; of equals in that, one by a hash of the run,
//     so that the hosts of an idle fleet get the same share.
//   - first, last: the lowest or the highest id.
//   - round_robin: the lowest id above that of the host that started the job's
//     last run, and the lowest of all after the highest.
//   - random: by a hash of the run, the number of its attempt and the host. The
//     same question gets the same answer, also on another server.
//   - hash: by a hash of the key and the host (rendezvous hashing). The same key
//     goes to the same host as long as that is able. Of n hosts, one that comes
//     or goes moves only its own share of the keys, about 1/n. The key is the
//     job, or the run's input, or the run.
//   - lfu: the host that started the fewest runs of the job. What a host is
//     behind the most used one counts up to 16 runs: so one that is new, or was
//     away for a day, is not flooded with all that it missed.
//   - lru: the host that started none for longest. It is counted in starts, not
//     in time.
//   - failover: the lowest id among those where the fewest attempts of this run
//     failed: each host once, in order, then each a second time.
//   - busy_transfer: the lowest id with a free slot. If all are busy, the most
//     credits.
//
// Under lfu and lru equals take turns as under round_robin; else of equals the
// lowest id wins.
//
// The host where the last attempt that failed was made, or that was lost with
// it, comes behind all other able hosts, whatever the strategy.
//
// A nil Route is the default: least_loaded over all hosts. A Route is never
// changed, so jobs with the same routing can share one.
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

// strategies are the texts of the API, by strategy.
var strategies = [...]string{
	"least_loaded", "first", "last", "round_robin", "random", "hash", "lfu", "lru", "failover", "busy_transfer",
}

// NewRoute reads a routing. One that asks for nothing gives nil. Its errors
// name the field and say what to write.
func NewRoute(m *apiv1.Routing) (*Route, error) {
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
	case !(m.MinFreeCpu >= 0 && m.MinFreeCpu <= 1): // so that NaN is refused
		return nil, fmt.Errorf("routing.min_free_cpu is %v, it must be 0 to 1: 0.25 leaves a quarter of the processors idle", m.MinFreeCpu)
	case len(m.Hosts) > MaxRouteHosts:
		return nil, fmt.Errorf("routing.hosts names %d hosts, the limit is %d: give them a label and ask for it", len(m.Hosts), MaxRouteHosts)
	case len(m.Labels) > MaxRouteLabels:
		return nil, fmt.Errorf("routing.labels has %d conditions, the limit is %d", len(m.Labels), MaxRouteLabels)
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

// checkRouting is a check of [Validate]. A routing that asks for nothing is
// dropped: it is the same definition.
func checkRouting(d *apiv1.Job) error {
	r, err := NewRoute(d.Routing)
	if err == nil && r == nil {
		d.Routing = nil
	}
	return err
}

// MaxHosts is how many hosts may run the job at once; 0: no limit.
func (r *Route) MaxHosts() int32 {
	if r == nil {
		return 0
	}
	return r.maxHosts
}

// Remembers reports whether the strategy needs a [RouteState].
func (r *Route) Remembers() bool {
	return r != nil && (r.by == byTurn || r.by == byCount || r.by == byAge)
}

// bar is what keeps a host from taking a run.
type bar uint8

const (
	unbarred bar = iota
	isOffline
	isDraining
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

// lasting returns what bars a host for as long as neither it nor the definition
// changes. label is the condition that does not hold if it is isMislabelled.
func (r *Route) lasting(c *Candidate) (b bar, label int) {
	switch {
	case !c.Connected:
		return isOffline, 0
	case c.Draining:
		return isDraining, 0
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

// passing returns what bars a host at this moment.
func (r *Route) passing(c *Candidate, hosts int32) bar {
	if r != nil {
		switch {
		case r.maxHosts > 0 && c.OfJob == 0 && hosts >= r.maxHosts:
			return isAnother
		case r.maxMemory > 0 && c.Memory >= r.maxMemory:
			return isLarge
		case r.freeCPU > 0 && !(1-c.CPU >= r.freeCPU): // NaN is no promise
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

// Able reports whether a host may take a run. hostsOfJob is [HostsOfJob] of
// all candidates; it is looked at only if [Route.MaxHosts] is not 0.
func (r *Route) Able(c *Candidate, hostsOfJob int32) bool {
	b, _ := r.lasting(c)
	return b == unbarred && r.passing(c, hostsOfJob) == unbarred
}

// Why says for people why a host may not take a run of an app, as a sentence
// without its subject, the host: "is draining". Of several reasons it says the
// one that lasts. It is "" if the host is able.
func (r *Route) Why(app string, c *Candidate, hostsOfJob int32) string {
	b, label := r.lasting(c)
	if b == unbarred {
		b = r.passing(c, hostsOfJob)
	}
	switch b {
	case isOffline:
		return "is not connected"
	case isDraining:
		return "is draining"
	case isForeign:
		return "does not serve app " + app
	case isUnfit:
		return "does not run " + c.Lacks
	case isUndesignated:
		return "is not one of the designated hosts"
	case isMislabelled:
		s := r.labels[label]
		if v, ok := c.Labels[s.key]; ok {
			return fmt.Sprintf("has the label %s=%q, the job wants %s", s.key, v, s)
		}
		return fmt.Sprintf("has no label %s, the job wants %s", s.key, s)
	case isAnother:
		return fmt.Sprintf("would be one host more: the job runs on %d already, its max_hosts is %d", hostsOfJob, r.maxHosts)
	case isLarge:
		return fmt.Sprintf("uses %s of memory, the job wants less than %s", mebibytes(c.Memory), mebibytes(r.maxMemory))
	case isBusyCPU:
		return fmt.Sprintf("leaves %.3g%% of its processors idle, the job wants %.3g%%", 100*(1-c.CPU), 100*r.freeCPU)
	case isShort:
		return fmt.Sprintf("has %d free slots of %d, the job wants %d", c.freeSlots(), c.Slots, r.freeSlots)
	case isFull:
		if c.freeSlots() == 0 {
			return fmt.Sprintf("has no free slot (%d of %d busy) and its queue is full", c.Slots, c.Slots)
		}
		return fmt.Sprintf("takes no more tasks at the moment (%d of %d slots busy)", c.Running, c.Slots)
	}
	return ""
}

// mebibytes writes a size with as few decimals as tell it from its neighbours.
func mebibytes(n uint64) string { return fmt.Sprintf("%.6g MiB", float64(n)/(1<<20)) }

// Pick returns the index of the candidate that the run's next attempt goes to,
// or -1 if none is able. cands are all hosts, sorted by id. s is what the job's
// starts left behind; nil is the same as an empty one. Pick changes nothing and
// allocates nothing, except under hash by input when the run has the input of
// its definition, which it decodes.
func (r *Route) Pick(cands []Candidate, run *Run, s *RouteState) int {
	var hosts int32
	if r.MaxHosts() > 0 {
		hosts = HostsOfJob(cands)
	}
	q := r.question(run, s)
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
		// Looking up labels costs most, so only a host that would be picked is asked.
		if b, _ := r.lasting(c); b != unbarred {
			continue
		}
		at, best = i, k
		if best == (rank{}) {
			break // nothing comes before it
		}
	}
	return at
}

// rank is the place of a host among the able ones: the lowest is picked, and of
// equals the first.
type rank struct {
	again        uint64 // 1: the last attempt that failed was made here
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

// question is a pick while it is made.
type question struct {
	by    strategy
	avoid string // host of the last attempt that failed
	run   *Run
	key   uint64    // least_loaded, random, hash: hashed with each host
	last  string    // RouteState.LastHost
	past  bool      // the candidate, and so all that follow, are after it
	uses  []HostUse // RouteState.Uses without those of hosts that were passed
	floor int64     // lfu: a lower count counts as this
}

func (r *Route) question(run *Run, s *RouteState) question {
	q := question{run: run, avoid: failedHost(run)}
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
			q.key = hash64(q.key, run.Given())
		}
	case byCount:
		q.floor = floor(q.uses)
	}
	return q
}

// rank is asked in the order of ids, so that uses are found in one pass.
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
		k.major = failures(q.run, c.ID)
	case byFreeSlot:
		if c.freeSlots() == 0 {
			k.major, k.minor = 1, math.MaxUint64-uint64(c.Credits)
		}
	}
	return k
}

// turn is 0 for hosts whose turn comes before the first id comes again.
func (q *question) turn(c *Candidate) uint64 {
	q.past = q.past || c.ID > q.last
	if q.past {
		return 0
	}
	return 1
}

// use returns what is remembered of a host.
func (q *question) use(c *Candidate) HostUse {
	for len(q.uses) > 0 {
		switch u := &q.uses[0]; {
		case u.Host == c.ID:
			return *u
		case u.Host > c.ID:
			return HostUse{}
		}
		q.uses = q.uses[1:]
	}
	return HostUse{}
}

// faulty reports whether an attempt ended through a fault of the task or of the
// host. A host that was drained has none.
func faulty(a Attempt) bool {
	switch a.Outcome {
	case apiv1.Outcome_OUTCOME_RETRYABLE, apiv1.Outcome_OUTCOME_PERMANENT, apiv1.Outcome_OUTCOME_TIMED_OUT,
		apiv1.Outcome_OUTCOME_HOST_ERROR, apiv1.Outcome_OUTCOME_LOST:
		return true
	}
	return false
}

// failedHost returns the host of the last attempt that failed; "" if none did.
func failedHost(r *Run) string {
	for _, a := range slices.Backward(r.Attempts) {
		if faulty(a) {
			return a.Host
		}
	}
	return ""
}

// failures counts the attempts that failed on a host.
func failures(r *Run, host string) uint64 {
	var n uint64
	for _, a := range r.Attempts {
		if a.Host == host && faulty(a) {
			n++
		}
	}
	return n
}

// RouteState is what round_robin, lfu and lru remember of a job's starts. It is
// part of the slot's fold: it depends on the records of starts alone.
type RouteState struct {
	LastHost string    // of the last start
	Seq      int64     // counts the starts
	Uses     []HostUse // Invariant: sorted by host, each once, at most MaxHostUses
}

// HostUse is what a [RouteState] remembers of one host.
type HostUse struct {
	Host  string
	Count int64 // starts there, as lfu counts them
	Seq   int64 // of the last one
}

// Note returns what the job remembers once a run of it was started on a host.
// It changes s and returns it; like append it makes one if s is nil. It returns
// nil if the strategy remembers nothing.
func (r *Route) Note(s *RouteState, host string) *RouteState {
	if !r.Remembers() {
		return nil
	}
	if s == nil {
		s = &RouteState{}
	}
	s.LastHost = host
	if r.by == byTurn {
		s.Seq, s.Uses = 0, nil // another strategy's, before the definition changed
		return s
	}
	s.Seq++
	low := floor(s.Uses)
	i, ok := slices.BinarySearchFunc(s.Uses, host, func(u HostUse, host string) int { return strings.Compare(u.Host, host) })
	if !ok {
		if len(s.Uses) >= MaxHostUses {
			i = s.forget(i)
		}
		s.Uses = slices.Insert(s.Uses, i, HostUse{Host: host})
	}
	u := &s.Uses[i]
	u.Count, u.Seq = max(u.Count, low)+1, s.Seq
	return s
}

// forget drops the host that was not used for longest and returns where index
// i is now.
func (s *RouteState) forget(i int) int {
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

// floor is the count below which lfu counts no host.
func floor(uses []HostUse) int64 {
	var top int64
	for i := range uses {
		top = max(top, uses[i].Count)
	}
	return max(top-maxDebt, 0)
}

// hash64 hashes s onto seed, eight bytes at a time, by the 128-bit product that
// wyhash is built on. It decides which host a key belongs to, on every server
// and in every release: it never changes.
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
