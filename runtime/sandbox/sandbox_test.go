package sandbox

import (
	"strings"
	"testing"
)

func TestParseMode(t *testing.T) {
	for text, ok := range map[string]bool{"auto": true, "require": true, "off": true, "": false, "on": false, "Auto": false} {
		if m, err := ParseMode(text); (err == nil) != ok || ok && string(m) != text {
			t.Errorf("%q: %q, %v", text, m, err)
		}
	}
}

func TestMissing(t *testing.T) {
	if err := (Walls{Landlock: 1, Seccomp: true}).Missing(); err != nil {
		t.Error(err)
	}
	for want, w := range map[string]Walls{"lacks Landlock": {Seccomp: true}, "lacks seccomp": {Landlock: 3}, "Landlock (Linux 5.13, enabled with lsm=landlock) and seccomp": {}} {
		if err := w.Missing(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if (Walls{Landlock: 3}).Ports() || !(Walls{Landlock: 4}).Ports() {
		t.Error("ports are limited from version 4 on")
	}
}
