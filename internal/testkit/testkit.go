// Package testkit has what the tests of several packages need: tools that may be missing,
// seeds, the length of a run, and free addresses. Only tests import it.
//
// Connections in fake time are in internal/memconn, and the compilers of handlers in
// internal/toolchain, which the program uses too.
package testkit

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Environment variables that tests read.
const (
	envRequire = "WHEELWORK_REQUIRE" // all: a test that lacks a tool fails instead of skipping
	envSeed    = "WHEELWORK_SEED"    // the seed of random tests
	envLong    = "WHEELWORK_LONG"    // not empty: random tests run for minutes
	envRounds  = "WHEELWORK_ROUNDS"  // how often a test repeats what it does
)

// Required reports whether a test that lacks a tool must fail.
func Required() bool { return os.Getenv(envRequire) == "all" }

// Lacks ends a test because this machine lacks what the text says, such as a compiler. The
// test is skipped; where everything is required, it fails.
func Lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	if Required() {
		t.Fatalf("%s, and %s=all", text, envRequire)
	}
	t.Skip(text)
}

// NoContexts returns the tests of a package so that the commands that they start do not see
// the contexts of the developer. TestMain passes its argument through it.
func NoContexts(tests interface{ Run() int }) interface{ Run() int } { return withoutContexts{tests} }

type withoutContexts struct{ tests interface{ Run() int } }

func (w withoutContexts) Run() int {
	if err := os.Setenv("XDG_CONFIG_HOME", os.DevNull); err != nil { // no file is below it
		panic(err)
	}
	return w.tests.Run()
}

// Long reports whether random tests should run for minutes.
func Long() bool { return os.Getenv(envLong) != "" }

// Seed returns the seed of a random test: that of the environment, or a new one. It logs
// the seed, with which the test can be repeated.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(envSeed), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", envSeed, err)
	}
	t.Logf("%s=%d", envSeed, seed)
	return seed
}

// Seeds returns the seeds of a random test: that of the environment alone, or the usual
// ones.
func Seeds(t testing.TB, usual ...uint64) []uint64 {
	t.Helper()
	if os.Getenv(envSeed) == "" {
		return usual
	}
	return []uint64{Seed(t)}
}

// Rounds returns how often a test repeats what it does: the number of the environment, or
// n.
func Rounds(t testing.TB, n int) int {
	t.Helper()
	text := os.Getenv(envRounds)
	if text == "" {
		return n
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("%s=%s is no number of rounds", envRounds, text)
	}
	return rounds
}

// given has the addresses that FreeAddress has returned.
var given sync.Map

// FreeAddress returns a loopback address without a listener, another one at each call. Its
// port is below those that the kernel gives to outgoing connections. So it stays free while
// the process that should listen is dead, and no client can connect to itself.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		if ln, err := net.Listen("tcp", address); err == nil {
			if err := ln.Close(); err != nil {
				t.Fatal(err)
			}
			return address
		}
	}
	t.Fatal("no free port in 100 attempts")
	return ""
}
