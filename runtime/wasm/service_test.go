package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/local"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
)

// A script is an input of the fixture script: calls, and the memory that they use. See
// script.wat.
type script struct {
	t     testing.TB
	calls [][10]uint64
	data  []byte
}

// Bounds of the host functions.
const (
	maxName    = 1 << 10 // bytes
	maxValue   = 1 << 20 // bytes
	maxHandles = 16
)

const (
	scriptBase = 4096
	scriptData = scriptBase + 80*64 // room for 64 calls

	opReturn  = 1000
	opTrap    = 1001
	opLoop    = 1002
	opLeave   = 1003
	opWrite   = 1004
	opGrow    = 1005
	opHang    = 1006
	anyNumber = ^uint64(0)
)

func newScript(t testing.TB) *script { return &script{t: t} }

// bytes adds data to the script's memory and returns its location.
func (s *script) bytes(data []byte) (ptr, n uint64) {
	ptr = uint64(scriptData + len(s.data))
	s.data = append(s.data, data...)
	return ptr, uint64(len(data))
}

// room reserves memory for a result.
func (s *script) room(n int) (ptr, capacity uint64) { return s.bytes(make([]byte, n)) }

// op adds a call of a function by its number.
func (s *script) op(number uint64, args ...uint64) int {
	c := [10]uint64{number}
	copy(c[1:9], args)
	s.calls = append(s.calls, c)
	if len(s.calls) > 60 {
		s.t.Fatal("a script has at most 60 calls")
	}
	return len(s.calls) - 1
}

// call adds a call of a host function. A string argument is replaced by its pointer and
// length, an int by a buffer of that size.
func (s *script) call(name string, args ...any) int {
	s.t.Helper()
	at := slices.IndexFunc(hostabi.Functions(), func(f hostabi.Function) bool { return f.Name == name })
	if at < 0 {
		s.t.Fatalf("no function %s", name)
	}
	var numbers []uint64
	for _, a := range args {
		switch a := a.(type) {
		case string:
			ptr, n := s.bytes([]byte(a))
			numbers = append(numbers, ptr, n)
		case int:
			ptr, n := s.room(a)
			numbers = append(numbers, ptr, n)
		case float64:
			numbers = append(numbers, math.Float64bits(a))
		case uint64:
			numbers = append(numbers, a)
		default:
			s.t.Fatalf("argument %v", a)
		}
	}
	if want := len(hostabi.Functions()[at].Params); len(numbers) != want {
		s.t.Fatalf("%s takes %d numbers, not %d", name, want, len(numbers))
	}
	return s.op(uint64(at), numbers...)
}

// input encodes the script with an operation that ends it.
func (s *script) input(end uint64, status uint64) []byte {
	out := make([]byte, scriptData-scriptBase)
	for i, c := range append(s.calls[:len(s.calls):len(s.calls)], [10]uint64{end, status}) {
		for k, v := range c {
			binary.LittleEndian.PutUint64(out[80*i+8*k:], v)
		}
	}
	return append(out, s.data...)
}

// done is the result of a script.
type done struct {
	runtime.Result
	s    *script
	sink *recorder
}

// result returns the result of a call.
func (d done) result(call int) int64 {
	d.s.t.Helper()
	if len(d.Output) < 80*(call+1) {
		d.s.t.Fatalf("the script ended early: %+v", d.Result)
	}
	return int64(binary.LittleEndian.Uint64(d.Output[80*call+72:]))
}

// memory returns memory at an address after the script.
func (d done) memory(ptr uint64, n int64) string {
	d.s.t.Helper()
	off := int64(ptr) - scriptBase
	if n < 0 || off+n > int64(len(d.Output)) {
		d.s.t.Fatalf("no %d bytes at %d: %+v", n, ptr, d.Result)
	}
	return string(d.Output[off : off+n])
}

// buffer returns the bytes that a call has written to its buffer. arg is the index of the
// buffer among the call's arguments.
func (d done) buffer(call, arg int) string {
	d.s.t.Helper()
	return d.memory(d.s.calls[call][1+arg], min(d.result(call), int64(d.s.calls[call][2+arg])))
}

// player runs scripts.
type player struct {
	t      testing.TB
	engine *Engine
	digest string
	task   runtime.Task
}

