package core

import (
	"slices"

	"github.com/wheelworkhq/wheelwork/job"
)

// acceptance has live runs in the order in which they were accepted, so that a list finds
// the newest ones without reading all. When the slice is full, push drops the runs that
// have ended before it grows the slice.
type acceptance struct {
	entries []accepted
	next    uint64
}

type accepted struct {
	serial uint64 // Invariant: rises from entry to entry
	run    *job.Run
}

func (a *acceptance) push(r *job.Run) {
	if len(a.entries) >= 64 && len(a.entries) == cap(a.entries) {
		a.entries = slices.DeleteFunc(a.entries, func(e accepted) bool { return gone(e.run) })
	}
	a.next++
	a.entries = append(a.entries, accepted{a.next, r})
}

// maxWalk bounds the entries that one page of a list examines.
const maxWalk = 100_000

// newest returns up to limit live runs for which keep returns true, newest first. If
// before is not 0, it returns only runs with a lower serial. more is the argument before
// for the next page; 0: there is none.
func (a *acceptance) newest(before uint64, limit int, keep func(*job.Run) bool) (runs []*job.Run, more uint64) {
	end := len(a.entries)
	if before > 0 {
		end, _ = slices.BinarySearchFunc(a.entries, before, func(e accepted, s uint64) int {
			switch {
			case e.serial < s:
				return -1
			case e.serial > s:
				return 1
			}
			return 0
		})
	}
	for i, walked := end-1, 0; i >= 0; i, walked = i-1, walked+1 {
		e := a.entries[i]
		if walked == maxWalk {
			return runs, e.serial + 1
		}
		switch {
		case gone(e.run) || !keep(e.run):
		case len(runs) == limit: // there is a next page only if it has a run: a list must know when it has read the last live one
			return runs, e.serial + 1
		default:
			runs = append(runs, e.run)
		}
	}
	return runs, 0
}

// sortByID sorts the runs that were loaded by their planned times, with which their ids
// begin.
func (a *acceptance) sortByID() {
	slices.SortFunc(a.entries, func(x, y accepted) int { return byID(x.run, y.run) })
	for i := range a.entries {
		a.entries[i].serial = uint64(i) + 1
	}
}
