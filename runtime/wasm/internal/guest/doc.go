// Package guest owns the state of one call of a guest, and decides when the guest pauses and
// when it ends.
//
// A Call carries the current task of the guest: its deadline, fuel, output, log, progress
// and use of services. Guests call Refill whenever they have used up a slice of fuel.
// Refill lets other goroutines run, ends a guest that is overdue or cancelled, and grants a
// slice that takes about 200 µs. A call of a batch has several tasks, one after another.
//
// The host functions of internal/hostabi are the guest's way to a Call; the engine begins
// the call and converts its end to a result.
package guest
