// Package cron turns a cron expression and a time zone into instants.
//
// The package is pure: it starts no goroutine, reads no clock and has no state between
// calls. A [Schedule] is immutable after [Parse] and safe for concurrent use.
//
// # Model
//
// An expression describes civil times, the times that a wall clock shows. The engine
// finds matching civil times by jumping from field to field (calendar.go) and maps them
// to instants itself (zone.go). It does not use [time.Date], which resolves civil times
// around a daylight-saving change to one side or the other, depending on the zone.
//
// # Expressions
//
// The unix dialect has five fields:
//
//	minute hour day-of-month month day-of-week
//
// with Sunday as 0 or 7. When both day fields are restricted, a day that matches either
// of them fires, as in Vixie cron. A day field that starts from its minimum with a step
// (*/2) does not count as restricted.
//
// The quartz dialect has six or seven fields:
//
//	second minute hour day-of-month month day-of-week [year]
//
// with Sunday as 1. One of the two day fields must be * or ?.
//
//   - every value              a-b      range, may wrap (22-2, FRI-MON)
//     */n      every n-th value         a-b/n    every n-th value of a range
//     a/n      every n-th value from a  a,b      list
//     ?        same as *, day fields    JAN SUN  names of months and weekdays
//     L        last day of the month    L-n      n days before the last day
//     LW       last Monday-to-Friday    nW       Monday-to-Friday nearest to day n
//     w#k      k-th weekday w           wL       last weekday w of the month
//     H        a value derived from Options.Seed; also H/n, H(a-b), H(a-b)/n
//
// The nicknames @hourly, @daily, @midnight, @weekly, @monthly, @yearly and
// @annually stand for the usual lines.
//
// # Daylight saving
//
// A schedule whose hour field repeats without an upper bound (*, */n, a/n,
// H/n) is interval-like: it fires at every real instant whose civil time
// matches, so an hourly job fires once in each elapsed hour. Any other schedule names
// times of day: it follows [GapPolicy] when a time does not exist and [FoldPolicy] when
// it exists twice.
package cron
