package audit

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// maxRefusals bounds the kinds of refusals that are counted at a time. Further ones are counted
// together, without an address.
const maxRefusals = 500

// maxRefusalBytes bounds the events of refusals in 24 hours, in bytes. Beyond it there is one event for
// each code and call of Take: callers from outside must not push other events out of the log.
const maxRefusalBytes = 4 << 20

// maxMessage is the length to which the message of a refusal is cut, in bytes.
const maxMessage = 200

// Refusals counts refused calls by address, principal and code, so that a caller that is refused all
// the time makes one event a minute. The zero value is empty. It is safe for concurrent use.
type Refusals struct {
	mu  sync.Mutex // guards all
	all map[refusal]*Event

	// Only the caller of Take uses these.
	since time.Time // the beginning of the current 24 hours
	bytes int       // of the events since then
}

type refusal struct{ address, actor, code string }

// eventBytes is about the size of an event without its texts, in bytes.
const eventBytes = 64

// together makes one event of the refusals with a code.
func together(all map[refusal]*Event) map[refusal]*Event {
	one := map[refusal]*Event{}
	for k, e := range all {
		k = refusal{code: k.code}
		if one[k] == nil {
			one[k] = ofMany(e.Code)
		}
		one[k].Count += e.Count
	}
	return one
}

// ofMany is the event of refusals whose callers are not named.
func ofMany(code string) *Event {
	return &Event{&apiv1.Attribution{}, Row{Code: code, Outcome: Denied, Message: "of many callers"}}
}

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
		many := ofMany(row.Code)
		by, row = many.By, many.Row
	}
	if had := r.all[k]; had != nil {
		had.Count++
		return
	}
	if r.all == nil {
		r.all = map[refusal]*Event{}
	}
	row.cut() // the request of a refused call may name an app of many MiB
	row.Count, row.Message = 1, cut(row.Message, maxMessage)
	r.all[k] = &Event{by, row}
}

// Take returns the refusals since the last call, sorted by address, actor and code. It is not called
// concurrently.
func (r *Refusals) Take(now time.Time) []Event {
	r.mu.Lock()
	all := r.all
	r.all = nil
	r.mu.Unlock()
	if now.Sub(r.since) >= 24*time.Hour || now.Before(r.since) {
		r.since, r.bytes = now, 0
	}
	if r.bytes > maxRefusalBytes {
		all = together(all)
	}
	for k, e := range all {
		r.bytes += eventBytes + len(k.address) + len(k.actor) + len(e.By.GetToken()) + len(e.App) + len(e.Object) + len(e.Message)
	}
	var events []Event
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.actor, b.actor), cmp.Compare(a.code, b.code))
	}) {
		events = append(events, *all[k])
	}
	return events
}
