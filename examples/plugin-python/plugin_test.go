//go:build unix

// Package plugin_test runs the plugin in Python as a host does.
package plugin_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/plugin"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// TestProto checks that the messages in the program are those of plugin.proto.
func TestProto(t *testing.T) {
	text, err := os.ReadFile("plugin.py")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)PROTO = """\n(.*?)"""`).FindSubmatch(text)
	if m == nil {
		t.Fatal("there is no PROTO in plugin.py")
	}
	raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(m[1]), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	got := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(pluginv1.File_plugin_v1_plugin_proto)
	if !proto.Equal(got, want) {
		fresh, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("PROTO is of an older plugin.proto; it has to be:\n%s", base64.StdEncoding.EncodeToString(fresh))
	}
}

// python returns the directory of a Python that has the packages of the plugin.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err == nil && exec.Command(path, "-c", "import grpc, google.protobuf, cryptography").Run() == nil {
			return filepath.Dir(path)
		}
	}
	const missing = "python3 with grpcio, protobuf and cryptography (Debian packages python3-grpcio, python3-protobuf and python3-cryptography)"
	testkit.Lacks(t, "needs %s, which is not installed", missing)
	return ""
}

type heard struct {
	mu    sync.Mutex
	lines []string
	steps chan struct{}
}

func (h *heard) Log(_ runtime.Level, line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, string(line))
}

func (h *heard) Progress(int64, int64, string) {
	select {
	case h.steps <- struct{}{}:
	default:
	}
}

func TestPlugin(t *testing.T) {
	bin := python(t)
	file, err := filepath.Abs("plugin.py")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	k := process.New()
	defer k.Close()
	e, err := plugin.Open(plugin.Config{
		Dir: t.TempDir(), Keeper: k,
		Plugins: []plugin.Spec{{
			Name: "py", Path: file, SHA256: []string{hex.EncodeToString(sum[:])}, StartTimeout: 60e9, HealthEvery: 60e9,
			Env: map[string]string{"PATH": bin + string(os.PathListSeparator) + os.Getenv("PATH")},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	run := func(ctx context.Context, handler, input string, h *heard) runtime.Result {
		return e.Run(ctx, runtime.Task{RunID: "r", Attempt: 1, Module: "py", Handler: handler, Input: []byte(input)}, h)
	}

	h := &heard{}
	if r := run(t.Context(), "shout", "hello", h); r.Outcome != runtime.Succeeded || string(r.Output) != "HELLO" || len(h.lines) != 1 || h.lines[0] != "shouting 5 characters" {
		t.Fatalf("shout: %+v, %q", r, h.lines)
	}
	if r := run(t.Context(), "shout", "\xff", h); r.Outcome != runtime.Permanent || !strings.Contains(r.Error, "no text in UTF-8") {
		t.Errorf("no text: %+v", r)
	}
	if r := run(t.Context(), "countdown", "soon", h); r.Outcome != runtime.Retryable || r.Code != "exception" || !strings.Contains(r.Trace, "ValueError") {
		t.Errorf("an exception: %+v", r)
	}
	if r := run(t.Context(), "sing", "", h); r.Outcome != runtime.Permanent || !strings.Contains(r.Error, "it has: shout, countdown") {
		t.Errorf("no handler: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	counting := &heard{steps: make(chan struct{}, 1)}
	go func() { <-counting.steps; cancel() }()
	if r := run(ctx, "countdown", "100000", counting); r.Outcome != runtime.Stopped {
		t.Errorf("cancelled: %+v", r)
	}
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			if r := run(t.Context(), "shout", "many", &heard{}); string(r.Output) != "MANY" {
				t.Errorf("many at once: %+v", r)
			}
		})
	}
	wg.Wait()
}