func newPlayer(t testing.TB, cfg Config) *player {
	e := newEngine(t, cfg)
	return &player{t: t, engine: e, digest: load(t, e, fixture(t, "script")), task: runtime.Task{App: "shop", RunID: "r1", Job: "j"}}
}

func (p *player) play(s *script, change ...func(*runtime.Task)) done {
	s.t.Helper()
	task := p.task
	task.Digest, task.Input, task.Deadline = p.digest, s.input(opReturn, 0), within(20*time.Second)
	for _, c := range change {
		c(&task)
	}
	sink := &recorder{}
	return done{p.engine.Run(context.Background(), task, sink), s, sink}
}

// everything returns the grants for most of these tests.
func everything() *runtime.Grants {
	return &runtime.Grants{
		HTTP: []runtime.HTTPGrant{{Host: "api.example", Methods: []string{"GET", "POST"}, Paths: []string{"/v1/"}}},
		KV:   []runtime.Bucket{{Name: "b", Write: true}, {Name: "ro"}}, Secrets: []string{"KEY"}, Enqueue: []string{"settle", "other/x"},
	}
}

func TestKeysAndValues(t *testing.T) {
	p := newPlayer(t, Config{Services: &local.Services{}})
	p.task.Grants = everything()
	s := newScript(t)
	none := s.call("kv_get", "b", "k", 10, uint64(0))
	first := s.call("kv_cas", "b", "k", "one", uint64(0))
	taken := s.call("kv_cas", "b", "k", "two", uint64(0))
	version, _ := s.room(8)
	get := s.call("kv_get", "b", "k", 10, version)
	short := s.call("kv_get", "b", "k", 2, uint64(0))
	put := s.call("kv_put", "b", "k", "three")
	empty := s.call("kv_put", "b", "empty", "")
	gotEmpty := s.call("kv_get", "b", "empty", 4, uint64(0))
	stale := s.call("kv_delete", "b", "k", uint64(1))
	gone := s.call("kv_delete", "b", "k", anyNumber)
	again := s.call("kv_delete", "b", "k", anyNumber)
	readOnly := s.call("kv_put", "ro", "k", "x")
	canRead := s.call("kv_get", "ro", "k", 1, uint64(0))
	other := s.call("kv_get", "secret", "k", 1, uint64(0))
	noKey := s.call("kv_put", "b", "", "x")
	longKey := s.call("kv_put", "b", strings.Repeat("k", maxName+1), "x")
	noText := s.call("kv_get", "b", "k\xff", 1, uint64(0))
	d := p.play(s)
	if v := d.result(first); v <= 0 || d.result(put) <= v {
		t.Errorf("versions %d and %d, want rising ones", v, d.result(put))
	}
	if got := d.buffer(get, 4); got != "one" {
		t.Errorf("read %q", got)
	}
	if got := d.buffer(short, 4); got != "on" || d.result(short) != 3 {
		t.Errorf("a small buffer has %q, result %d", got, d.result(short))
	}
	if v := d.memory(version, 8); int64(binary.LittleEndian.Uint64([]byte(v))) != d.result(first) {
		t.Errorf("version %x", v)
	}
	for call, want := range map[int]int64{none: -44, taken: -20, gotEmpty: 0, stale: -20, gone: 0, again: -44, readOnly: -76, canRead: -44, other: -76, noKey: -28, longKey: -28, noText: -28} {
		if got := d.result(call); got != want {
			t.Errorf("call %d gave %d, want %d", call, got, want)
		}
	}
	if d.result(empty) <= 0 {
		t.Errorf("an empty value: %d", d.result(empty))
	}
	if want := []string{`kv_put: the bucket "ro": the module was not granted this`, `kv_get: the bucket "secret": the module was not granted this`, "kv_get: the arguments are invalid: the key is not UTF-8: encode it, as base64 does"}; !cmp.Equal(want, d.sink.lines) {
		t.Errorf("log %q, want %q", d.sink.lines, want)
	}
}

