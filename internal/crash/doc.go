// Package crash holds the tests that kill the real program, again and again, and
// then ask it what it still knows. They own no code: only what the program
// promises to those who are outside of it.
//
// Each process is started, killed and started again on the same directory while
// producers go on. The tests log the seed of what they do; WHEELWORK_SEED repeats
// it, as far as the machine's timing allows. WHEELWORK_LONG=1 makes them as long
// as the project's promises are.
package crash
