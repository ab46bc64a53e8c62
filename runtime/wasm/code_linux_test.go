package wasm

import (
	"bufio"
	"context"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// machineCode returns the bytes and the number of mappings of the process that contain code
// and have no file.
func machineCode(t *testing.T) (bytes int64, pieces int) {
	t.Helper()
	for range 3 { // the engine frees unreferenced code in finalizers
		goruntime.GC()
	}
	done := make(chan struct{}) // finalizers run one after another, so all earlier ones have run when this one does
	goruntime.SetFinalizer(new([16]byte), func(*[16]byte) { close(done) })
	goruntime.GC()
	<-done
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 5 || !strings.Contains(fields[1], "x") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		a, err1 := strconv.ParseInt(from, 16, 64)
		b, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil {
			t.Fatal(lines.Text())
		}
		bytes, pieces = bytes+b-a, pieces+1
	}
	return bytes, pieces
}

// large returns a module with a few hundred kilobytes of machine code. Each number gives
// another module.
func large(number byte) []byte {
	body := []byte{0, 0x20, 0}
	for range 200 {
		body = append(body, 0x41, number&0x3f, 0x6a, 0x20, 0, 0x6c)
	}
	body = append(body, 0x0b)
	body = append(wasmbinary.AppendU32(nil, uint32(len(body))), body...)
	const functions = 120
	return built(part{wasmbinary.SectionFunction, many(functions, 0)}, part{wasmbinary.SectionCode, many(functions, body...)})
}

// TestUnloadedCodeIsGivenBack loads and unloads modules in several orders. Their code must
// be freed at once, not only when other modules replace it.
func TestUnloadedCodeIsGivenBack(t *testing.T) {
	// The engine sorts code by address, and the system maps new memory at the highest free
	// address. The mappings below force the engine's own code to a low address, so that it
	// does not stay last in the engine's list.
	var taken [][]byte
	for _, size := range append(slices.Repeat([]int{4 << 10}, 4000), 64<<20) {
		m, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, m)
	}
	e := newEngine(t, Config{CacheDir: t.TempDir()})
	for _, m := range taken {
		if err := syscall.Munmap(m); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := machineCode(t)
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}} {
		var digests []string
		for i := range order {
			digests = append(digests, load(t, e, large(byte(i))))
		}
		all, _ := machineCode(t)
		if all < before+5*100<<10 {
			t.Fatalf("five modules have %d bytes of code: they are too small for this test", all-before)
		}
		for n, i := range order {
			if err := e.Unload(t.Context(), digests[i]); err != nil {
				t.Fatal(err)
			}
			left, _ := machineCode(t)
			if want := before + (all-before)*int64(len(order)-n-1)/int64(len(order)) + 64<<10; left > want {
				t.Errorf("order %v: %d of 5 are unloaded and %d KiB of code are left of %d", order, n+1, (left-before)>>10, (all-before)>>10)
			}
		}
	}
}

// TestStandInsAreGivenBack checks that the stubs of a module's optional functions are freed
// with the module, but not while a task may call them.
func TestStandInsAreGivenBack(t *testing.T) {
	e := newEngine(t, Config{})
	code := withSection(fixture(t, "optional"), "wheelwork.manifest", `{"optional":["telepathy","foresight"]}`)
	digest := load(t, e, code)
	_, before := machineCode(t)
	for range 50 {
		if err := e.Unload(t.Context(), digest); err != nil {
			t.Fatal(err)
		}
		load(t, e, code)
	}
	if _, after := machineCode(t); after > before+5 || len(e.placeholders.each) != 0 {
		t.Errorf("%d pieces of code, %d after it was loaded 50 times more, and %d fillers", before, after, len(e.placeholders.each))
	}
	c := guest.NewCall(context.Background(), &runtime.Task{Digest: digest}, &recorder{}, &e.host)
	inst, err := e.instantiate(c, e.module(digest), defaultMemoryBytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.close(t.Context()) //nolint:errcheck // frees memory; it has no error to tell
	if err := e.Unload(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	machineCode(t) // frees everything that can be freed
	inst.arm(c, e.cfg.StackBytes)
	if _, err := inst.handle.Call(c, 0); err != nil {
		t.Errorf("a task that was running: %v", err)
	}
	if want := []byte{0xcc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xcc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}; !slices.Equal(c.Output(), want) {
		t.Errorf("it was answered % x", c.Output())
	}
}
