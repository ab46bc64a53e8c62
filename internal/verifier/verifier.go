package verifier

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
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/process"
	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sched"
)

// Config configures the upload verifier, which parses, checks and compiles uploads. Uploads
// are not trusted, so it works in a child process with limits: a compiler with hostile
// input can take any time and memory, and a defect in it must not affect the server. A
// zero field means the default named beside it.
type Config struct {
	// Command starts the child: a program and arguments that call [Child]. Nil: the
	// verifier works in this process, bounded by the parser's limits alone, and does not
	// compile. That is for tests and for servers inside other programs, which cannot
	// start themselves again.
	Command []string
	CPU     time.Duration // of all threads of the child together; default 2 min, whole seconds
	Wall    time.Duration // default 3 min
	Memory  int64         // bytes of data; default 2 GiB
	Limits  wasm.UploadLimits
	// Sandbox decides about a child when the system lacks a wall; default auto.
	// The owner of the verifier acts on the answer of Probe.
	Sandbox sandbox.Mode
	// CodeDir is the directory for the machine code of the interpreters of scripts, which
	// spares uploads of scripts the time to compile them. Default "": each upload compiles.
	CodeDir   string
	CodeBytes int64 // bytes of that directory; default 512 MiB
}

func (g Config) withDefaults() Config {
	if g.CPU == 0 {
		g.CPU = 2 * time.Minute
	}
	if g.Wall == 0 {
		g.Wall = 3 * time.Minute
	}
	if g.Memory == 0 {
		g.Memory = 2 << 30
	}
	if g.CodeBytes == 0 {
		g.CodeBytes = 512 << 20
	}
	return g
}

// atOnce bounds the number of children that run at the same time.
const atOnce = 2

// Verifier is an upload verifier; turns bounds its children.
type Verifier struct {
	Config
	limits atomic.Pointer[wasm.UploadLimits] // in effect; Config has those of the start
	turns  chan struct{}
	code   codeCache
	// separate is set once, by Probe: children have namespaces of their own.
	separate bool
}

func New(g Config) *Verifier {
	g = g.withDefaults()
	v := &Verifier{Config: g, turns: make(chan struct{}, atOnce), code: codeCache{dir: g.CodeDir, max: g.CodeBytes}}
	v.SetLimits(g.Limits)
	return v
}

// Limits returns the limits in effect.
func (g *Verifier) Limits() wasm.UploadLimits { return *g.limits.Load() }

// SetLimits replaces the limits for the uploads that begin from now on.
func (g *Verifier) SetLimits(l wasm.UploadLimits) { g.limits.Store(&l) }

// answer is the answer of the child: one JSON object.
type answer struct {
	Refused     string         `json:"refused,omitempty"` // the reason; "": accepted
	Memory      bool           `json:"memory,omitempty"`  // the child reached its memory limit
	Kind        string         `json:"kind,omitempty"`
	Handlers    []string       `json:"handlers,omitempty"`
	Imports     []string       `json:"imports,omitempty"`
	Needs       []string       `json:"needs,omitempty"`
	Manifest    string         `json:"manifest,omitempty"` // appended to the code; "": the code has one, or needs none
	Digest      string         `json:"digest,omitempty"`   // of the code with its manifest
	Requests    runtime.Grants `json:"requests"`
	Interpreter string         `json:"interpreter,omitempty"` // digest of the interpreter of a script
	Cached      bool           `json:"cached,omitempty"`      // the folder of machine code has the code that the child needed
	Tried       *sched.Tried   `json:"tried,omitempty"`       // the result of a trial
	// InputSchemas are JSON Schemas by handler.
	InputSchemas map[string]string `json:"input_schemas,omitempty"`
}

// maxAnswer bounds the bytes that are read from a child, which works on untrusted input.
const maxAnswer = 16 << 20

