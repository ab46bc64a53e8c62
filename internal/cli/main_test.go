package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// raceOptions are for the programs that tests start, as GORACE. Under the race detector each
// program sleeps for a second before it exits, in the hope of a race; the tests start hundreds.
const raceOptions = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if err := os.Setenv("GORACE", raceOptions); err != nil {
		panic(err)
	}
	time.Local = time.UTC // the golden files have times
	testscript.Main(testkit.NoContexts(m), map[string]func(){"wheelwork": func() { os.Exit(Main()) }})
}

// TestFake runs each script against its own server in memory.
func TestFake(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/fake",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", raceOptions)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			// Time stands still, so that no schedule fires during a script.
			server := sdktest.NewServer(sdktest.Config{Token: "secret", Handle: handle, Start: time.Now()})
			go server.Serve(l) //nolint:errcheck // ends with the server
			e.Defer(server.Close)
			e.Setenv("WHEELWORK_URL", "http://"+l.Addr().String())
			e.Setenv("WHEELWORK_TOKEN", "secret")
			e.Setenv("TZ", "UTC")
			e.Setenv("WHEELWORK_COMPILED", filepath.Join(e.WorkDir, "compiled"))
			services, err := filepath.Abs("testdata/services/services.wasm")
			if err != nil {
				return err
			}
			e.Setenv("SERVICES", services)
			const wasm = "\x00asm\x01\x00\x00\x00" // scripts cannot contain these bytes
			return errors.Join(
				os.WriteFile(filepath.Join(e.WorkDir, "empty.wasm"), []byte(wasm), 0o600),
				os.WriteFile(filepath.Join(e.WorkDir, "other.wasm"), []byte(wasm+"\x00\x01\x00"), 0o600),
			)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"wrong": wrongUsage},
	})
}

// wrongUsage is the script command "wrong PATTERN ARGS...". The command line must fail
// with exit code 2, print one matching line, and print no data.
func wrongUsage(ts *testscript.TestScript, _ bool, args []string) {
	// A command line that is unexpectedly valid may serve forever.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out, errOut strings.Builder
	code := execute(ctx, args[1:], strings.NewReader(""), &out, &errOut, ts.Getenv)
	if code != exitUsage {
		ts.Fatalf("exit code %d, want %d: %s", code, exitUsage, errOut.String())
	}
	if !regexp.MustCompile(args[0]).MatchString(errOut.String()) || strings.Count(errOut.String(), "\n") != 1 {
		ts.Fatalf("standard error %q, want one line that matches %q", errOut.String(), args[0])
	}
	if out.Len() > 0 {
		ts.Fatalf("standard output %q, want none", out.String())
	}
}

// handle interprets the input of a run.
func handle(ctx context.Context, run *apiv1.Run, log func(string)) (string, error) {
	switch word, rest, _ := strings.Cut(run.GetInput(), " "); word {
	case "fail":
		return "", errors.New(rest)
	case "hang":
		log("hanging")
		<-ctx.Done()
		return "", ctx.Err()
	case "log":
		for i := range 3 {
			log(fmt.Sprintf("line %d", i))
		}
	}
	return run.GetInput(), nil
}

// TestAddressOfAnotherProgram calls a gRPC port that does not belong to a server of
// Wheelwork, like the ports of a nameserver and of etcd.
func TestAddressOfAnotherProgram(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := grpc.NewServer()
	go other.Serve(l) //nolint:errcheck // ends with the test
	t.Cleanup(other.Stop)
	var out, errOut strings.Builder
	url := "http://" + l.Addr().String()
	code := execute(t.Context(), []string{"job", "list", "--url", url, "--token", "secret"}, strings.NewReader(""), &out, &errOut, func(string) string { return "" })
	if want := "wheelwork: " + url + " is not a server: name the --listen address of a server"; code != exitFail || !strings.HasPrefix(errOut.String(), want) {
		t.Errorf("exit code %d, %q", code, errOut.String())
	}
	errOut.Reset()
	url = "https://" + l.Addr().String()
	code = execute(t.Context(), []string{"job", "list", "--url", url, "--token", "secret"}, strings.NewReader(""), &out, &errOut, func(string) string { return "" })
	if want := "wheelwork: " + url + " answers without TLS: name it with http:// in --url or WHEELWORK_URL\n"; code != exitFail || errOut.String() != want {
		t.Errorf("exit code %d, %q, want %q", code, errOut.String(), want)
	}
}

// TestUnreachableAddresses calls a program that does not speak gRPC, and a host name that
// no name server knows.
func TestUnreachableAddresses(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	for url, want := range map[string]string{
		web.URL:                       "the program that listens there is not a Wheelwork server",
		"http://nosuch.invalid:7700":  "its host name has no address",
		"https://nosuch.invalid:7700": "its host name has no address",
	} {
		var out, errOut strings.Builder
		code := execute(t.Context(), []string{"job", "list", "--url", url, "--token", "secret"}, strings.NewReader(""), &out, &errOut, func(string) string { return "" })
		if want := "wheelwork: cannot reach " + url + ": " + want + "; start a server"; code != exitFail || !strings.HasPrefix(errOut.String(), want) {
			t.Errorf("exit code %d, %q, want %q", code, errOut.String(), want)
		}
	}
}

// TestEveryCommand walks the command tree. Each command has a description, and the names
// of its flags do not clash.
func TestEveryCommand(t *testing.T) {
	var out strings.Builder
	root := newInvocation([]string{}, strings.NewReader(""), &out, &out, os.Getenv).root
	var paths []string
	var walk func(path []string)
	walk = func(path []string) {
		cmd, _, err := root.Find(path)
		if err != nil {
			t.Fatal(err)
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short description %q: want one without a full stop", cmd.CommandPath(), cmd.Short)
		}
		paths = append(paths, strings.Join(path, " "))
		for _, sub := range cmd.Commands() {
			walk(append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk(nil)
	for _, path := range paths {
		out.Reset()
		if code := execute(t.Context(), append(strings.Fields(path), "--help"), strings.NewReader(""), &out, &out, os.Getenv); code != exitOK {
			t.Errorf("%s --help: exit code %d", path, code)
		}
		if !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%s --help printed %q", path, out.String())
		}
	}
	if len(paths) < 30 {
		t.Errorf("%d commands: %q", len(paths), paths)
	}
}
