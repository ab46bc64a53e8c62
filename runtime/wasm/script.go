package wasm

import (
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wheelworkhq/wheelwork/runtime"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// The kinds of modules for scripts.
const (
	Script      Kind = "script"      // source text and the digest of its interpreter
	Interpreter Kind = "interpreter" // runs scripts; not usable by itself
)

// codeScript is the result code of a script that cannot be started, for example because of
// a syntax error.
const codeScript = "script"

// inspectScript describes a script; ok is false when the module is not a script.
func inspectScript(code []byte, info *Info) (ok bool, err error) {
	s, err := scripts.Unpack(code)
	switch {
	case errors.Is(err, scripts.ErrNotScript):
		return false, nil
	case err != nil:
		return true, refuse("%v", err)
	}
	info.Kind, info.Interpreter = Script, s.Interpreter
	if err := fits(info); err != nil {
		return true, err
	}
	info.Handlers, info.Needs = info.handlers(), []string{scripts.Ability(s.Interpreter)}
	return true, nil
}

// inspectInterpreter adds the functions of an interpreter's driver to served; ok is false
// when the module is not a known interpreter.
func inspectInterpreter(info *Info, served map[string]binary.FuncType) (ok bool) {
	known, ok := scripts.ByDigest(info.Digest)
	if ok && known.Language == scripts.JavaScript {
		for _, f := range quickFunctions() {
			served[quickModule+"."+f.name] = binary.FuncType{Params: f.params, Results: f.results}
		}
	}
	return ok
}

// loadScript prepares a script to run. Its interpreter must be loaded; otherwise the error
// is a *runtime.NeedsError with the digest of the interpreter.
func (e *Engine) loadScript(digest string, code []byte) error {
	_, info, err := inspect(code)
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

// scriptError is an error of a script that prevents its start, or that the script cannot
// catch.
type scriptError struct{ text, trace string }

func (e *scriptError) Error() string { return e.text }

// runScript runs a handler of a script.
func (e *Engine) runScript(c *call, m *module, limit int64) runtime.Result {
	if m.script.Language == scripts.Python {
		return e.runPython(c, m, limit)
	}
	return e.runQuick(c, m, limit)
}

// runQuick runs a handler in JavaScript. Its instance is reused, like a reactor's, if the
// call returns normally.
func (e *Engine) runQuick(c *call, m *module, limit int64) runtime.Result {
	inst, err := e.reactor(c, m, limit)
	if err != nil {
		return c.scriptResult(err, "the script cannot be started: ")
	}
	inst.arm(c, e.cfg.StackBytes)
	start := c.sliceStart
	status, err := inst.quick.run(c, inst, handlerName(c.task))
	took := time.Duration(now() - start)
	var r runtime.Result
	if err != nil {
		_ = inst.close(c) // its state is unknown
		r = c.scriptResult(err, "")
	} else {
		e.recycle(c, inst)
		r = c.statusResult(status)
	}
	r.Duration = took
	return r
}

// scriptResult distinguishes an error in a script from other failures of the guest.
func (c *call) scriptResult(err error, when string) runtime.Result {
	var bad *scriptError
	if c.cause == nil && errors.As(err, &bad) {
		r := failed(runtime.Permanent, codeScript, "%s%s", when, bad.text)
		r.Trace = bad.trace
		return r
	}
	return c.notStarted(err)
}

// startScript loads the script in a new instance of its interpreter.
func (e *Engine) startScript(c *call, inst *instance) error {
	if inst.module.script == nil {
		return nil
	}
	c.starting = true
	defer func() { c.starting = false }()
	inst.arm(c, e.cfg.StackBytes)
	return inst.quick.start(c, inst)
}

// scriptConfig returns the environment of the interpreter of a script.
func (inst *instance) scriptConfig(cfg wazero.ModuleConfig, t *runtime.Task) wazero.ModuleConfig {
	if inst.module.script.Language == scripts.Python {
		return inst.pythonConfig(cfg, t)
	}
	return cfg.WithStdout(logStream{inst})
}