// TestMissingGrantIsPermanent checks the result of a handler that fails after a call was
// refused for want of a grant: permanent, with the command that grants, if the handler
// failed because of that.
func TestMissingGrantIsPermanent(t *testing.T) {
	p := newPlayer(t, Config{Services: &local.Services{}})
	p.task.Module, p.task.Version = "mine", "1"
	const granted = "kv_get: the bucket \"state\": the module was not granted this: if its manifest asks for it, the owner of the app grants it with `wheelwork module grant mine --requested 1 --app shop`"
	for name, tt := range map[string]struct {
		code, text string
		between    bool // another call fails after the refused one
		want       runtime.Result
	}{
		"no text":            {want: runtime.Result{Outcome: runtime.Permanent, Code: "not_granted", Error: granted}},
		"the SDK's text":     {text: "read the state: the module was not granted this", want: runtime.Result{Outcome: runtime.Permanent, Code: "not_granted", Error: granted}},
		"the name in Rust":   {text: "NotGranted", want: runtime.Result{Outcome: runtime.Permanent, Code: "not_granted", Error: granted}},
		"another reason":     {text: "the file is empty", want: runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "the file is empty"}},
		"a code of its own":  {code: "E_STATE", text: "not granted", want: runtime.Result{Outcome: runtime.Retryable, Code: "E_STATE", Error: "not granted"}},
		"a later other call": {between: true, want: runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "the handler returned status 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.call("kv_get", "state", "k", 10, uint64(0))
			if tt.between {
				s.call("kv_get", "b", "a\xff", 1, uint64(0))
			}
			if tt.code+tt.text != "" {
				s.call("fail", uint64(abi.StatusRetryable), uint64(0), tt.code, tt.text)
			}
			task := p.task
			task.Grants = everything()
			task.Digest, task.Input, task.Deadline = p.digest, s.input(opReturn, uint64(abi.StatusRetryable)), within(20*time.Second)
			got := p.engine.Run(context.Background(), task, &recorder{})
			got.Output, got.Duration = nil, 0
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheckpointOutlivesTheAttempt(t *testing.T) {
	p := newPlayer(t, Config{Services: &local.Services{}})
	s := newScript(t)
	before := s.call("checkpoint_get", 20)
	put := s.call("checkpoint_put", "half way")
	d := p.play(s)
	if d.result(before) != -44 || d.result(put) != 0 {
		t.Fatalf("first attempt: %d, %d", d.result(before), d.result(put))
	}
	s = newScript(t)
	get := s.call("checkpoint_get", 20)
	d = p.play(s)
	if got := d.buffer(get, 0); got != "half way" {
		t.Errorf("second attempt: %q", got)
	}
	if d := p.play(s, func(task *runtime.Task) { task.RunID = "r2" }); d.result(get) != -44 {
		t.Errorf("another run: %d", d.result(get))
	}
	if d := p.play(s, func(task *runtime.Task) { task.App = "other" }); d.result(get) != -44 {
		t.Errorf("another app: %d", d.result(get))
	}
}

func TestEnqueue(t *testing.T) {
	services := &local.Services{}
	p := newPlayer(t, Config{Services: services})
	p.task.Grants = everything()
	s := newScript(t)
	one := s.call("job_enqueue", `{"job":"settle","input":"päid"}`, 20)
	two := s.call("job_enqueue", `{"job":"settle","input_base64":"AP8=","delay_ms":1500}`, 20)
	keyed := s.call("job_enqueue", `{"app":"other","job":"x","key":"k"}`, 20)
	same := s.call("job_enqueue", `{"app":"other","job":"x","key":"k"}`, 20)
	bad := map[int]int64{
		s.call("job_enqueue", `{"job":"refund"}`, 20):                                     -76,
		s.call("job_enqueue", `{"app":"other","job":"settle"}`, 20):                       -76,
		s.call("job_enqueue", `{"job":""}`, 20):                                           -28,
		s.call("job_enqueue", `{"job":"settle","delay_ms":-1}`, 20):                       -28,
		s.call("job_enqueue", `{"job":"settle","input":"","input_base64":""}`, 20):        -28,
		s.call("job_enqueue", `{"job":"settle","input_base64":"*"}`, 20):                  -28,
		s.call("job_enqueue", `{"job":"settle","when":"now"}`, 20):                        -28,
		s.call("job_enqueue", `{"job":"settle"} {}`, 20):                                  -28,
		s.call("job_enqueue", `nonsense`, 20):                                             -28,
		s.call("job_enqueue", `{"job":"`+strings.Repeat("j", maxName)+`x"}`, 20):          -28,
		s.call("job_enqueue", "{\"job\":\"settle\",\"key\":\"\xff\"}", 20):                -28,
		s.call("job_enqueue", string([]byte{0xff}), 20):                                   -28,
		s.call("job_enqueue", `{"job":"settle","input":"`+strings.Repeat("[", 3)+`"`, 20): -28,
	}
	d := p.play(s)
	ids := []string{d.buffer(one, 2), d.buffer(two, 2), d.buffer(keyed, 2), d.buffer(same, 2)}
	if !cmp.Equal(ids, []string{"local-1", "local-2", "local-3", "local-3"}) {
		t.Errorf("ids %q", ids)
	}
	for call, want := range bad {
		if got := d.result(call); got != want {
			t.Errorf("call %d gave %d, want %d", call, got, want)
		}
	}
	// The next attempt gets the same runs.
	if again := p.play(s); again.buffer(two, 2) != "local-2" {
		t.Errorf("another attempt made the run %q", again.buffer(two, 2))
	}
	want := []runtime.Submit{
		{App: "shop", Job: "settle", Input: []byte("päid"), Sequence: 0},
		{App: "shop", Job: "settle", Input: []byte{0, 255}, Sequence: 1, DelayMs: 1500},
		{App: "other", Job: "x", Key: "k", Sequence: 2},
	}
	if diff := cmp.Diff(want, services.Submits()); diff != "" {
		t.Errorf("submits (-want +got):\n%s", diff)
	}
}

func TestMap(t *testing.T) {
	services := &local.Services{}
	p := newPlayer(t, Config{Services: services})
	s := newScript(t)
	list := func(inputs ...string) string {
		var out []byte
		for _, in := range inputs {
			out = append(binary.LittleEndian.AppendUint32(out, uint32(len(in))), in...)
		}
		return string(out)
	}
	good := []int{s.call("map", list("a", "", "ccc")), s.call("map", ""), s.call("map", list("d"))}
	bad := map[int]int64{
		s.call("map", "abc"):                 -28,
		s.call("map", list("x")+"y"):         -28,
		s.call("map", "\xff\xff\xff\xffabc"): -28,
	}
	d := p.play(s)
	for _, call := range good {
		bad[call] = 0
	}
	for call, want := range bad {
		if got := d.result(call); got != want {
			t.Errorf("call %d gave %d, want %d", call, got, want)
		}
	}
	p.play(s) // another attempt maps the same inputs
	if got := fmt.Sprintf("%q", services.Parts("shop", "r1")); got != `["a" "" "ccc" "d"]` {
		t.Errorf("parts %s", got)
	}
}

// answers is a sender that records requests and answers them with bodies.
type answers struct {
	requests []runtime.Request
	bodies   []io.ReadCloser
	err      error
	ctx      context.Context
}

func (a *answers) send(ctx context.Context, _ *runtime.Task, r runtime.Request) (*runtime.Response, error) {
	a.ctx = ctx
	a.requests = append(a.requests, r)
	if a.err != nil {
		return nil, a.err
	}
	body := a.bodies[0]
	a.bodies = a.bodies[1:]
	return &runtime.Response{Status: 201, Header: map[string][]string{"X-One": {"1", "2"}}, Body: body}, nil
}

// stream is a body that arrives in pieces and records whether it was closed.
type stream struct {
	pieces []string
	err    error
	closed bool
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; s.pieces[0] == "" {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *stream) Close() error { s.closed = true; return nil }

func TestRequests(t *testing.T) {
	streams := []*stream{{pieces: []string{"first ", "", "second"}}, {pieces: []string{"x"}, err: runtime.ErrTooLarge}, {pieces: []string{"left open"}}}
	a := &answers{}
	for _, s := range streams {
		a.bodies = append(a.bodies, s)
	}
	p := newPlayer(t, Config{Services: &local.Services{Sender: a.send}})
	p.task.Grants = everything()
	s := newScript(t)
	post := s.call("http_send", `{"method":"POST","url":"https://api.example/v1/x","headers":{"A":"one","B":["b1","{{secret:KEY}}"]}}`, "body")
	head := s.call("http_head", uint64(1), 200)
	reads := []int{s.call("http_recv", uint64(1), 4), s.call("http_recv", uint64(1), 100), s.call("http_recv", uint64(1), 100), s.call("http_recv", uint64(1), 100), s.call("http_recv", uint64(1), 100)}
	closed := s.call("http_close", uint64(1))
	second := s.call("http_send", `{"url":"https://api.example/v1/y"}`, "")
	tooLong := []int{s.call("http_recv", uint64(2), 100), s.call("http_recv", uint64(2), 100)}
	third := s.call("http_send", `{"url":"https://api.example/v1/z"}`, "")
	bad := map[int]int64{
		s.call("http_close", uint64(1)):                                                                 -8,
		s.call("http_recv", uint64(1), 10):                                                              -8,
		s.call("http_head", uint64(99), 10):                                                             -8,
		s.call("http_recv", uint64(2), 0):                                                               -28,
		s.call("http_close", anyNumber):                                                                 -8,
		s.call("http_send", `{"url":"https://api.example/v2/"}`, ""):                                    -76,
		s.call("http_send", `{"url":"https://api.example/v1/../v2"}`, ""):                               -76,
		s.call("http_send", `{"url":"https://evil.example/v1/"}`, ""):                                   -76,
		s.call("http_send", `{"method":"PUT","url":"https://api.example/v1/"}`, ""):                     -76,
		s.call("http_send", `{"url":"file:///etc/passwd"}`, ""):                                         -76,
		s.call("http_send", `{"url":"https://[::1"}`, ""):                                               -28,
		s.call("http_send", `{"uri":"https://api.example/v1/"}`, ""):                                    -28,
		s.call("http_send", `{"url":"https://api.example/v1/","headers":{"A":7}}`, ""):                  -28,
		s.call("http_send", `{"url":"https://api.example/v1/","headers":{"A":"{{secret:OTHER}}"}}`, ""): -76,
	}
	d := p.play(s)
	if d.result(post) != 1 || d.result(second) != 2 || d.result(third) != 3 || d.result(closed) != 0 {
		t.Errorf("handles %d, %d, %d; closed %d", d.result(post), d.result(second), d.result(third), d.result(closed))
	}
	if got := d.buffer(head, 1); got != `{"status":201,"headers":{"X-One":["1","2"]}}` {
		t.Errorf("head %s", got)
	}
	var got []string
	for _, r := range reads {
		got = append(got, d.buffer(r, 1))
	}
	if !cmp.Equal(got, []string{"firs", "t ", "second", "", ""}) {
		t.Errorf("read %q", got)
	}
	if d.result(tooLong[0]) != 1 || d.result(tooLong[1]) != -61 {
		t.Errorf("a body over the limit: %d, %d", d.result(tooLong[0]), d.result(tooLong[1]))
	}
	for call, want := range bad {
		if got := d.result(call); got != want {
			t.Errorf("call %d gave %d, want %d", call, got, want)
		}
	}
	want := runtime.Request{Method: "POST", URL: "https://api.example/v1/x", Header: map[string][]string{"A": {"one"}, "B": {"b1", "{{secret:KEY}}"}}, Body: []byte("body")}
	if len(a.requests) != 3 || cmp.Diff(want, a.requests[0]) != "" {
		t.Errorf("requests %+v", a.requests)
	}
	for i, s := range streams {
		if !s.closed {
			t.Errorf("body %d was left open", i)
		}
	}
	if a.ctx.Err() == nil {
		t.Error("what a task asked for goes on after its end")
	}
}

func TestHandlesAreFew(t *testing.T) {
	a := &answers{}
	for range maxHandles + 1 {
		a.bodies = append(a.bodies, &stream{})
	}
	p := newPlayer(t, Config{Services: &local.Services{Sender: a.send}})
	p.task.Grants = everything()
	s := newScript(t)
	last := 0
	for range maxHandles + 1 {
		last = s.call("http_send", `{"url":"https://api.example/v1/"}`, "")
	}
	freed := s.call("http_close", uint64(3))
	again := s.call("http_send", `{"url":"https://api.example/v1/"}`, "")
	d := p.play(s)
	if d.result(last) != -33 || d.result(freed) != 0 || d.result(again) != maxHandles+1 {
		t.Errorf("one too many: %d, after closing one: %d", d.result(last), d.result(again))
	}
}

func TestSecretsAndMetrics(t *testing.T) {
	services := &local.Services{}
	services.SetSecret("shop", "KEY", []byte("s3cret"))
	services.SetSecret("other", "KEY", []byte("not mine"))
	p := newPlayer(t, Config{Services: services})
	p.task.Grants = everything()
	p.task.Grants.Secrets = append(p.task.Grants.Secrets, "MISSING")
	s := newScript(t)
	get := s.call("secret_get", "KEY", 20)
	bad := map[int]int64{
		s.call("secret_get", "OTHER", 20):                 -76,
		s.call("secret_get", "MISSING", 20):               -44,
		s.call("secret_get", "", 20):                      -28,
		s.call("metric_add", "", uint64(0), 1.0):          -28,
		s.call("metric_add", "m", uint64(3), 1.0):         -28,
		s.call("metric_add", "m", anyNumber, 1.0):         -28,
		s.call("metric_add", "m", uint64(0), -1.0):        -28,
		s.call("metric_add", "m", uint64(1), math.NaN()):  -28,
		s.call("metric_add", "m", uint64(2), math.Inf(1)): -28,
		s.call("metric_add", "sold", uint64(0), 2.0):      0,
		s.call("metric_add", "sold", uint64(0), 3.5):      0,
		s.call("metric_add", "level", uint64(1), -7.0):    0,
	}
	d := p.play(s)
	if got := d.buffer(get, 2); got != "s3cret" {
		t.Errorf("secret %q", got)
	}
	for call, want := range bad {
		if got := d.result(call); got != want {
			t.Errorf("call %d gave %d, want %d", call, got, want)
		}
	}
	if services.Value("sold") != 5.5 || services.Value("level") != -7 {
		t.Errorf("metrics %v and %v", services.Value("sold"), services.Value("level"))
	}
	for _, line := range d.sink.lines {
		if strings.Contains(line, "s3cret") {
			t.Errorf("the log has the secret: %q", line)
		}
	}
}

// TestNothingIsServed calls every service on a host without services.
func TestNothingIsServed(t *testing.T) {
	p := newPlayer(t, Config{})
	p.task.Grants = everything()
	s := newScript(t)
	calls := []int{
		s.call("checkpoint_get", 1), s.call("checkpoint_put", ""), s.call("kv_get", "b", "k", 1, uint64(0)), s.call("kv_put", "b", "k", ""),
		s.call("kv_cas", "b", "k", "", uint64(0)), s.call("kv_delete", "b", "k", uint64(0)), s.call("job_enqueue", `{"job":"settle"}`, 1),
		s.call("map", "\x00\x00\x00\x00"), s.call("secret_get", "KEY", 1), s.call("http_send", `{"url":"https://api.example/v1/"}`, ""), s.call("metric_add", "m", uint64(0), 1.0),
	}
	d := p.play(s)
	for _, c := range calls {
		if d.result(c) != -52 {
			t.Errorf("call %d gave %d, want -52", c, d.result(c))
		}
	}
}

// TestNothingIsGranted calls every service without a grant. The services panic when they
// are called.
func TestNothingIsGranted(t *testing.T) {
	p := newPlayer(t, Config{Services: failing{func() error { panic("reached") }}})
	for name, grants := range map[string]*runtime.Grants{"nil": nil, "empty": {}} {
		s := newScript(t)
		calls := []int{
			s.call("kv_get", "b", "k", 1, uint64(0)), s.call("kv_put", "b", "k", ""), s.call("kv_cas", "b", "k", "", uint64(0)),
			s.call("kv_delete", "b", "k", uint64(0)), s.call("job_enqueue", `{"job":"settle"}`, 1), s.call("secret_get", "KEY", 1),
			s.call("http_send", `{"url":"https://api.example/v1/"}`, ""),
		}
		d := p.play(s, func(task *runtime.Task) { task.Grants = grants })
		for _, c := range calls {
			if d.result(c) != -76 {
				t.Errorf("%s: call %d gave %d, want -76", name, c, d.result(c))
			}
		}
	}
}

// failing implements all services with one function.
type failing struct{ f func() error }

func (s failing) Checkpoint(context.Context, *runtime.Task) ([]byte, error)  { return nil, s.f() }
func (s failing) SetCheckpoint(context.Context, *runtime.Task, []byte) error { return s.f() }
func (s failing) Get(context.Context, *runtime.Task, string, string) ([]byte, uint64, error) {
	return nil, 0, s.f()
}

func (s failing) Put(context.Context, *runtime.Task, string, string, []byte, uint64) (uint64, error) {
	return 0, s.f()
}

func (s failing) Delete(context.Context, *runtime.Task, string, string, uint64) error { return s.f() }

func (s failing) Enqueue(context.Context, *runtime.Task, runtime.Submit) (string, error) {
	return "", s.f()
}
func (s failing) Map(context.Context, *runtime.Task, int, [][]byte) error       { return s.f() }
func (s failing) Secret(context.Context, *runtime.Task, string) ([]byte, error) { return nil, s.f() }

func (s failing) Send(context.Context, *runtime.Task, runtime.Request) (*runtime.Response, error) {
	return nil, s.f()
}

func (s failing) Metric(context.Context, *runtime.Task, string, runtime.MetricKind, float64) error {
	return s.f()
}

func TestErrorsOfServices(t *testing.T) {
	var err error
	p := newPlayer(t, Config{Services: failing{func() error { return err }}})
	for want, e := range map[int64]error{
		-44: runtime.ErrNoEntry, -20: runtime.ErrConflict, -76: runtime.ErrNotGranted, -61: fmt.Errorf("sent: %w", runtime.ErrTooLarge),
		-6: runtime.ErrUnavailable, -52: runtime.ErrNoService, -28: runtime.ErrInvalid, -11: context.DeadlineExceeded, -29: errors.New("what\nelse"), 0: nil,
	} {
		err = e
		s := newScript(t)
		put := s.call("checkpoint_put", "x")
		d := p.play(s)
		if got := d.result(put); got != want {
			t.Errorf("%v gave %d, want %d", e, got, want)
		}
		if want == -29 && !cmp.Equal(d.sink.lines, []string{"checkpoint_put: what"}) {
			t.Errorf("log %q", d.sink.lines)
		}
	}
}

// TestAPanicOfAService checks that a panic is a host error and ends only its task.
func TestAPanicOfAService(t *testing.T) {
	p := newPlayer(t, Config{Services: failing{func() error { panic("a bug") }}})
	s := newScript(t)
	s.call("checkpoint_put", "x")
	if d := p.play(s); d.Outcome != runtime.HostError || d.Code != "service" || !strings.Contains(d.Error, "a bug") {
		t.Errorf("result %+v", d.Result)
	}
	if d := p.play(newScript(t)); d.Outcome != runtime.Succeeded {
		t.Errorf("the next task: %+v", d.Result)
	}
}

func TestServiceCallsAreCounted(t *testing.T) {
	n := 0
	p := newPlayer(t, Config{Services: failing{func() error { n++; return nil }}})
	s := newScript(t)
	for range 5 {
		s.call("checkpoint_put", "x")
	}
	d := p.play(s, func(task *runtime.Task) { task.Limits.Calls = 3 })
	if d.result(2) != 0 || d.result(3) != -19 || d.result(4) != -19 || n != 3 {
		t.Errorf("results %d, %d; the service was reached %d times, want 3", d.result(2), d.result(3), n)
	}
}

// TestAServiceThatHangs checks that a guest leaves a hanging service at its deadline, and
// holds no slot meanwhile.
func TestAServiceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := hanging{failing{func() error { return nil }}, make(chan struct{}, 1)}
		p := newPlayer(t, Config{Slots: 1, Services: hang})
		s := newScript(t)
		get := s.call("checkpoint_get", 1)
		start := time.Now()
		d := p.play(s, func(task *runtime.Task) { task.Deadline = within(time.Second) })
		if took := time.Since(start); d.Outcome != runtime.TimedOut || took != time.Second {
			t.Errorf("deadline: %+v after %v", d.Result, took)
		}
		<-hang.reached
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan done)
		go func() {
			task := p.task
			task.Digest, task.Input = p.digest, s.input(opReturn, 3)
			sink := &recorder{}
			ended <- done{p.engine.Run(ctx, task, sink), s, sink}
		}()
		<-hang.reached
		if d := p.play(newScript(t)); d.Outcome != runtime.Succeeded {
			t.Errorf("beside a guest that waits: %+v", d.Result)
		}
		cancel()
		// The guest gets an error for the cancellation, and may end by itself.
		if d := <-ended; d.Outcome != runtime.Stopped || d.Code != "stopped" {
			t.Errorf("cancelled: %+v", d.Result)
		}
		_ = get
	})
}

