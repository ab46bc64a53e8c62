// Package fault holds the tests that take a cluster of real processes apart: three
// servers, three hosts, a nameserver and three members of etcd on loopback, while
// producers send orders and schedules fire. The tests kill processes, stop them for
// longer than their lease and cut them off from each other. Servers that contain a member
// of etcd are also cut off from each other's members. Disks are lost, filled and slowed
// down, and clocks are wrong. At the end
// [github.com/wheelworkhq/wheelwork/internal/history] reports the broken promises. The
// package owns no production code.
//
// The tests take minutes and need a machine of their own, so they run only on request:
//
//	WHEELWORK_FAULTS=short go test ./internal/fault -count=1 -v
//	WHEELWORK_FAULTS=long go test ./internal/fault -count=1 -v -timeout 2h
//
// The short form does each kind of fault once: half of them to a cluster with the etcd of
// journal/etcd, half to a cluster with Debian's. The long form does all of them to both,
// several times (WHEELWORK_ROUNDS, default 5), and adds those that take too long for the
// short form. The tests log the seed, which decides the part, the moment and the duration
// of each fault. WHEELWORK_SEED repeats it, as far as the machine's timing allows.
// WHEELWORK_ONLY=KIND runs one kind alone.
package fault
