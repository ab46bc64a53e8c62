package inspect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	goruntime "runtime"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

// Features are the Wasm features that guests may use: WebAssembly 2.0 and the later
// features that compilers emit. Threads and exceptions are off, because the rewriter does
// not support them.
const Features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// Limits are the limits of an engine that determine how a module is rewritten.
type Limits struct {
	StackBytes  int64 // native stack of one call of a guest
	MemoryBytes int64 // linear memory of one instance
}

// DefaultLimits returns the limits of an engine that is not configured.
func DefaultLimits() Limits { return Limits{StackBytes: 16 << 20, MemoryBytes: 1 << 30} }

// MemoryPages returns the number of whole pages of the linear memory.
func (l Limits) MemoryPages() uint32 { return uint32(l.MemoryBytes / binary.PageSize) }

// Options returns the options of the rewriter.
func (l Limits) Options() meter.Options {
	return meter.Options{
		StackBytes:    l.StackBytes,
		MemoryPages:   l.MemoryPages(),
		TableElements: binary.DefaultLimits().TableElements,
		Writes:        hostabi.Writes,
		Batch:         meter.Batch{Module: abi.ImportModule, Done: "job_done", Next: "job_next"},
	}
}

// Compile compiles a rewritten module. It turns a panic of the compiler into an error: the
// code is untrusted, and a compiler has more untested paths than a parser.
func Compile(rt wazero.Runtime, code []byte) (_ wazero.CompiledModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Refuse("the compiler failed: %v", r)
		}
	}()
	// The background context is used because other callers may wait for the same
	// compilation.
	ctx := experimental.WithCompilationWorkers(context.Background(), goruntime.GOMAXPROCS(0))
	compiled, err := rt.CompileModule(ctx, code)
	if err != nil {
		return nil, Refuse("%s: build it again with a current compiler", oneline.First(err.Error()))
	}
	return compiled, nil
}

// checkTypes makes the engine's interpreter check the module's types. It checks the
// rewritten form, because that form will run and has no unchecked sections.
func checkTypes(m *binary.Module) error {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().
		WithCoreFeatures(Features).WithMemoryLimitPages(DefaultLimits().MemoryPages()))
	defer rt.Close(ctx)
	compiled, err := Compile(rt, meter.Rewrite(m, DefaultLimits().Options()).Code)
	if err != nil {
		return err
	}
	return compiled.Close(ctx)
}

// Digest returns the digest of a module's bytes: "sha256:<hex>".
func Digest(code []byte) string {
	sum := sha256.Sum256(code)
	return "sha256:" + hex.EncodeToString(sum[:])
}
