package wasm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/files"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

// Run runs one task. It blocks until the guest has ended; see runtime.Executor. The error
// of the result is one line, its trace at most maxTrace bytes.
func (e *Engine) Run(ctx context.Context, t runtime.Task, sink runtime.Sink) runtime.Result {
	p, refused := e.prepare(&t)
	if refused != nil {
		return *refused
	}
	c := e.calls.Get().(*guest.Call)
	defer e.release(c)
	c.BeginCopy(ctx, &t, sink, &e.host)
	if err := c.Start(); err != nil {
		return c.Result(err)
	}
	defer c.ReleaseSlot()
	var r runtime.Result
	switch {
	case p.module.info.Kind == inspect.Command, p.module.info.Kind == inspect.Interpreter:
		r = e.runCommand(c, p.module, p.limit)
	case p.module.info.Kind == inspect.Script:
		r = e.runScript(c, p.module, p.limit)
	case len(mounts(c.Task)) > 0:
		r = e.runMounted(c, p.module, p.limit, p.index)
	default:
		r = e.runReactor(c, p.module, p.limit, p.index)
	}
	c.Close()
	return r
}

// prepared holds the facts that Run determines before it calls a handler.
type prepared struct {
	module *module
	limit  int64 // bytes of linear memory
	index  int   // index of the handler in the module
}

// prepare checks whether a task can run at all. If not, refused is its result.
func (e *Engine) prepare(t *runtime.Task) (p prepared, refused *runtime.Result) {
	refuse := func(r runtime.Result) (prepared, *runtime.Result) { return prepared{}, &r }
	m := e.module(t.Digest)
	if m == nil {
		return refuse(guest.Failed(runtime.HostError, guest.CodeNotLoaded, "module %s (%s) is not loaded on this host", t.Module, t.Digest))
	}
	if m.info.Kind == inspect.Interpreter && len(m.info.Handlers) == 0 {
		return refuse(guest.Failed(runtime.Permanent, guest.CodeNoHandler, "module %s is an interpreter without a command of its own (it exports no %s): name the module of a script", t.Module, abi.ExportStart))
	}
	index := slices.Index(m.info.Handlers, guest.HandlerName(t))
	if index < 0 {
		return refuse(guest.Failed(runtime.Permanent, guest.CodeNoHandler, "module %s has no handler %q; it has: %s",
			t.Module, guest.HandlerName(t), strings.Join(m.info.Handlers, ", ")))
	}
	m.bound(t, index)
	limit := t.Limits.MemoryBytes
	if limit <= 0 {
		limit = defaultMemoryBytes
	}
	limit = min(limit, e.cfg.MaxMemoryBytes)
	if m.info.MinMemoryBytes > limit {
		return refuse(guest.Failed(runtime.Permanent, guest.CodeMemory, "module %s needs %d bytes of memory to start, its limit is %d: raise the memory limit",
			t.Module, m.info.MinMemoryBytes, limit))
	}
	if err := checkStrings(t); err != nil {
		return refuse(guest.Failed(runtime.Permanent, guest.CodeBadTask, "%v", err))
	}
	return prepared{m, limit, index}, nil
}

// release returns a call to the pool for another task.
func (e *Engine) release(c *guest.Call) {
	if c.Release() {
		e.calls.Put(c)
	}
}

// checkStrings refuses strings that a zero-terminated string list cannot carry.
func checkStrings(t *runtime.Task) error {
	for _, arg := range t.Args {
		if strings.Contains(arg, "\x00") {
			return fmt.Errorf("the argument %.40q has a zero byte, which no program can be given", arg)
		}
	}
	if len(t.Env) == 0 { // true for most tasks; this check is faster than ranging over an empty map
		return nil
	}
	for key, value := range t.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("the environment variable %.40q is empty, or has a zero byte or an equals sign in its name", key)
		}
	}
	return nil
}

