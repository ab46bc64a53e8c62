// Package process starts programs for executors, and ensures that none of them outlives
// this process, however it ends.
//
// Each program is the leader of its own process group. The processes that it starts are
// in that group unless they leave it. The group is killed when its leader has ended, on
// request, and when this process ends:
//
//   - After an orderly end: [Keeper.Close] kills the group.
//   - After this process was killed: on Linux, the kernel kills the leader together
//     with its parent (PR_SET_PDEATHSIG). On every Unix system, the guard kills the
//     whole group. The guard is a small process, started from the same program. It
//     knows the groups, and acts when its standard input ends; see [Guard].
//
// On systems without process groups, only the program itself is killed.
package process
