package wasm

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestPreview0 runs a module that imports wasi_unstable and checks the constants and layouts in
// which that differs from preview 1.
func TestPreview0(t *testing.T) {
	e := newEngine(t, Config{Dirs: map[string]string{"data": t.TempDir()}})
	digest := load(t, e, fixture(t, "preview0"))
	const badFile, fault, invalid, regularFile = 8, 21, 28, 4
	for name, grant := range map[string]runtime.FileGrant{
		"in memory":   {Mount: "/data", Write: true},
		"a directory": {Mount: "/data", Dir: "data", Write: true},
	} {
		start := time.Now()
		r := e.Run(context.Background(), runtime.Task{
			Digest: digest, Deadline: within(20 * time.Second), Grants: &runtime.Grants{Files: []runtime.FileGrant{grant}},
		}, &recorder{})
		if r.Outcome != runtime.Succeeded {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		var got []uint32
		for b := range slices.Chunk(r.Output, 4) {
			got = append(got, binary.LittleEndian.Uint32(b))
		}
		if want := []uint32{
			0, 0, // path_open, fd_write
			0, 2, 0, 3, 0, 4, invalid, 0xffffffff, // fd_seek and its result
			0, regularFile, 1, 5, 1, 1, // fd_filestat_get
			0, regularFile, 1, 5, 1, 1, // path_filestat_get
			fault, badFile, // past the end of the memory; no such file
			0, 1, 8, // poll_oneoff, one event, its id
		}; !slices.Equal(got, want) {
			t.Errorf("%s:\n%v, want\n%v", name, got, want)
		}
		if took := time.Since(start); took < 20*time.Millisecond || took > 5*time.Second {
			t.Errorf("%s: the poll of 20 ms ended after %v", name, took)
		}
	}
}

// TestPreview0OfAnOldCompiler runs a command that a compiler of 2019 made with its own
// declarations of preview 0, so that the constants and layouts are not those of this package.
func TestPreview0OfAnOldCompiler(t *testing.T) {
	e := newEngine(t, Config{Dirs: map[string]string{"data": t.TempDir()}})
	digest := load(t, e, fixture(t, "asc08"))
	for name, grant := range map[string]runtime.FileGrant{
		"in memory":   {Mount: "/data", Write: true},
		"a directory": {Mount: "/data", Dir: "data", Write: true},
	} {
		r := e.Run(context.Background(), runtime.Task{
			Digest: digest, Deadline: within(20 * time.Second), Input: []byte("its input"), Grants: &runtime.Grants{Files: []runtime.FileGrant{grant}},
		}, &recorder{})
		if want := "ghijklmnopqrstuv\nopqrstuv\ntuv\n22\n4\n22\nits input"; r.Outcome != runtime.Succeeded || string(r.Output) != want {
			t.Errorf("%s: %+v with %q, want %q", name, r, r.Output, want)
		}
	}
}

func TestInspectPreview0(t *testing.T) {
	info, err := Inspect(fixture(t, "preview0"))
	if err != nil || info.Kind != Command || !slices.Equal(info.Needs, []string{"wasi-p0"}) {
		t.Errorf("%s needs %v, %v; want a command that needs wasi-p0", info.Kind, info.Needs, err)
	}
	other := strings.ReplaceAll(string(fixture(t, "preview0")), "\x08fd_write", "\x08fd_wrote")
	if _, err := Inspect([]byte(other)); err == nil || !strings.Contains(err.Error(), "no function of WASI preview 0") {
		t.Errorf("an unknown function: %v", err)
	}
}