// Inspect returns what an upload is, or an error that says in one sentence why it is
// refused.
func (g *Verifier) Inspect(ctx context.Context, code *modules.Upload, manifest string) (sched.ModuleInfo, error) {
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		return sched.ModuleInfo{}, context.Cause(ctx)
	}
	var a answer
	var err error
	if len(g.Command) == 0 {
		a, err = examineHere(ctx, code, manifest, g.Limits())
	} else {
		a, err = g.inspect(ctx, code.Reader(), manifest, interpreterDigest(code))
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
		return sched.ModuleInfo{}, failed("%v", err)
	}
	if digest != a.Digest {
		return sched.ModuleInfo{}, failed("the upload verifier checked other bytes than those that the server received")
	}
	return sched.ModuleInfo{
		Digest: digest, Kind: a.Kind, Handlers: a.Handlers, Imports: a.Imports, Needs: a.Needs,
		Requests: requested(a.Requests), Interpreter: a.Interpreter, GetInterpreter: howToGet(a.Interpreter),
		InputSchemas: a.InputSchemas,
	}, nil
}

// CheckScript parses the sources of an upload that is a script with its interpreter, in the child
// and within its limits. The error says in one sentence why the script is refused. A verifier
// without a child accepts every script.
func (g *Verifier) CheckScript(ctx context.Context, code *modules.Upload, interpreter []byte) error {
	if len(g.Command) == 0 {
		return nil
	}
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := g.interpret(ctx, work{code: code.Reader(), interpreter: interpreter})
	return err
}

// interpret lets a child work with the interpreter of a script. It compiles the interpreter before,
// unless the cache has its machine code. The caller holds a turn.
func (g *Verifier) interpret(ctx context.Context, w work) (answer, error) {
	digest := modules.Digest(w.interpreter)
	w.folder = g.code.get(digest)
	if w.folder == "" && g.code.canFill() {
		// A child of its own compiles the interpreter: no child that has a script writes to the
		// cache. If it fails, the child below compiles as well and reports the reason.
		_, _ = g.inspect(ctx, bytes.NewReader(w.interpreter), "", digest)
		w.folder = g.code.get(digest)
	}
	a, err := g.ask(ctx, w)
	if w.folder != "" && err == nil && !a.Cached {
		g.code.remove(digest)
	}
	if err == nil && a.Refused != "" {
		err = errors.New(a.Refused)
	}
	return a, err
}

// interpreterDigest returns the digest of an upload that is an interpreter of scripts, "" for
// every other upload.
func interpreterDigest(code *modules.Upload) string {
	for _, i := range script.Interpreters() {
		if i.Size != code.Size() {
			continue
		}
		if digest, err := code.Digest(); err == nil && digest == i.Digest {
			return digest
		}
	}
	return ""
}

// inspect lets a child inspect an upload. If it is the interpreter with a digest, not "", the
// machine code is taken from the cache or put into it.
func (g *Verifier) inspect(ctx context.Context, code io.Reader, manifest, interpreter string) (answer, error) {
	w := work{code: code, manifest: manifest}
	if interpreter == "" || manifest != "" { // the manifest becomes a part of the module
		return g.ask(ctx, w)
	}
	if w.folder = g.code.get(interpreter); w.folder == "" {
		w.folder = g.code.stage()
		w.write = w.folder != ""
	}
	a, err := g.ask(ctx, w)
	switch filled := err == nil && a.Refused == "" && a.Cached; {
	case w.folder == "":
	case filled && w.write:
		g.code.publish(w.folder, interpreter)
	case w.write:
		g.code.discard(w.folder, ctx.Err() == nil)
	case !filled:
		g.code.remove(interpreter)
	}
	return a, err
}

// howToGet says how to bring an interpreter to the server.
func howToGet(digest string) string {
	known, ok := script.ByDigest(digest)
	if !ok {
		return "push it first"
	}
	return fmt.Sprintf("`wheelwork module fetch-interpreter %s` fetches it to this machine, and `wheelwork module push` then sends it before the script", known.Language)
}

// work is what a child is given to do.
type work struct {
	code        io.Reader // the upload
	manifest    string    // beside the upload; "": none
	interpreter []byte    // of the script that the upload is, to check or try it; nil: the upload is inspected
	trial       []byte    // JSON of a sched.Trial of the script; nil: it is checked
	folder      string    // has the machine code of the interpreter, or gets that of the upload; "": none
	write       bool      // the child may write to the folder
}

