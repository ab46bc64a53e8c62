package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// maxRefusals bounds the kinds of refusals that are counted at a time. Further ones are counted
// together, without an address.
const maxRefusals = 500

// maxMessage is the length to which the message of a refusal is cut, in bytes.
const maxMessage = 200

// Refusals counts refused calls by address, principal and code, so that a caller that is refused all
// the time makes one event a minute. The zero value is empty. It is safe for concurrent use.
type Refusals struct {
	mu  sync.Mutex
	all map[refusal]*Event
}

type refusal struct{ address, actor, code string }

// Event is an event with its caller.
type Event struct {
	By *apiv1.Attribution
	Row
}

// Add counts a refusal. Of refusals that are counted together the first one is described.
func (r *Refusals) Add(by *apiv1.Attribution, row Row) {
	k := refusal{by.GetAddress(), by.GetAuthor(), row.Code}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[k] == nil && len(r.all) >= maxRefusals {
		k = refusal{code: row.Code}
		by, row = &apiv1.Attribution{}, Row{Code: row.Code, Outcome: Denied, Message: "of many callers"}
	}
	if had := r.all[k]; had != nil {
		had.Count++
		return
	}
	if r.all == nil {
		r.all = map[refusal]*Event{}
	}
	row.Count = 1
	if len(row.Message) > maxMessage {
		row.Message = strings.ToValidUTF8(row.Message[:maxMessage], "") + "…"
	}
	r.all[k] = &Event{by, row}
}

// Take returns the refusals since the last call, sorted by address, actor and code.
func (r *Refusals) Take() []Event {
	r.mu.Lock()
	all := r.all
	r.all = nil
	r.mu.Unlock()
	var events []Event
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.actor, b.actor), cmp.Compare(a.code, b.code))
	}) {
		events = append(events, *all[k])
	}
	return events
}
