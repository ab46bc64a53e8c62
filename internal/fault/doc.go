// Package fault holds the tests that take a cluster of real processes apart:
// three servers, three hosts, a nameserver and three members of etcd on loopback, while
// producers order and schedules fire. Processes are killed, stopped for longer than
// their lease, and cut off from each other, servers with a member of etcd in them also
// from each other's members; disks are lost, filled up and slowed down;
// clocks are wrong. In the end [github.com/wheelworkhq/wheelwork/internal/history]
// says which promise was broken. The package owns no code.
//
// They take minutes and a machine of their own, so they want to be asked:
//
//	WHEELWORK_FAULTS=short go test ./internal/fault -count=1 -v
//	WHEELWORK_FAULTS=long go test ./internal/fault -count=1 -v -timeout 2h
//
// The short form does each kind of fault once, half of them to an etcd that is
// the one of journal/etcd, half to Debian's; the long form does all to both, again and
// again (WHEELWORK_ROUNDS, default 5), and adds the clocks. The seed, which says what
// happens to whom and for how long, is logged, and WHEELWORK_SEED repeats it, as far
// as the machine's timing allows. WHEELWORK_ONLY=KIND does one kind alone.
package fault
