// Package fair divides the hosts of a partition among its apps by weighted fair queueing
// (ADR 37). An [App] has the queue of its runs that may be dispatched, and the time of hosts
// that it has used. The app that has used the least time for its weight is served first.
// Within an app, priorities come first, then the jobs take turns; runs of quick and of slow
// jobs have lanes of their own.
//
// The expected duration of a run is its pace, one byte that is learned from the runs of its
// job and of jobs that are alike.
//
// The package decides nothing about hosts. Its values belong to the loop of sched/core, and
// are not safe for concurrent use.
package fair
