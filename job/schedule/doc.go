// Package schedule computes planned times: the schedule of a job, with its calendars, its
// days, its jitter and its misfire policy, becomes a [Plan].
//
// A plan is immutable and pure. It takes instants as arguments and reads no clock, so that
// every server plans the same times. Times are whole milliseconds. Cron lines are those of
// package cron, calendars may come from iCalendar files.
package schedule
