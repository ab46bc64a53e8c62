package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/cpython"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/quickjs"
)

// checkTime bounds the time of CheckScript after the interpreter is compiled.
const checkTime = 30 * time.Second

// CheckScript parses the sources of a loaded script with its interpreter, and executes none of
// them. It refuses a script with an error of syntax and names file, line and column. It accepts
// every other module.
func (e *Engine) CheckScript(ctx context.Context, digest string) error {
	m := e.module(digest)
	if m == nil || m.script == nil {
		return nil
	}
	if m.script.Language == scripts.Python {
		return e.checkPython(ctx, m)
	}
	return e.checkQuick(ctx, m)
}

func (e *Engine) checkQuick(ctx context.Context, m *module) error {
	task := runtime.Task{Digest: m.info.Digest, Deadline: time.Now().Add(checkTime)}
	c := guest.NewCall(ctx, &task, guest.Discard{}, &e.host)
	if err := c.Start(); err != nil {
		return err
	}
	defer c.ReleaseSlot()
	inst, err := e.instantiate(c, m, min(defaultMemoryBytes, e.cfg.MaxMemoryBytes), nil)
	if err != nil {
		return err
	}
	defer inst.close(c) //nolint:errcheck // frees memory; it has no error to tell
	if err = e.initialize(c, inst); err == nil {
		end := c.Initialize() // hides the task from the guest
		inst.arm(c, e.cfg.StackBytes)
		err = inst.quick.Check(c)
		end()
	}
	if err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var bad *quickjs.Error
	if errors.As(err, &bad) && c.Cause() == nil {
		return inspect.Refuse("%s", bad.Text)
	}
	return inspect.Refuse("%s cannot be parsed: %s", m.script.Main, c.ErrorResult(err).Error)
}

func (e *Engine) checkPython(ctx context.Context, m *module) error {
	input, err := json.Marshal(m.script.Files)
	if err != nil {
		return fmt.Errorf("check the script: %w", err)
	}
	r := e.Run(ctx, runtime.Task{
		Module: "python", Digest: m.script.Interpreter, Args: cpython.CheckArgs(), Input: input, Deadline: time.Now().Add(checkTime),
	}, guest.Discard{})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.Outcome == runtime.HostError:
		return fmt.Errorf("check the script: %s", r.Error)
	case r.Outcome != runtime.Succeeded:
		return inspect.Refuse("%s cannot be parsed: %s", m.script.Main, r.Error)
	case len(r.Output) > 0:
		return inspect.Refuse("%s", r.Output)
	}
	return nil
}
