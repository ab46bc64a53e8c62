package wasm

import (
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/cpython"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/quickjs"
)

// codeScript is the result code of a script that cannot be started, for example because of
// a syntax error.
const codeScript = "script"

// loadScript prepares a script to run. Its interpreter must be loaded; otherwise the error
// is a *runtime.NeedsError with the digest of the interpreter.
func (e *Engine) loadScript(digest string, code []byte) error {
	info, err := inspect.Describe(code)
	if err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	s, err := scripts.Unpack(code)
	if err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	interpreter := e.module(s.Interpreter)
	if interpreter == nil {
		return &runtime.NeedsError{Digest: s.Interpreter}
	}
	info.MinMemoryBytes = interpreter.info.MinMemoryBytes
	m := &module{
		info: info, compiled: interpreter.compiled, globals: interpreter.globals,
		resettable: interpreter.resettable, lines: interpreter.lines, script: &s,
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.modules[s.Interpreter] != interpreter { // it was unloaded meanwhile, together with its scripts
		return &runtime.NeedsError{Digest: s.Interpreter}
	}
	e.modules[digest] = m
	e.latest.Store(nil)
	return nil
}

// InterpreterOf returns the digest of the interpreter of a loaded script, or "" for other
// modules.
func (e *Engine) InterpreterOf(digest string) string {
	if m := e.module(digest); m != nil && m.script != nil {
		return m.script.Interpreter
	}
	return ""
}

// scriptsOf returns the digests of the loaded scripts of an interpreter.
func (e *Engine) scriptsOf(interpreter string) (digests []string) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for digest, m := range e.modules {
		if m.script != nil && m.script.Interpreter == interpreter {
			digests = append(digests, digest)
		}
	}
	return digests
}

// runScript runs a handler of a script.
func (e *Engine) runScript(c *guest.Call, m *module, limit int64) runtime.Result {
	if m.script.Language == scripts.Python {
		return e.runPython(c, m, limit)
	}
	return e.runQuick(c, m, limit)
}

// runQuick runs a handler in JavaScript. Its instance is reused, like a reactor's, if the
// call returns normally.
func (e *Engine) runQuick(c *guest.Call, m *module, limit int64) runtime.Result {
	inst, err := e.reactor(c, m, limit)
	if err != nil {
		return scriptResult(c, err, "the script cannot be started: ")
	}
	inst.arm(c, e.cfg.StackBytes)
	start := c.Seen()
	status, err := inst.quick.Run(c, guest.HandlerName(c.Task))
	took := time.Duration(guest.Now() - start)
	var r runtime.Result
	if err != nil {
		_ = inst.close(c) // its state is unknown
		r = scriptResult(c, err, "")
	} else {
		e.recycle(c, inst)
		r = c.StatusResult(status)
	}
	r.Duration = took
	return r
}

// runPython runs a handler in Python in a new instance.
func (e *Engine) runPython(c *guest.Call, m *module, limit int64) runtime.Result {
	start := time.Now()
	files, unmount, err := e.mount(c)
	if err != nil {
		return guest.Failed(runtime.HostError, guest.CodeFiles, "%v", err)
	}
	defer unmount()
	if files == nil {
		files = wazero.NewFSConfig()
	}
	bridge := cpython.NewBridge(c)
	c.Interpreter = bridge
	inst, err := e.instantiate(c, m, limit, cpython.Mount(files, m.script))
	if err != nil {
		return c.NotStarted(err)
	}
	defer inst.close(c) //nolint:errcheck // frees memory; it has no error to tell
	inst.arm(c, e.cfg.StackBytes)
	_, err = inst.mod.ExportedFunction(abi.ExportStart).Call(c)
	r := c.CommandResult(err)
	if status, ok := bridge.Status(); ok && r.Outcome == runtime.Succeeded {
		r = c.StatusResult(status)
	}
	r.Duration = time.Since(start)
	return r
}

// scriptResult distinguishes an error in a script from other failures of the guest.
func scriptResult(c *guest.Call, err error, when string) runtime.Result {
	var bad *quickjs.Error
	if c.Cause() == nil && errors.As(err, &bad) {
		r := guest.Failed(runtime.Permanent, codeScript, "%s%s", when, bad.Text)
		r.Trace = bad.Trace
		return r
	}
	return c.NotStarted(err)
}

// startScript loads the script in a new instance of its interpreter.
func (e *Engine) startScript(c *guest.Call, inst *instance) error {
	if inst.module.script == nil {
		return nil
	}
	defer c.Initialize()()
	inst.arm(c, e.cfg.StackBytes)
	return inst.quick.Start(c)
}

// scriptConfig returns the environment of the interpreter of a script.
func (inst *instance) scriptConfig(cfg wazero.ModuleConfig) wazero.ModuleConfig {
	s := inst.module.script
	if s.Language == scripts.Python {
		return inst.call.Interpreter.(*cpython.Bridge).Config(cfg, s, guest.HandlerName(inst.call.Task))
	}
	return cfg.WithStdout(logStream{inst})
}
