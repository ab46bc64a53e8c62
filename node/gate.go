package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime/metrics"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sched"
)

// Gate is the upload gate: it parses, checks and compiles what strangers send.
// It does so in a child process with limits, because a compiler fed by a
// stranger can take any time and memory, and a defect in it must not be one of
// the server. A zero field means the default named beside it.
type Gate struct {
	// Command starts the child: a program and arguments that call [GateChild]. Nil: the gate works in
	// this process, bounded by the parser's limits alone. That is for tests and for servers inside other
	// programs, which cannot start themselves again.
	Command []string
	CPU     time.Duration // of all the child's threads together; default 2 min, whole seconds
	Wall    time.Duration // default 3 min
	Memory  int64         // bytes of data; default 2 GiB
}

func (g Gate) withDefaults() Gate {
	if g.CPU == 0 {
		g.CPU = 2 * time.Minute
	}
	if g.Wall == 0 {
		g.Wall = 3 * time.Minute
	}
	if g.Memory == 0 {
		g.Memory = 2 << 30
	}
	return g
}

// gateAtOnce bounds the children that run at the same time.
const gateAtOnce = 2

// gateway is a gate with its turns.
type gateway struct {
	Gate
	turns chan struct{}
}

func newGateway(g Gate) *gateway {
	return &gateway{g.withDefaults(), make(chan struct{}, gateAtOnce)}
}

// gateAnswer is what the child writes: one JSON object.
type gateAnswer struct {
	Refused     string         `json:"refused,omitempty"` // why; "": accepted
	Memory      bool           `json:"memory,omitempty"`  // its memory was not enough
	Kind        string         `json:"kind,omitempty"`
	Handlers    []string       `json:"handlers,omitempty"`
	Imports     []string       `json:"imports,omitempty"`
	Needs       []string       `json:"needs,omitempty"`
	Manifest    string         `json:"manifest,omitempty"` // that is put into the code; "": it has one, or needs none
	Digest      string         `json:"digest,omitempty"`   // of the code with it
	Requests    runtime.Grants `json:"requests"`
	Interpreter string         `json:"interpreter,omitempty"` // of a script: its digest
}

// maxAnswer bounds what is read of a child: it runs on what a stranger sent.
const maxAnswer = 16 << 20

// inspect says what an upload is, or in one sentence why it is refused.
func (g *gateway) inspect(ctx context.Context, code *modules.Upload, manifest string) (sched.ModuleInfo, error) {
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		return sched.ModuleInfo{}, context.Cause(ctx)
	}
	var a gateAnswer
	var err error
	if len(g.Command) == 0 {
		a, err = examineHere(ctx, code, manifest)
	} else {
		a, err = g.ask(ctx, code, manifest)
	}
	if err != nil {
		return sched.ModuleInfo{}, err
	}
	if a.Refused != "" {
		return sched.ModuleInfo{}, errors.New(a.Refused)
	}
	if a.Manifest != "" {
		if _, err := code.Write(wasm.AppendManifest(nil, a.Manifest)); err != nil {
			return sched.ModuleInfo{}, err
		}
	}
	digest, err := code.Digest()
	if err != nil {
		return sched.ModuleInfo{}, gateFailed("%v", err)
	}
	if digest != a.Digest {
		return sched.ModuleInfo{}, gateFailed("the upload gate looked at other bytes than those that came")
	}
	return sched.ModuleInfo{
		Digest: digest, Kind: a.Kind, Handlers: a.Handlers, Imports: a.Imports, Needs: a.Needs,
		Requests: requested(a.Requests), Interpreter: a.Interpreter, GetInterpreter: howToGet(a.Interpreter),
	}, nil
}

// howToGet says how an interpreter comes to the server.
func howToGet(digest string) string {
	known, ok := script.ByDigest(digest)
	if !ok {
		return "push it first"
	}
	return fmt.Sprintf("`wheelwork module fetch-interpreter %s` fetches it to this machine, and `wheelwork module push` then sends it before the script", known.Language)
}