// hanging blocks in Checkpoint until its context ends.
type hanging struct {
	failing
	reached chan struct{}
}

func (h hanging) Checkpoint(ctx context.Context, _ *runtime.Task) ([]byte, error) {
	h.reached <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestGuestsSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(t, Config{})
		s := newScript(t)
		s.call("sleep", uint64(1500))
		bad := s.call("sleep", anyNumber)
		start := time.Now()
		d := p.play(s)
		if took := time.Since(start); took != 1500*time.Millisecond || d.result(0) != 0 || d.result(bad) != -28 {
			t.Errorf("slept %v: %d, %d", took, d.result(0), d.result(bad))
		}
	})
}

// TestPointersAreChecked passes each function with a range parameter ranges outside the
// memory, at its end, and around the end of the address space.
func TestPointersAreChecked(t *testing.T) {
	p := newPlayer(t, Config{Services: &local.Services{Sender: (&answers{bodies: []io.ReadCloser{&stream{}}}).send}})
	p.task.Grants = everything()
	const end = 4 * 65536
	checked := 0
	for at, f := range hostabi.Functions() {
		for i := 0; i+1 < len(f.Params); i++ {
			if f.Params[i] != api.ValueTypeI32 || f.Params[i+1] != api.ValueTypeI32 {
				continue
			}
			for _, r := range [][2]uint64{{end, 1}, {end - 1, 2}, {0xffffffff, 1}, {0xffffffff, 0xffffffff}, {1, 0xffffffff}} {
				s := newScript(t)
				args := make([]uint64, 8)
				for k := range args {
					args[k] = scriptData
				}
				for k := 1; k < len(f.Params); k++ {
					args[k] = 1
				}
				for k := range f.Params { // the ranges before it are valid
					if k+1 < len(f.Params) && f.Params[k] == api.ValueTypeI32 && f.Params[k+1] == api.ValueTypeI32 {
						args[k], args[k+1] = scriptData, 1
					}
				}
				args[i], args[i+1] = r[0], r[1]
				s.bytes([]byte("b"))
				s.op(uint64(at), args...)
				d := p.play(s)
				switch {
				case d.Outcome == runtime.Succeeded: // refused before the range is read, or not a range
				case d.Outcome == runtime.Retryable && d.Code == "host_call" && strings.Contains(d.Error, "outside the memory"):
					checked++
				default:
					t.Errorf("%s with %x at %d: %+v", f.Name, r, i, d.Result)
				}
			}
		}
	}
	if checked < 80 {
		t.Errorf("%d calls met the check, want most", checked)
	}
}

