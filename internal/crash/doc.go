// Package crash holds the tests that kill the real program, again and again, and
// then ask it what it still knows. They own no code: only what the program
// promises to those who are outside of it.
//
// Each process is started, killed and started again on the same directory while
// producers go on. The tests log the seed of what they do; WHEELWORK_SEED repeats
// it, as far as the machine's timing allows. WHEELWORK_LONG=1 makes them as long
// as the project's promises are, 200 rounds; WHEELWORK_ROUNDS says the number
// outright, and a thousand rounds take about twenty minutes:
//
//	WHEELWORK_ROUNDS=1000 go test ./internal/crash -run '^TestKill$' -count=1 -timeout 1h
//
// The mq package kills a process that does nothing but append in the same way,
// with each of its writers, and does so much faster.
package crash
