// Package crash holds the tests that kill the real program repeatedly and then check what
// it still knows. The package owns no production code. Its tests check only the promises
// that the program makes to its clients.
//
// A test starts, kills and restarts each process on the same directory while producers
// keep sending. The tests log their random seed. WHEELWORK_SEED repeats it, as far as the
// machine's timing allows. WHEELWORK_LONG=1 runs 200 rounds, the number that the project
// promises. WHEELWORK_ROUNDS sets the number directly, and a thousand rounds take about
// twenty minutes:
//
//	WHEELWORK_ROUNDS=1000 go test ./internal/crash -run '^TestKill$' -count=1 -timeout 1h
//
// The mq package has a faster test of the same kind: it kills a process that only
// appends, once with each of its writers.
package crash