// ask lets a child do its work.
func (g *Verifier) ask(ctx context.Context, w work) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.Wall, errWall)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.Command[0], g.Command[1:]...)
	var file int64
	if w.write {
		file = g.CodeBytes
	}
	// The child gets nothing of the server's environment, which may hold tokens.
	limits := g.Limits()
	cmd.Env = []string{
		fmt.Sprintf("%s=%d %d %d %d %d %d %d", limitsVariable, int64(g.CPU.Seconds()), g.Memory, file, limits.ModuleBytes, limits.Functions, limits.BodyBytes, limits.Locals),
		fmt.Sprintf("GOMEMLIMIT=%d", g.Memory*3/4),
		codeVariable + "=" + w.folder,
	}
	if raceBuild {
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // otherwise it sleeps for a second at its end
	}
	group(cmd)
	cmd.WaitDelay = 5 * time.Second // processes that the child left behind hold the pipes no longer

	head := binary.BigEndian.AppendUint32(nil, uint32(len(w.manifest)))
	head = binary.BigEndian.AppendUint32(head, uint32(len(w.interpreter)))
	head = binary.BigEndian.AppendUint32(head, uint32(len(w.trial)))
	cmd.Stdin = io.MultiReader(bytes.NewReader(head), strings.NewReader(w.manifest), bytes.NewReader(w.interpreter), bytes.NewReader(w.trial), w.code)
	out, complaint := &firstBytes{max: maxAnswer}, &firstBytes{max: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, complaint
	// The child ends when this process ends, in any way: it watches the other end of this
	// pipe.
	alive, held, err := os.Pipe()
	if err != nil {
		return answer{}, failed("start the upload verifier: %v", err)
	}
	defer held.Close() //nolint:errcheck // nothing is written to it
	cmd.ExtraFiles = []*os.File{alive}
	err = g.start(cmd, w)
	alive.Close() //nolint:errcheck // the child has its own
	if err != nil {
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		return answer{}, failed("start the upload verifier: %v", err)
	}
	err = cmd.Wait()
	var a answer
	switch {
	case errors.Is(context.Cause(ctx), errWall):
		return a, g.over(w, "it took longer than %s to compile", "it took longer than %s", g.Wall)
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case err == nil && out.cut:
		return a, failed("the upload verifier answered with more than %d bytes", maxAnswer)
	case err == nil:
		if err := json.NewDecoder(bytes.NewReader(out.b)).Decode(&a); err != nil {
			return a, failed("the upload verifier's answer cannot be read: %v", err)
		}
		if a.Memory || noMemory(a.Refused) {
			return a, g.over(w, "compiling it needs more than %d MiB of memory", "it needs more than %d MiB of memory, with the interpreter and its keys", g.Memory>>20)
		}
		return a, nil
	case cmd.ProcessState != nil && cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime() >= g.CPU-time.Second:
		return a, g.over(w, "compiling it takes more than %s of processor time", "it takes more than %s of processor time", g.CPU)
	case noMemory(string(complaint.b)):
		return a, g.over(w, "compiling it needs more than %d MiB of memory", "it needs more than %d MiB of memory, with the interpreter and its keys", g.Memory>>20)
	case w.trial != nil:
		return a, fmt.Errorf("the script was ended: its process ended (%w)", err)
	}
	return a, fmt.Errorf("module refused: the check ended the upload verifier's process (%w): it needs far more than %d MiB of memory, or meets a defect of the compiler; make it smaller, or build it with another optimisation level", err, g.Memory>>20)
}

var errWall = errors.New("the upload verifier's time limit has passed")

// over returns the error for work that reached a limit of the child: of an upload or of a trial, with
// the same argument.
func (*Verifier) over(w work, upload, trial string, arg any) error {
	if w.trial != nil {
		return fmt.Errorf("the script was ended: "+trial+", which is the limit of a trial", arg)
	}
	return fmt.Errorf("module refused: "+upload+", which is the limit of an upload: split its largest functions, build with optimisation (-O2, wasm-opt -O) or without the parts that it does not need", arg)
}

// failed returns an error of the verifier, not of the upload.
func failed(format string, args ...any) error {
	return status.Errorf(codes.Internal, format, args...)
}

