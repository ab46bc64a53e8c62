package wasm

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// seeds adds the fixtures and some malformed modules.
func seeds(f *testing.F) {
	files, err := filepath.Glob("testdata/*.wasm")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(code)
	}
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Add([]byte("\x00asm\x0d\x00\x01\x00"))
	f.Add(nest(20, 0x04))
	f.Add(withHandlers(assemble([]byte{0, 0x41, 0, 0x0b}), "a", "b"))
}

// FuzzInspect checks that Inspect refuses a module with a one-line ErrInvalidModule, or
// describes a module that loads.
func FuzzInspect(f *testing.F) {
	seeds(f)
	e, err := New(context.Background(), Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { e.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, code []byte) {
		info, err := Inspect(code)
		if err != nil {
			if !errors.Is(err, ErrInvalidModule) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("refused with %q", err)
			}
			return
		}
		if err := e.load(info.Digest, code); err != nil {
			t.Fatalf("accepted, but does not load: %v", err)
		}
		e.mu.Lock()
		m := e.modules[info.Digest]
		delete(e.modules, info.Digest) // otherwise the fuzzer would fill the memory
		e.mu.Unlock()
		if err := m.compiled.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRewrite checks that metering neither makes a valid module invalid nor an
// invalid one valid, whatever it imports and exports.
func FuzzRewrite(f *testing.F) {
	seeds(f)
	f.Add(taking())
	for seed := range uint64(4) {
		f.Add(taker(rand.New(rand.NewPCG(seed, 0))))
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(inspect.Features))
	f.Cleanup(func() { rt.Close(ctx) })
	opts := inspect.DefaultLimits().Options()
	opts.Marks = true
	f.Fuzz(func(t *testing.T, code []byte) {
		m, err := wasmbinary.Parse(code, wasmbinary.DefaultLimits())
		if err != nil || reserved(m) {
			return
		}
		plain, plainErr := rt.CompileModule(ctx, withoutCustoms(code))
		metered, meteredErr := rt.CompileModule(ctx, meter.Rewrite(m, opts).Code)
		if (plainErr == nil) != (meteredErr == nil) {
			t.Fatalf("plain: %v, metered: %v", plainErr, meteredErr)
		}
		if plainErr == nil {
			plain.Close(ctx)
			metered.Close(ctx)
		}
	})
}

// reserved reports whether a module exports a name that the rewriter may add.
func reserved(m *wasmbinary.Module) bool {
	for _, e := range m.Exports {
		if strings.HasPrefix(e.Name, meter.Prefix) {
			return true
		}
	}
	return false
}

// withoutCustoms removes custom sections, as the rewriter does. The engine also refuses
// modules because of the contents of custom sections.
func withoutCustoms(code []byte) []byte {
	out := append([]byte(nil), code[:8]...)
	for rest := code[8:]; len(rest) > 0; {
		size, head := 0, 1
		for shift := 0; ; shift += 7 {
			b := rest[head]
			size |= int(b&0x7f) << shift
			if head++; b < 0x80 {
				break
			}
		}
		if rest[0] != wasmbinary.SectionCustom {
			out = append(out, rest[:head+size]...)
		}
		rest = rest[head+size:]
	}
	return out
}