// FuzzCalls calls host functions with arbitrary arguments, as a malicious guest may.
func FuzzCalls(f *testing.F) {
	f.Add(uint8(14), uint64(scriptData), uint64(1), uint64(scriptData), uint64(1), uint64(scriptData), uint64(1), uint64(0), []byte("b"))
	f.Add(uint8(20), uint64(scriptData), uint64(30), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), []byte(`{"url":"https://api.example/v1/"}`))
	f.Add(uint8(17), uint64(scriptData), uint64(16), uint64(0), uint64(8), uint64(0), uint64(0), uint64(0), []byte(`{"job":"settle"}`))
	f.Add(uint8(18), uint64(scriptData), uint64(5), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), []byte{1, 0, 0, 0, 7})
	p := newPlayer(f, Config{Services: &local.Services{}})
	p.task.Grants = everything()
	f.Fuzz(func(t *testing.T, op uint8, a, b, c, d, e, g, h uint64, data []byte) {
		number := int(op) % len(hostabi.Functions())
		if name := hostabi.Functions()[number].Name; name == "sleep" || len(data) > 64<<10 {
			return
		}
		s := newScript(t)
		s.bytes(data)
		s.op(uint64(number), a, b, c, d, e, g, h)
		s.op(uint64(number), a, b, c, d, e, g, h)
		r := p.play(s)
		if r.Outcome != runtime.Succeeded && r.Code != "host_call" && r.Code != "output_limit" {
			t.Errorf("%s: %+v", hostabi.Functions()[number].Name, r.Result)
		}
	})
}
