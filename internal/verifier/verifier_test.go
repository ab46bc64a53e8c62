package verifier

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// outlooks is the body of the test binary as a child that was taken over, where there is one.
var outlooks func(secret, address, pid string)

// TestMain lets the test binary be the verifier's child process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "gate-child" {
		if err := Child(context.Background(), os.Stdin, os.Stdout, os.NewFile(3, "alive")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 5 && os.Args[1] == "outlook" {
		outlooks(os.Args[2], os.Args[3], os.Args[4])
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == "limited-writer" {
		if err := limitedWriter(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func childCommand(t *testing.T) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{exe, "gate-child"}
}

// uploadOf returns an upload with the given bytes.
func uploadOf(t testing.TB, code []byte) *modules.Upload {
	t.Helper()
	store, err := modules.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	u, err := store.NewUpload()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() }) //nolint:errcheck // a test's
	if _, err := u.Write(code); err != nil {
		t.Fatal(err)
	}
	return u
}

func bytesOf(t *testing.T, u *modules.Upload) []byte {
	t.Helper()
	b, err := u.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVerifier: the child process answers like the verifier in this process.
func TestVerifier(t *testing.T) {
	child, here := New(Config{Command: childCommand(t)}), New(Config{})
	for _, tt := range []struct {
		name, manifest string
		code           []byte
		want           string // in the error; "": accepted
	}{
		{"greet", "", greet.Module, ""},
		{"two manifests", `{"handlers":[{"name":"main"}]}`, wasm.AppendManifest(greet.Module, `{"handlers":[{"name":"main"}]}`), "there is a manifest beside it"},
		{"a small one with a manifest", `{"handlers":[{"name":"main","input_schema":{"type": "object"}}],"capabilities":{"http":["example.com"]}}`, busyModule(1, 1), ""},
		{"a manifest that is none", `{`, busyModule(1, 1), "manifest is not the JSON expected"},
		{"nothing", "", nil, "not WebAssembly"},
		{"text", "", []byte("#!/bin/sh"), "not WebAssembly"},
		{"a component", "", []byte("\x00asm\x0d\x00\x01\x00"), "is a component"},
		{"cut off", "", greet.Module[:len(greet.Module)/2], "refused"},
	} {
		sent, sentHere := uploadOf(t, tt.code), uploadOf(t, tt.code)
		got, err := child.Inspect(t.Context(), sent, tt.manifest)
		local, localErr := here.Inspect(t.Context(), sentHere, tt.manifest)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.name, err, tt.want)
		}
		if fmt.Sprint(err) != fmt.Sprint(localErr) || got.Kind != local.Kind || !slices.Equal(got.Handlers, local.Handlers) || got.Digest != local.Digest || !maps.Equal(got.InputSchemas, local.InputSchemas) {
			t.Errorf("%s: the child says %v, %v, this process %v, %v", tt.name, got.Kind, err, local.Kind, localErr)
		}
		if err == nil && (tt.manifest != "") != bytes.Contains(bytesOf(t, sent), []byte("example.com")) {
			t.Errorf("%s: the manifest is not in the code that is kept", tt.name)
		}
		if want := map[string]string{"main": `{"type":"object"}`}; err == nil && tt.manifest != "" && !maps.Equal(got.InputSchemas, want) {
			t.Errorf("%s: the schemas of inputs are %v, want %v", tt.name, got.InputSchemas, want)
		}
	}
}

