package crash

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// order is one run that a producer wants exactly once, however many requests it takes.
type order struct {
	key  string // the idempotency key, unique
	job  string
	work work
}

// work is the input of testdata/work.wasm.
type work struct {
	status byte // 0 success, 1 retry, 2 never retry
	millis byte
}

// end is the state in which the run must end.
func (w work) end() string {
	if w.status == 0 {
		return sdk.Succeeded
	}
	return "failed"
}

func (o order) trigger() sdk.Trigger {
	return sdk.Trigger{Job: o.job, Key: o.key, Input: []byte{o.work.status, o.work.millis}}
}

// jobs is the number of jobs that the producers trigger. They lie in different slots.
const jobs = 4

func jobName(i int) string { return fmt.Sprintf("work-%d", i) }

// ledger holds the knowledge of the producers: the unacknowledged orders, and the run of
// each acknowledged order.
type ledger struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	made int
	// open holds the orders whose outcome is unknown. While a producer sends an order,
	// the order is in no list.
	open []order
	runs map[string]string // run by key
	of   map[string]order  // order by run
	last []order           // recently acknowledged, oldest first
}

func newLedger(seed uint64) *ledger {
	return &ledger{rnd: rand.New(rand.NewPCG(seed, 1)), runs: map[string]string{}, of: map[string]order{}}
}

// next returns the order to send next: an unacknowledged one, sometimes an acknowledged
// one again, otherwise a new one.
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
	case 6: // long enough to be killed while it executes
		return l.order(work{millis: byte(l.rnd.IntN(100))})
	}
	return l.order(work{})
}

// burst returns more new orders than the server executes at once, so that some are still
// queued when the process ends.
func (l *ledger) burst() []order {
	l.mu.Lock()
	defer l.mu.Unlock()
	orders := make([]order, 50)
	for i := range orders {
		orders[i] = l.order(work{millis: 20})
	}
	return orders
}

// order creates a new order. The caller holds mu.
func (l *ledger) order(w work) order {
	l.made++
	return order{key: fmt.Sprintf("order-%d", l.made), job: jobName(l.rnd.IntN(jobs)), work: w}
}

// unknown returns an order without an acknowledgement to the open orders.
func (l *ledger) unknown(o order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.runs[o.key]; !known {
		l.open = append(l.open, o)
	}
}

// acknowledge records the server's answer. It fails when the answer contradicts an
// earlier one.
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