// ask has a child look at an upload.
func (g *gateway) ask(ctx context.Context, code *modules.Upload, manifest string) (gateAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.Wall, errGateWall)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.Command[0], g.Command[1:]...)
	// Nothing of the server's environment: there may be tokens in it.
	cmd.Env = []string{fmt.Sprintf("%s=%d %d", gateLimits, int64(g.CPU.Seconds()), g.Memory), fmt.Sprintf("GOMEMLIMIT=%d", g.Memory*3/4)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // whatever it left behind holds no pipe for longer

	head := binary.BigEndian.AppendUint32(nil, uint32(len(manifest)))
	cmd.Stdin = io.MultiReader(bytes.NewReader(head), strings.NewReader(manifest), code.Reader())
	out, complaint := &firstBytes{max: maxAnswer}, &firstBytes{max: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, complaint
	// The child ends when this process does, however it ends: it watches the other end of this pipe.
	alive, held, err := os.Pipe()
	if err != nil {
		return gateAnswer{}, gateFailed("start the upload gate: %v", err)
	}
	defer held.Close() //nolint:errcheck // nothing is written to it
	cmd.ExtraFiles = []*os.File{alive}
	err = cmd.Start()
	alive.Close() //nolint:errcheck // the child has its own
	if err != nil {
		if ctx.Err() != nil {
			return gateAnswer{}, context.Cause(ctx)
		}
		return gateAnswer{}, gateFailed("start the upload gate: %v", err)
	}
	err = cmd.Wait()
	var a gateAnswer
	switch {
	case errors.Is(context.Cause(ctx), errGateWall):
		return a, g.over("it took longer than %s to compile", g.Wall)
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case err == nil && out.cut:
		return a, gateFailed("the upload gate answered with more than %d bytes", maxAnswer)
	case err == nil:
		if err := json.NewDecoder(bytes.NewReader(out.b)).Decode(&a); err != nil {
			return a, gateFailed("the upload gate's answer cannot be read: %v", err)
		}
		if a.Memory || noMemory(a.Refused) {
			return a, g.over("compiling it needs more than %d MiB of memory", g.Memory>>20)
		}
		return a, nil
	case cmd.ProcessState != nil && cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime() >= g.CPU-time.Second:
		return a, g.over("compiling it takes more than %s of processor time", g.CPU)
	case noMemory(string(complaint.b)):
		return a, g.over("compiling it needs more than %d MiB of memory", g.Memory>>20)
	}
	return a, fmt.Errorf("module refused: looking at it ended the upload gate's process (%w): it needs far more than %d MiB of memory, or meets a defect of the compiler; make it smaller, or build it with another optimisation level", err, g.Memory>>20)
}

var errGateWall = errors.New("the upload gate's time is over")

// over says that a limit was met.
func (g *gateway) over(format string, args ...any) error {
	return fmt.Errorf("module refused: "+format+", which is the limit of an upload: split its largest functions, build with optimisation (-O2, wasm-opt -O) or without the parts that it does not need", args...)
}

// gateFailed is an error of the gate, not of what was uploaded.
func gateFailed(format string, args ...any) error {
	return status.Errorf(codes.Internal, format, args...)
}

// noMemory reports whether a text is how a process says that it got no memory.
func noMemory(text string) bool {
	return strings.Contains(text, "out of memory") || strings.Contains(text, "cannot allocate memory")
}

// firstBytes keeps the first bytes that are written to it.
type firstBytes struct {
	b   []byte
	max int
	cut bool
}

func (f *firstBytes) Write(p []byte) (int, error) {
	n := min(len(p), f.max-len(f.b))
	f.b = append(f.b, p[:n]...)
	f.cut = f.cut || n < len(p)
	return len(p), nil
}

// gateLimits is the variable with the limits that the child takes on: seconds
// of CPU and bytes of memory.
const gateLimits = "WHEELWORK_GATE_LIMITS"

// GateChild is the body of the gate's child process: it takes on its limits,
// reads an upload from in and writes what it found to out. alive is a pipe whose
// other end the server holds.
func GateChild(ctx context.Context, in io.Reader, out io.Writer, alive io.Reader) error {
	var cpu, memory uint64
	if _, err := fmt.Sscanf(os.Getenv(gateLimits), "%d %d", &cpu, &memory); err != nil {
		return fmt.Errorf("%s is not set: this command is for the server, which starts it by itself", gateLimits)
	}
	// The limit on data is a wall behind the one that is watched: it counts the
	// stacks of threads and what only was reserved, and who runs into it ends in
	// any way but a clear one.
	data := memory + memory/2 + 512<<20
	if raceBuild {
		data = math.MaxUint64 // RLIM_INFINITY
	}
	// Before a byte of the upload is read. The soft limit of the processor time is
	// the hard one: Go would take the signal between the two for its own.
	for _, l := range []struct {
		what  int
		limit uint64
	}{{syscall.RLIMIT_CPU, cpu}, {syscall.RLIMIT_DATA, data}, {syscall.RLIMIT_CORE, 0}, {syscall.RLIMIT_FSIZE, 0}} {
		if err := syscall.Setrlimit(l.what, &syscall.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return fmt.Errorf("limit the upload gate: %w", err)
		}
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10) // runs come first; it works without
	go func() {
		_, _ = io.Copy(io.Discard, alive) // ends when the server does
		os.Exit(1)
	}()
	go watchMemory(memory, out)
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return fmt.Errorf("read the upload: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	text, err := io.ReadAll(io.LimitReader(in, int64(size)+modules.MaxBytes+1))
	if err != nil {
		return fmt.Errorf("read the upload: %w", err)
	}
	if uint64(len(text)) < uint64(size) {
		return errors.New("read the upload: it is cut off")
	}
	return json.NewEncoder(out).Encode(examine(ctx, text[size:], string(text[:size]), true))
}

// watchMemory ends the process with an answer when it takes more than limit.
func watchMemory(limit uint64, out io.Writer) {
	taken := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(5 * time.Millisecond) {
		metrics.Read(taken)
		if taken[0].Value.Uint64()-taken[1].Value.Uint64() > limit {
			_ = json.NewEncoder(out).Encode(gateAnswer{Memory: true})
			os.Exit(0)
		}
	}
}

// examineHere does the gate's work in this process.
func examineHere(ctx context.Context, code *modules.Upload, manifest string) (gateAnswer, error) {
	b, err := code.Bytes()
	if err != nil {
		return gateAnswer{}, gateFailed("%v", err)
	}
	return examine(ctx, b, manifest, false), nil
}

// examine is the gate's work: parse, validate, check the manifest, and compile
// with the compiler that hosts use when compile is set.
func examine(ctx context.Context, code []byte, manifest string, compile bool) gateAnswer {
	if len(code) > modules.MaxBytes {
		return gateAnswer{Refused: fmt.Sprintf("the module is larger than %d MiB, which is the limit", modules.MaxBytes>>20)}
	}
	packed, err := wasm.Pack(ctx, code, manifest)
	if err != nil {
		return gateAnswer{Refused: err.Error()}
	}
	text := ""
	if len(packed) > len(code) {
		section, _ := modules.Custom(packed, abi.ManifestSection)
		code, text = packed, string(section)
	}
	info, err := wasm.Inspect(code)
	if err == nil && compile {
		err = compiles(ctx, info.Digest, code)
	}
	if err != nil {
		return gateAnswer{Refused: err.Error()}
	}
	interpreter := ""
	if s, err := script.Unpack(code); err == nil {
		interpreter = s.Interpreter
	}
	return gateAnswer{
		Interpreter: interpreter,
		Kind:        string(info.Kind), Handlers: info.Handlers, Imports: info.Imports, Needs: info.Needs,
		Manifest: text, Digest: info.Digest, Requests: info.Manifest.Capabilities,
	}
}

// compiles compiles a module as a host will, and throws the result away.
func compiles(ctx context.Context, digest string, code []byte) (err error) {
	engine, err := wasm.New(ctx, wasm.Config{Slots: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close(ctx)) }()
	err = engine.Load(ctx, digest, code)
	var needs *runtime.NeedsError
	if errors.As(err, &needs) { // a script: its interpreter was compiled when that was pushed
		return nil
	}
	return err
}