// TestVerifierTakesScripts: a script passes without its interpreter, and the answer names the
// interpreter, so that a collection keeps it.
func TestVerifierTakesScripts(t *testing.T) {
	interpreter, ok := script.ByLanguage(script.JavaScript)
	if !ok {
		t.Fatal("no interpreter")
	}
	code, err := script.Pack(script.Script{
		Language: script.JavaScript, Interpreter: interpreter.Digest, Main: "main.js", Files: map[string]string{"main.js": "export function main() {}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]Config{"a child": {Command: childCommand(t)}, "this process": {}} {
		info, err := New(g).Inspect(t.Context(), uploadOf(t, code), `{"handlers":[{"name":"main"}]}`)
		if err != nil || info.Interpreter != interpreter.Digest || !strings.Contains(info.GetInterpreter, "fetch-interpreter javascript") || !slices.Contains(info.Needs, script.Ability(interpreter.Digest)) {
			t.Errorf("%s: needs %q, %v", name, info.Needs, err)
		}
	}
}

// TestVerifierLimits sends modules that take a compiler long, with limits that they reach.
func TestVerifierLimits(t *testing.T) {
	heavy := busyModule(250, 20_000) // 5 million instructions
	for _, tt := range []struct {
		name   string
		config Config
		want   string
	}{
		{"processor", Config{CPU: time.Second}, "more than 1s of processor time"},
		{"memory", Config{Memory: 120 << 20}, "more than 120 MiB of memory"},
		{"time", Config{Wall: 300 * time.Millisecond}, "longer than 300ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.config.Command = childCommand(t)
			began := time.Now()
			_, err := New(tt.config).Inspect(t.Context(), uploadOf(t, heavy), "")
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "split its largest functions") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q and what to do", err, tt.want)
			}
			t.Log("after", time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestVerifierCancelled: the child ends when its caller has gone.
func TestVerifierCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := New(Config{Command: childCommand(t)})
	done := make(chan error, 1)
	go func() {
		_, err := g.Inspect(ctx, uploadOf(t, busyModule(400, 20_000)), "")
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if len(g.turns) != 0 {
		t.Error("the turn was not given back")
	}
}

// TestVerifierChildEndsWithItsServer closes the pipe, as the end of a killed server does.
func TestVerifierChildEndsWithItsServer(t *testing.T) {
	command := childCommand(t)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), limitsVariable+"=60 2147483648 0 0 0 0 0")
	alive, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{alive}
	stdin, err := cmd.StdinPipe() // stays open: the child waits for the rest of an upload
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	alive.Close()
	if _, err := stdin.Write([]byte{0, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	held.Close()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the child ended with %v", err)
	}
}

// TestVerifierChildByHand: the child refuses to work without limits.
func TestVerifierChildByHand(t *testing.T) {
	if err := Child(t.Context(), strings.NewReader(""), io.Discard, nil); err == nil || !strings.Contains(err.Error(), limitsVariable) {
		t.Errorf("%v", err)
	}
}

// TestVerifierCommandThatIsNone: an operator's mistake has another error than a bad module.
func TestVerifierCommandThatIsNone(t *testing.T) {
	_, err := New(Config{Command: []string{"/nonexistent/wheelwork"}}).Inspect(t.Context(), uploadOf(t, greet.Module), "")
	if err == nil || status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "start the upload verifier") {
		t.Errorf("%v", err)
	}
}

// TestVerifierChildSeesNoSecrets looks at the environment of the child.
func TestVerifierChildSeesNoSecrets(t *testing.T) {
	t.Setenv("WHEELWORK_TOKEN", "secret")
	look := `if [ -n "$WHEELWORK_TOKEN" ]; then echo '{"refused":"it sees the token"}'; else echo '{"kind":"command","digest":"'$1'"}'; fi`
	info, err := New(Config{Command: []string{"/bin/sh", "-c", look, "look", modules.Digest(greet.Module)}}).Inspect(t.Context(), uploadOf(t, greet.Module), "")
	if err != nil || info.Kind != "command" {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestVerifierAnswersThatAreNone: a malformed answer of a child is no acceptance.
func TestVerifierAnswersThatAreNone(t *testing.T) {
	for name, script := range map[string]string{
		"nothing": "true", "text": "echo yes", "half an answer": `printf '{"kind":"comm'`, "a failure": `echo '{"kind":"command"}'; exit 3`,
		"too much": `head -c 20000000 /dev/zero`,
	} {
		if info, err := New(Config{Command: []string{"/bin/sh", "-c", script}}).Inspect(t.Context(), uploadOf(t, greet.Module), ""); err == nil {
			t.Errorf("%s: taken as %+v", name, info)
		}
	}
}

// busyModule returns a command with so many functions of so many instructions each.
func busyModule(functions, instructions int) []byte {
	u := func(b []byte, v int) []byte { return binary.AppendUvarint(b, uint64(v)) }
	section := func(out []byte, id byte, body []byte) []byte { return append(u(append(out, id), len(body)), body...) }
	var body []byte
	body = append(body, 1, 1, 0x7f) // a local i32
	for i := range instructions / 4 {
		body = append(body, 0x20, 0, 0x41, byte(i%60), 0x6a, 0x21, 0) // local = local + constant
	}
	body = append(body, 0x0b)
	code := u(nil, functions)
	for range functions {
		code = append(u(code, len(body)), body...)
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = section(out, 1, []byte{1, 0x60, 0, 0})
	out = section(out, 3, append(u(nil, functions), make([]byte, functions)...))
	out = section(out, 5, []byte{1, 0, 1})
	out = section(out, 7, append(append([]byte{2, 6}, "_start\x00\x00\x06memory"...), 2, 0))
	return section(out, 10, code)
}

// TestCheckScript parses scripts with their interpreter in the child.
func TestCheckScript(t *testing.T) {
	v := New(Config{Command: childCommand(t), CodeDir: t.TempDir()})
	for source, want := range map[string]string{
		"export default () => 1;":    "",
		"export default () => (;":    "module refused: main.js:1:23: SyntaxError",
		"for (;;);":                  "",
		strings.Repeat("[", 100_000): "module refused: main.js",
	} {
		upload, quick := scriptAndInterpreter(t, script.JavaScript, source)
		err := v.CheckScript(t.Context(), upload, quick)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", source, err, want)
		}
	}
}

// TestUploadLimits checks that the limits of the configuration hold in the child and in this
// process, and that the refusal names the flag.
func TestUploadLimits(t *testing.T) {
	// A command of two functions with two locals each.
	code := []byte("\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x03\x02\x00\x00" +
		"\x07\x0a\x01\x06_start\x00\x00" + "\x0a\x0b\x02\x04\x01\x02\x7f\x0b\x04\x01\x02\x7f\x0b")
	for name, tt := range map[string]struct {
		limits wasm.UploadLimits
		flag   string // "": accepted
	}{
		"the defaults":      {wasm.UploadLimits{}, ""},
		"more":              {wasm.MaxUploadLimits(), ""},
		"a smaller module":  {wasm.UploadLimits{ModuleBytes: 20}, "--upload-size"},
		"fewer functions":   {wasm.UploadLimits{Functions: 1}, "--upload-functions"},
		"smaller functions": {wasm.UploadLimits{BodyBytes: 3}, "--upload-body"},
		"fewer locals":      {wasm.UploadLimits{Locals: 1}, "--upload-locals"},
	} {
		for _, command := range [][]string{nil, childCommand(t)} {
			_, err := New(Config{Command: command, Limits: tt.limits}).Inspect(t.Context(), uploadOf(t, code), "")
			if (err == nil) != (tt.flag == "") || err != nil && !strings.Contains(err.Error(), "raise "+tt.flag+" of the server") {
				t.Errorf("%s: %v, want %q", name, err, tt.flag)
			}
		}
	}
}
