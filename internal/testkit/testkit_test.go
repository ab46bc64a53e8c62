package testkit

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
)

// recorder is a test that records how it ends first. Unlike a real one it continues.
type recorder struct {
	testing.TB
	ended string
}

func (*recorder) Helper() {}

func (*recorder) Logf(string, ...any) {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.ended = cmp.Or(r.ended, "failed: "+fmt.Sprintf(format, args...))
}

func (r *recorder) Skip(args ...any) { r.ended = cmp.Or(r.ended, "skipped: "+fmt.Sprint(args...)) }

// TestLacks checks that a test without its tool is skipped, and fails where all tools are
// required.
func TestLacks(t *testing.T) {
	for require, want := range map[string]string{"": "skipped: needs cc", "all": "failed: needs cc, and WHEELWORK_REQUIRE=all", "some": "skipped: needs cc"} {
		t.Setenv(envRequire, require)
		r := &recorder{TB: t}
		if Lacks(r, "needs %s", "cc"); r.ended != want {
			t.Errorf("%q: %q, want %q", require, r.ended, want)
		}
	}
}

// TestNumbers checks that seeds and rounds come from the environment, and that a test with
// a wrong one fails.
func TestNumbers(t *testing.T) {
	t.Setenv(envSeed, "7")
	t.Setenv(envRounds, "3")
	if s, n := Seed(t), Rounds(t, 9); s != 7 || n != 3 {
		t.Errorf("seed %d, %d rounds", s, n)
	}
	if all := Seeds(t, 1, 2); !slices.Equal(all, []uint64{7}) {
		t.Errorf("seeds %v, want that of the environment", all)
	}
	t.Setenv(envSeed, "")
	t.Setenv(envRounds, "")
	if a, b, n := Seed(t), Seed(t), Rounds(t, 9); a == b || n != 9 {
		t.Errorf("seeds %d and %d, %d rounds", a, b, n)
	}
	if all := Seeds(t, 1, 2); !slices.Equal(all, []uint64{1, 2}) {
		t.Errorf("seeds %v, want the usual ones", all)
	}
	t.Setenv(envSeed, "x")
	r := &recorder{TB: t}
	if Seed(r); !strings.HasPrefix(r.ended, "failed") {
		t.Errorf("the seed x: %q", r.ended)
	}
	for _, wrong := range []string{"0", "-1", "x"} {
		t.Setenv(envRounds, wrong)
		r := &recorder{TB: t}
		if Rounds(r, 9); !strings.HasPrefix(r.ended, "failed") {
			t.Errorf("%s rounds: %q", wrong, r.ended)
		}
	}
}

// TestFreeAddress checks that no address is given twice, over so many draws that a pair of
// equal ones is almost certain, and that a process can listen there.
func TestFreeAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		a := FreeAddress(t)
		if seen[a] {
			t.Fatalf("%s is given twice", a)
		}
		seen[a] = true
	}
	ln, err := net.Listen("tcp", FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
}
