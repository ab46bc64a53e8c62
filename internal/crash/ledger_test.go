package crash

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// order is one run that a producer wants exactly once, however often it has to ask.
type order struct {
	key  string // the idempotency key, unique
	job  string
	work work
}

// work is the input of testdata/work.wasm.
type work struct {
	status byte // 0 done, 1 try again, 2 never try again
	millis byte
}

// end is the state that a run must come to.
func (w work) end() string {
	if w.status == 0 {
		return sdk.Succeeded
	}
	return "failed"
}

func (o order) trigger() sdk.Trigger {
	return sdk.Trigger{Job: o.job, Key: o.key, Input: []byte{o.work.status, o.work.millis}}
}

// jobs is how many jobs the producers trigger. They lie in different slots.
const jobs = 4

func jobName(i int) string { return fmt.Sprintf("work-%d", i) }

// ledger is what the producers know: the orders nobody has acknowledged, and
// which run each acknowledged one became.
type ledger struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	made int
	// open are the orders whose fate is unknown. An order that a producer is
	// asking for is in nobody's hands but the producer's.
	open []order
	runs map[string]string // by key
	of   map[string]order  // by run
	last []order           // acknowledged of late, oldest first
}

func newLedger(seed uint64) *ledger {
	return &ledger{rnd: rand.New(rand.NewPCG(seed, 1)), runs: map[string]string{}, of: map[string]order{}}
}

// next returns what to ask for: something that nobody has acknowledged, at times
// something acknowledged once more, else something new.
func (l *ledger) next() order {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.open); n > 0 {
		o := l.open[n-1]
		l.open = l.open[:n-1]
		return o
	}
	if len(l.last) > 0 && l.rnd.IntN(10) == 0 {
		return l.last[l.rnd.IntN(len(l.last))]
	}
	switch l.rnd.IntN(100) {
	case 0, 1, 2:
		return l.order(work{status: 1})
	case 3, 4, 5:
		return l.order(work{status: 2})
	case 6: // long enough to be killed in the middle
		return l.order(work{millis: byte(l.rnd.IntN(100))})
	}
	return l.order(work{})
}

// burst returns more new orders than are done at once, so that some of them are
// still in line when the process ends.
func (l *ledger) burst() []order {
	l.mu.Lock()
	defer l.mu.Unlock()
	orders := make([]order, 50)
	for i := range orders {
		orders[i] = l.order(work{millis: 20})
	}
	return orders
}

// order makes a new order. mu must be held.
func (l *ledger) order(w work) order {
	l.made++
	return order{key: fmt.Sprintf("order-%d", l.made), job: jobName(l.rnd.IntN(jobs)), work: w}
}

// unknown takes back an order that was not acknowledged.
func (l *ledger) unknown(o order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.runs[o.key]; !known {
		l.open = append(l.open, o)
	}
}

// acknowledge enters what the server answered. It fails when that contradicts
// an earlier answer.
func (l *ledger) acknowledge(o order, a sdk.Answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	earlier, known := l.runs[o.key]
	switch other, taken := l.of[a.RunID]; {
	case known && earlier != a.RunID:
		return fmt.Errorf("key %s was run %s and is now run %s", o.key, earlier, a.RunID)
	case known && a.Result != sdk.Duplicate:
		return fmt.Errorf("key %s of run %s was answered with %s the second time", o.key, a.RunID, a.Result)
	case taken && other.key != o.key:
		return fmt.Errorf("run %s was answered to the keys %s and %s", a.RunID, other.key, o.key)
	case known:
		return nil
	}
	l.runs[o.key], l.of[a.RunID] = a.RunID, o
	const remembered = 1000
	if l.last = append(l.last, o); len(l.last) > remembered {
		l.last = l.last[1:]
	}
	return nil
}
