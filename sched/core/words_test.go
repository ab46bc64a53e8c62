package core

import (
	"testing"
)

func TestNumbersInWords(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{plural(1, "1 run is", "%d runs are"), "1 run is"},
		{plural(0, "1 run is", "%d runs are"), "0 runs are"},
		{plural(2, "once", "%d times"), "2 times"},
		{haveEnded(0, 1, "part"), "0 of its 1 part have ended"},
		{haveEnded(1, 3, "part"), "1 of its 3 parts has ended"},
		{haveEnded(2, 5, "node"), "2 of its 5 nodes have ended"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}
