package wasm

import (
	"bytes"
	"context"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

// describeTime bounds the time of wheelwork_describe.
const describeTime = 2 * time.Second

// Pack returns the bytes under which a module is stored: its code with its manifest
// section. text is a manifest that was uploaded beside the code, or "". Without text and
// without a section Pack calls wheelwork_describe, if the module exports it. This runs the
// module's code for at most two seconds and with no grants. Pack returns any other module
// unchanged. Inspect decides whether the result may run.
func Pack(ctx context.Context, code []byte, text string) ([]byte, error) {
	if text != "" {
		return inspect.WithManifest(code, text)
	}
	// A module without the name cannot export it, so it need not be parsed.
	if bytes.HasPrefix(code, []byte("\x00asm")) && !bytes.Contains(code, []byte(abi.ExportDescribe)) {
		return code, nil
	}
	info, itself, err := inspect.DescribesItself(code)
	if err != nil {
		return nil, err
	}
	if !itself {
		return code, nil
	}
	if text, err = describe(ctx, code, info); err != nil {
		return nil, err
	}
	return inspect.WithManifest(code, text)
}

// describe runs wheelwork_describe and returns its output, the manifest.
func describe(ctx context.Context, code []byte, info inspect.Info) (string, error) {
	e, err := New(ctx, Config{Slots: 1})
	if err != nil {
		return "", err
	}
	defer e.Close(context.WithoutCancel(ctx)) //nolint:errcheck // frees memory; it has no error to tell
	if err := e.Load(ctx, info.Digest, code); err != nil {
		return "", err
	}
	task := runtime.Task{Digest: info.Digest, Deadline: time.Now().Add(describeTime), Limits: runtime.Limits{OutputBytes: manifest.MaxBytes}}
	c := guest.NewCall(ctx, &task, guest.Discard{}, &e.host)
	if err := c.Start(); err != nil {
		return "", err
	}
	defer c.ReleaseSlot()
	inst, err := e.reactor(c, e.module(info.Digest), defaultMemoryBytes)
	if err == nil {
		defer inst.close(c) //nolint:errcheck // frees memory; it has no error to tell
		inst.arm(c, e.cfg.StackBytes)
		c.Describe()
		_, err = inst.mod.ExportedFunction(abi.ExportDescribe).Call(c)
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", inspect.Refuse("its %s failed (%s): repair it, or upload the module with a manifest beside it", abi.ExportDescribe, c.ErrorResult(err).Error)
	}
	return string(c.Output()), nil
}