// runCommand runs a WASI command in a new instance.
func (e *Engine) runCommand(c *guest.Call, m *module, limit int64) runtime.Result {
	start := c.Look()
	files, unmount, err := e.mount(c)
	if err != nil {
		return guest.Failed(runtime.HostError, guest.CodeFiles, "%v", err)
	}
	defer unmount()
	inst, err := e.instantiate(c, m, limit, files)
	if err != nil {
		return c.NotStarted(err)
	}
	defer inst.close(c)
	inst.arm(c, e.cfg.StackBytes)
	_, err = inst.mod.ExportedFunction(abi.ExportStart).Call(c)
	r := c.CommandResult(err)
	r.Duration = time.Duration(c.Look() - start)
	return r
}

// runMounted runs a handler that has files. It uses a new instance, because a guest reads
// its list of mounts in _initialize.
func (e *Engine) runMounted(c *guest.Call, m *module, limit int64, index int) runtime.Result {
	files, unmount, err := e.mount(c)
	if err != nil {
		return guest.Failed(runtime.HostError, guest.CodeFiles, "%v", err)
	}
	defer unmount()
	inst, err := e.instantiate(c, m, limit, files)
	if err != nil {
		return c.NotStarted(err)
	}
	defer inst.close(c) //nolint:errcheck // frees memory; it has no error to tell
	if err := e.initialize(c, inst); err != nil {
		return c.NotStarted(err)
	}
	inst.arm(c, e.cfg.StackBytes)
	start := c.Seen()
	inst.params[0] = uint64(index)
	err = inst.handle.CallWithStack(c, inst.params[:])
	var r runtime.Result
	if err != nil {
		r = c.ErrorResult(err)
	} else {
		r = c.StatusResult(abi.Status(int32(inst.params[0])))
	}
	r.Duration = time.Duration(c.Look() - start)
	return r
}

// mounts returns the files that a task was granted.
func mounts(t *runtime.Task) []runtime.FileGrant {
	if t.Grants == nil {
		return nil
	}
	return t.Grants.Files
}

// mount opens the files of the current task; nil: there are none. The caller closes them
// with unmount.
func (e *Engine) mount(c *guest.Call) (cfg wazero.FSConfig, unmount func(), err error) {
	var open []files.FS
	unmount = func() {
		for _, fs := range open {
			_ = fs.Close() // all writes are already done
		}
	}
	for _, g := range mounts(c.Task) {
		fs := files.Memory(g.Quota(), g.Write, c.Work)
		if g.Dir != "" {
			path, ok := e.cfg.Dirs[g.Dir]
			if !ok {
				unmount()
				return nil, nil, fmt.Errorf("the directory %.60q is not on this host: name it when the host is started, or route the job to one that has it", g.Dir)
			}
			if apps := e.cfg.DirApps[g.Dir]; apps != nil && !slices.Contains(apps, c.Task.App) {
				unmount()
				return nil, nil, fmt.Errorf("this host does not offer the directory %.60q to app %s: its operator names the apps with --dir-apps", g.Dir, c.Task.App)
			}
			if fs, err = files.Open(path, g.Quota(), g.Write, c.Work); err != nil {
				unmount()
				return nil, nil, fmt.Errorf("the directory %.60q: %w", g.Dir, err)
			}
		}
		open = append(open, fs)
		if cfg == nil {
			cfg = wazero.NewFSConfig()
		}
		cfg = cfg.(sysfs.FSConfig).WithSysFSMount(fs, g.Mount)
	}
	return cfg, unmount, nil
}

// runReactor runs a handler in an instance that is reused if the call returns normally.
func (e *Engine) runReactor(c *guest.Call, m *module, limit int64, index int) runtime.Result {
	inst, err := e.reactor(c, m, limit)
	if err != nil {
		return c.NotStarted(err)
	}
	inst.arm(c, e.cfg.StackBytes)
	start := c.Seen()
	inst.params[0] = uint64(index)
	err = inst.handle.CallWithStack(c, inst.params[:])
	status := abi.Status(int32(inst.params[0]))
	took := time.Duration(c.Look() - start)
	var r runtime.Result
	if err != nil {
		_ = inst.close(c) // its state is unknown
		r = c.ErrorResult(err)
	} else {
		e.recycle(c, inst)
		r = c.StatusResult(status)
	}
	r.Duration = took
	return r
}