// noMemory reports whether a text is the message of a process that got no memory.
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

// Variables of the child's environment.
const (
	// limitsVariable has the limits of the child: seconds of CPU, bytes of memory, bytes of a
	// file that it writes, and the fields of the upload limits.
	limitsVariable = "WHEELWORK_VERIFIER_LIMITS"
	// codeVariable has the folder of machine code; "": none.
	codeVariable = "WHEELWORK_VERIFIER_CODE"
)

// Child is the body of the verifier's child process: it sets its own limits, reads an
// upload from in and writes its findings to out. alive is a pipe whose other end the
// server holds; the process ends when that is closed.
func Child(ctx context.Context, in io.Reader, out io.Writer, alive io.Reader) error {
	var cpu, memory, file uint64
	var limits wasm.UploadLimits
	if _, err := fmt.Sscanf(os.Getenv(limitsVariable), "%d %d %d %d %d %d %d", &cpu, &memory, &file, &limits.ModuleBytes, &limits.Functions, &limits.BodyBytes, &limits.Locals); err != nil {
		return fmt.Errorf("%s is not set: this command is for the server, which starts it by itself", limitsVariable)
	}
	// The limit on data is a second one behind watchMemory. It also counts the stacks of
	// threads and memory that is only reserved, and a process that reaches it ends
	// without a clear message.
	data := memory + memory/2 + 512<<20
	if raceBuild {
		data = math.MaxUint64 // RLIM_INFINITY
	}
	// The limits are set before a byte of the upload is read.
	if err := setLimits(cpu, data, file); err != nil {
		return err
	}
	if err := process.HideMemory(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, alive) // returns when the server ends
		os.Exit(1)
	}()
	go watchMemory(memory, out)
	var head [12]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return fmt.Errorf("read the upload: %w", err)
	}
	manifest, interpreter, trial := int64(binary.BigEndian.Uint32(head[:4])), int64(binary.BigEndian.Uint32(head[4:8])), int64(binary.BigEndian.Uint32(head[8:]))
	before := manifest + interpreter + trial
	text, err := io.ReadAll(io.LimitReader(in, before+modules.MaxBytes+1))
	if err != nil {
		return fmt.Errorf("read the upload: %w", err)
	}
	if int64(len(text)) < before {
		return errors.New("read the upload: it is cut off")
	}
	code, engine := text[before:], text[manifest:manifest+interpreter]
	folder := os.Getenv(codeVariable)
	switch {
	case trial > 0:
		return json.NewEncoder(out).Encode(try(ctx, code, engine, text[manifest+interpreter:before], folder))
	case interpreter > 0:
		return json.NewEncoder(out).Encode(check(ctx, code, engine, folder))
	}
	return json.NewEncoder(out).Encode(examine(ctx, code, string(text[:manifest]), limits, &compiler{folder: folder}))
}

// newEngine returns an engine with the machine code of a folder; "": without. A folder that
// cannot be used only costs time.
func newEngine(ctx context.Context, folder string, services runtime.Services) (*wasm.Engine, error) {
	if engine, err := wasm.New(ctx, wasm.Config{Slots: 1, CacheDir: folder, Services: services}); err == nil || folder == "" {
		return engine, err
	}
	return wasm.New(ctx, wasm.Config{Slots: 1, Services: services})
}

// check parses a script with its interpreter, which the server has verified before. folder has
// the machine code of the interpreter.
func check(ctx context.Context, code, interpreter []byte, folder string) answer {
	return withScript(ctx, code, interpreter, folder, nil, func(engine *wasm.Engine, digest string, _ *answer) error {
		return engine.CheckScript(ctx, digest)
	})
}

// withScript loads a script and its interpreter, and lets do go on with them.
func withScript(ctx context.Context, code, interpreter []byte, folder string, services runtime.Services, do func(engine *wasm.Engine, digest string, a *answer) error) answer {
	engine, err := newEngine(ctx, folder, services)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	defer engine.Close(ctx) //nolint:errcheck // the process ends with it
	var a answer
	for _, m := range [][]byte{interpreter, code} {
		if err := engine.Load(ctx, modules.Digest(m), m); err != nil {
			a.Refused = err.Error()
			return a
		}
	}
	a.Cached = engine.Cached(modules.Digest(interpreter))
	if err := do(engine, modules.Digest(code), &a); err != nil {
		a.Refused = err.Error()
	}
	return a
}

