package hostabi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// MaxArgs is larger than the number of parameters of any function.
const MaxArgs = 16

// Functions returns all functions of wheelwork_v1, in the order of wheelwork.wit.
func Functions() []Function {
	types := func(t ...api.ValueType) []api.ValueType { return t }
	first := []Function{
		{"input_len", nil, types(i64), true, inputLen},
		{"input_read", types(i64, i32, i32), types(i32), true, inputRead},
		{"param_get", types(i32, i32, i32, i32), types(i32), true, paramGet},
		{"output_write", types(i32, i32), types(i32), false, outputWrite},
		{"fail", types(i32, i64, i32, i32, i32, i32), types(i32), true, fail},
		{"log", types(i32, i32, i32), types(i32), false, logLines},
		{"progress", types(i64, i64, i32, i32), types(i32), true, setProgress},
		{"cancelled", nil, types(i32), true, cancelled},
		{"now_ms", nil, types(i64), false, nowMs},
		{"random", types(i32, i32), types(i32), false, random},
	}
	return append(first, serviceFunctions()...)
}

// serviceFunctions are the functions that wheelwork_v1.1 added, in the order of
// wheelwork.wit.
func serviceFunctions() []Function {
	types := func(t ...api.ValueType) []api.ValueType { return t }
	entry := types(i32, i32, i32, i32) // bucket and key
	and := func(t ...api.ValueType) []api.ValueType { return slices.Concat(entry, t) }
	return []Function{
		{"sleep", types(i64), types(i32), true, sleep},
		{"checkpoint_get", types(i32, i32), types(i32), true, checkpointGet},
		{"checkpoint_put", types(i32, i32), types(i32), true, checkpointPut},
		{"kv_get", and(i32, i32, i32), types(i32), true, kvGet},
		{"kv_put", and(i32, i32), types(i64), true, kvPut},
		{"kv_cas", and(i32, i32, i64), types(i64), true, kvCAS},
		{"kv_delete", and(i64), types(i32), true, kvDelete},
		{"job_enqueue", types(i32, i32, i32, i32), types(i32), true, jobEnqueue},
		{"map", types(i32, i32), types(i32), true, mapParts},
		{"secret_get", types(i32, i32, i32, i32), types(i32), true, secretGet},
		{"http_send", types(i32, i32, i32, i32), types(i32), true, httpSend},
		{"http_head", types(i32, i32, i32), types(i32), true, httpHead},
		{"http_recv", types(i32, i32, i32), types(i32), true, httpRecv},
		{"http_close", types(i32), types(i32), true, httpClose},
		{"metric_add", types(i32, i32, i32, f64), types(i32), true, metricAdd},
		{"job_next", types(i32), types(i32), false, jobNext},
		{"job_done", types(i32), types(i32), true, jobDone},
	}
}

// Lookup returns the function of wheelwork_v1 that has the name.
func Lookup(name string) (f Function, ok bool) {
	f, ok = byName()[name]
	return f, ok
}

var byName = sync.OnceValue(func() map[string]Function {
	table := make(map[string]Function)
	for _, f := range Functions() {
		table[f.Name] = f
	}
	return table
})

// Served maps "module.function" to the type of each function that a module may import. The
// caller may change the map.
func Served() map[string]binary.FuncType {
	served := make(map[string]binary.FuncType, 64)
	for _, version := range previews() {
		for name, f := range engineWASI() {
			served[version+"."+name] = f.FuncType
		}
	}
	delete(served, preview0+".sock_accept")
	for _, f := range Functions() {
		served[abi.ImportModule+"."+f.Name] = f.Type()
	}
	return served
}

// Type returns the type of the function.
func (f *Function) Type() binary.FuncType {
	return binary.FuncType{Params: f.Params, Results: f.Results}
}

// A wasiFunction is the engine's implementation of a function of WASI preview 1.
type wasiFunction struct {
	binary.FuncType
	function api.GoModuleFunction // has no state of its own: it works on the module that calls it
}

// engineWASI reads the functions of WASI preview 1 from the engine, once.
var engineWASI = sync.OnceValue(func() map[string]wasiFunction {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	compiled, err := wasi_snapshot_preview1.NewBuilder(rt).Compile(ctx)
	if err != nil {
		panic(fmt.Sprintf("wasm: the engine's own WASI module does not compile: %v", err))
	}
	functions := make(map[string]wasiFunction)
	for name, def := range compiled.ExportedFunctions() {
		function, _ := def.GoFunction().(api.GoModuleFunction) // nil: the function has no access to the module
		functions[name] = wasiFunction{binary.FuncType{Params: def.ParamTypes(), Results: def.ResultTypes()}, function}
	}
	return functions
})
