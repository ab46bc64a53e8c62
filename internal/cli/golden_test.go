package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	_ "github.com/wheelworkhq/wheelwork/api/v1" // its messages are found by name
)

var update = flag.Bool("update", false, "write the golden files of help and output")

// TestHelp compares the help of every command with testdata/help, a file for each.
// `go test ./internal/cli -run TestHelp -update` writes them.
func TestHelp(t *testing.T) {
	const dir = "testdata/help"
	noEnvironment := func(string) string { return "" }
	have := map[string]string{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())
		var out, errOut strings.Builder
		if code := execute(t.Context(), append(path[1:], "--help"), strings.NewReader(""), &out, &errOut, noEnvironment); code != exitOK || errOut.Len() > 0 {
			t.Errorf("%s --help: exit code %d: %s", cmd.CommandPath(), code, errOut.String())
		}
		have[strings.Join(path, "-")+".txt"] = out.String()
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newInvocation([]string{}, strings.NewReader(""), &strings.Builder{}, &strings.Builder{}, noEnvironment).root)
	files, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := have[f.Name()]; ok {
			continue
		}
		if !*update {
			t.Errorf("%s/%s is of no command: remove it", dir, f.Name())
		} else if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			t.Error(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		golden(t, filepath.Join(dir, name), have[name])
	}
}

// golden compares a text with a file, or writes the file with -update.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (go test ./internal/cli -run %s -update writes it). Got:\n%s\nwant:\n%s", file, t.Name(), got, want)
	}
}

// TestOutput executes the command lines in the files of testdata/output. A file has the
// answers of a server, and then each command line with its standard output, its standard
// error and its exit code. `go test ./internal/cli -run TestOutput -update` writes what
// follows the command lines.
func TestOutput(t *testing.T) {
	files, err := filepath.Glob("testdata/output/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		script, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(script.Files) < 2 || script.Files[0].Name != "answers.json" {
			t.Fatalf("%s: want answers.json and command lines", file)
		}
		var answers map[string]json.RawMessage
		if err := json.Unmarshal(script.Files[0].Data, &answers); err != nil {
			t.Fatalf("%s: answers.json: %v", file, err)
		}
		address := serveAnswers(t, answers)
		for i := range script.Files[1:] {
			f := &script.Files[1+i]
			f.Data = []byte(strings.ReplaceAll(outcome(t, f.Name, address), address, "http://server"))
		}
		golden(t, file, string(txtar.Format(script)))
	}
}

// outcome executes a command line and returns all that its caller sees.
func outcome(t *testing.T, line, address string) string {
	t.Helper()
	compiled := t.TempDir()
	getenv := func(name string) string {
		return map[string]string{"WHEELWORK_URL": address, "WHEELWORK_COMPILED": compiled}[name]
	}
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	var out, errOut strings.Builder
	code := execute(t.Context(), args, strings.NewReader(""), &out, &errOut, getenv)
	text := out.String()
	if errOut.Len() > 0 {
		text += "[standard error]\n" + errOut.String()
	}
	if code != exitOK {
		text += fmt.Sprintf("[exit code %d]\n", code)
	}
	return text
}

// serveAnswers serves fixed answers by method, as "Jobs.GetJob", and returns the address.
// The answer is a message, an array of the messages of a stream, or the text
// "CODE: message" of an error.
func serveAnswers(t *testing.T, answers map[string]json.RawMessage) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		path, _ := grpc.MethodFromServerStream(stream)
		service, method, _ := strings.Cut(strings.TrimPrefix(path, "/wheelwork.v1."), "/")
		answer, ok := answers[service+"."+method]
		if service == "Cluster" && method == "GetVersion" { // the call of every client that connects
			answer, ok = json.RawMessage("{}"), true
		}
		if !ok {
			return status.Errorf(codes.Unimplemented, "there is no answer for %s.%s", service, method)
		}
		if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		var refusal string
		if json.Unmarshal(answer, &refusal) == nil {
			return refusalOf(refusal)
		}
		var messages []json.RawMessage
		if json.Unmarshal(answer, &messages) != nil {
			messages = []json.RawMessage{answer}
		}
		for _, raw := range messages {
			m, err := answerOf(service, method, raw)
			if err != nil {
				t.Errorf("the answer of %s.%s: %v", service, method, err)
				return err
			}
			if err := stream.SendMsg(m); err != nil {
				return err
			}
		}
		return nil
	}))
	go server.Serve(l) //nolint:errcheck // ends with the test
	t.Cleanup(server.Stop)
	return "http://" + l.Addr().String()
}

// answerOf decodes a message of the type that a method returns.
func answerOf(service, method string, raw json.RawMessage) (proto.Message, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("wheelwork.v1." + service + "." + method))
	if err != nil {
		return nil, err
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, err
	}
	m := kind.New().Interface()
	return m, protojson.Unmarshal(raw, m)
}

// refusalOf returns the error of a text "CODE: message", with CODE as in gRPC.
func refusalOf(text string) error {
	name, message, _ := strings.Cut(text, ": ")
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		return err
	}
	return status.Error(code, message)
}
