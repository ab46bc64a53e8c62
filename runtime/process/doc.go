// Package process starts programs for executors, and sees to it that none of
// them outlives this one, however it ends.
//
// A program is the leader of a process group of its own, and whatever it starts
// is in that group unless it takes pains to leave it. The group is killed when
// its leader has ended, when it is told to, and when this process ends:
//
//   - in order: by [Keeper.Close];
//   - killed: on Linux the kernel kills the leader with its parent
//     (PR_SET_PDEATHSIG). Everywhere the guard kills the whole group: a small
//     process of its own that was told of the group and whose standard input
//     has ended. It is the same program, started again; see [Guard].
//
// On systems without process groups the program alone is killed.
package process
