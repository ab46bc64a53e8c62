package core

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// heldError is the error of a change of definitions while a hold lasts. The call is made again
// when the hold has ended, so only the results of a call that has several show it.
type heldError struct{ by *hold }

func (e *heldError) Error() string {
	return fmt.Sprintf("a change set is being applied to app %s: try again in a moment", e.by.app)
}

func (e *heldError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// holdOf returns the hold for which a call waits; nil: it does not.
func holdOf(err error) *hold {
	if err == nil {
		return nil
	}
	var held *heldError
	if !errors.As(err, &held) {
		return nil
	}
	return held.by
}

// Free fails if the definitions of an app are held. Every command that changes definitions
// calls it before it reads or writes one.
func (ho *Holds) Free(app string) error {
	if h := ho.of[app]; h != nil {
		return &heldError{h}
	}
	return nil
}

// take begins a hold of an app that is free.
func (ho *Holds) take(app string) *hold {
	h := &hold{app: app}
	ho.of[app] = h
	return h
}

// wait calls f on the loop when a hold has ended.
func (ho *Holds) wait(h *hold, f func(*Loop)) {
	if ho.of[h.app] != h { // it has ended meanwhile
		ho.l.Mail.Do(f)
		return
	}
	h.waiting = append(h.waiting, f)
}

// drain ends a hold and makes the calls that waited for it, in their order: a later message of
// a producer may change what an earlier one has created. Until all are made the hold lasts,
// and further calls wait behind them.
func (ho *Holds) drain(h *hold) {
	for start := time.Now(); len(h.waiting) > 0; {
		if time.Since(start) > turnTime {
			ho.l.Mail.Do(func(l *Loop) { l.Holds.drain(h) })
			return
		}
		f := h.waiting[0]
		h.waiting = h.waiting[1:]
		delete(ho.of, h.app)
		f(ho.l)
		if next := ho.of[h.app]; next != nil { // the call began another hold
			next.waiting = append(next.waiting, h.waiting...)
			next.changes = h.changes
			return
		}
		ho.of[h.app] = h
	}
	delete(ho.of, h.app)
}