// watchMemory ends the process with an answer when it takes more than limit bytes.
func watchMemory(limit uint64, out io.Writer) {
	taken := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(5 * time.Millisecond) {
		metrics.Read(taken)
		if taken[0].Value.Uint64()-taken[1].Value.Uint64() > limit {
			_ = json.NewEncoder(out).Encode(answer{Memory: true})
			os.Exit(0)
		}
	}
}

// examineHere inspects an upload in this process, without compiling it.
func examineHere(ctx context.Context, code *modules.Upload, manifest string, limits wasm.UploadLimits) (answer, error) {
	b, err := code.Bytes()
	if err != nil {
		return answer{}, failed("%v", err)
	}
	return examine(ctx, b, manifest, limits, nil), nil
}

// examine is the work of the verifier: it parses and validates an upload, checks its
// manifest and, unless c is nil, compiles it.
func examine(ctx context.Context, code []byte, manifest string, limits wasm.UploadLimits, c *compiler) answer {
	if err := modules.CheckSize(int64(len(code))); err != nil {
		return answer{Refused: err.Error()}
	}
	packed, err := wasm.Pack(ctx, code, manifest)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	text := ""
	if len(packed) > len(code) {
		section, _ := modules.Custom(packed, abi.ManifestSection)
		code, text = packed, string(section)
	}
	info, err := wasm.InspectWithin(code, limits)
	cached := false
	if err == nil && c != nil {
		cached, err = c.compile(ctx, info.Digest, code)
	}
	if err != nil {
		return answer{Refused: err.Error()}
	}
	interpreter := ""
	if s, err := script.Unpack(code); err == nil {
		interpreter = s.Interpreter
	}
	return answer{
		Interpreter: interpreter,
		Kind:        string(info.Kind), Handlers: info.Handlers, Imports: info.Imports, Needs: info.Needs,
		Manifest: text, Digest: info.Digest, Requests: info.Manifest.Capabilities, Cached: cached,
		InputSchemas: inputSchemas(info),
	}
}

// inputSchemas returns the schemas of inputs by handler. They are compact, as the journal has them.
func inputSchemas(info wasm.Info) map[string]string {
	var all map[string]string
	for _, h := range info.Manifest.Handlers {
		var b bytes.Buffer
		if len(h.InputSchema) == 0 || json.Compact(&b, h.InputSchema) != nil {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[h.Name] = strings.ToValidUTF8(b.String(), "\uFFFD")
	}
	return all
}

// A compiler compiles modules as a host does, with the machine code of a folder; "": without.
type compiler struct{ folder string }

// compile compiles a module, and reports whether the folder has its machine code.
func (c *compiler) compile(ctx context.Context, digest string, code []byte) (cached bool, err error) {
	engine, err := newEngine(ctx, c.folder, nil)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, engine.Close(ctx)) }()
	err = engine.Load(ctx, digest, code)
	var needs *runtime.NeedsError
	if errors.As(err, &needs) { // a script: its interpreter was compiled when the interpreter was pushed
		return false, nil
	}
	return err == nil && engine.Cached(digest), err
}

// requested converts what a module's manifest asks for into the message that the server
// stores.
func requested(g runtime.Grants) *apiv1.Grants {
	m := &apiv1.Grants{Secrets: g.Secrets, Enqueue: g.Enqueue}
	for _, h := range g.HTTP {
		m.Http = append(m.Http, &apiv1.HttpGrant{Host: h.Host, Methods: h.Methods, Paths: h.Paths, Private: h.Private})
	}
	for _, b := range g.KV {
		m.Kv = append(m.Kv, &apiv1.BucketGrant{Name: b.Name, Write: b.Write})
	}
	for _, f := range g.Files {
		m.Files = append(m.Files, &apiv1.FileGrant{Mount: f.Mount, Dir: f.Dir, Write: f.Write, Bytes: f.Bytes})
	}
	return m
}
