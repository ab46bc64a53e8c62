package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
	sdk "github.com/wheelworkhq/wheelwork/sdk/plugin"
)

func init() {
	handlers["reach"] = func(_ context.Context, t *sdk.Task) ([]byte, error) {
		var err error
		switch what, target := t.Args[0], t.Args[1]; what {
		case "read":
			_, err = os.ReadFile(target)
		case "dial":
			var c net.Conn
			if c, err = net.Dial("tcp", target); err == nil {
				c.Close()
			}
		case "temp":
			var f *os.File
			if f, err = os.CreateTemp("", "x"); err == nil {
				f.Close()
			}
		case "user":
			return fmt.Append(nil, os.Getuid()), nil
		}
		if errors.Is(err, fs.ErrPermission) {
			return []byte("refused"), nil
		}
		return []byte("reached"), err
	}
}

// enclosed opens an executor with one plugin in walls.
func enclosed(t *testing.T, mode sandbox.Mode, change ...func(*Spec)) (*Executor, string) {
	t.Helper()
	s, err := self("sdk")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&s)
	}
	data := t.TempDir()
	k := process.NewKeeper(process.Policy{Mode: mode, Data: data, Temp: "wheelwork-test-plugin-"})
	e, err := Open(Config{Plugins: []Spec{s}, Dir: filepath.Join(data, "plugins"), Keeper: k})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), k.Close()); err != nil {
			t.Error(err)
		}
	})
	return e, data
}

func reach(t *testing.T, e *Executor, args ...string) string {
	t.Helper()
	r := e.Run(t.Context(), runtime.Task{Module: "self", Handler: "reach", App: "shop", Args: args}, &heard{})
	if r.Outcome != runtime.Succeeded {
		t.Fatalf("%v: %+v", args, r)
	}
	return string(r.Output)
}

// TestWalls starts a plugin in walls: it serves its tasks, and reaches nothing else.
func TestWalls(t *testing.T) {
	if err := sandbox.Probe().Missing(); err != nil {
		testkit.Lacks(t, "%v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for mode, want := range map[sandbox.Mode]string{sandbox.Off: "reached", sandbox.Require: "refused"} {
		e, data := enclosed(t, mode)
		token := filepath.Join(data, "token")
		if err := os.WriteFile(token, []byte("hush"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := reach(t, e, "read", token); got != want {
			t.Errorf("%s: a token was %s", mode, got)
		}
		if got := reach(t, e, "dial", ln.Addr().String()); got != want {
			t.Errorf("%s: a port was %s", mode, got)
		}
		if got := reach(t, e, "temp", ""); got != "reached" {
			t.Errorf("%s: its private folder was %s", mode, got)
		}
	}
	e, _ := enclosed(t, sandbox.Require, func(s *Spec) { s.Network = true })
	if got := reach(t, e, "dial", ln.Addr().String()); got != "reached" {
		t.Errorf("with the network: %s", got)
	}
}

func TestPluginUser(t *testing.T) {
	if os.Getuid() != 0 {
		testkit.Lacks(t, "needs root to run a plugin as another user")
	}
	e, _ := enclosed(t, sandbox.Auto, func(s *Spec) { s.User, s.Dir = "65534:65534", "" })
	if got := reach(t, e, "user", ""); got != "65534" {
		t.Errorf("it runs as %s", got)
	}
}

func TestPluginApps(t *testing.T) {
	e, _ := enclosed(t, sandbox.Off, func(s *Spec) { s.Apps = []string{"shop"} })
	if got := reach(t, e, "temp", ""); got != "reached" {
		t.Errorf("the app of the plugin: %s", got)
	}
	r := e.Run(t.Context(), runtime.Task{Module: "self", Handler: "reach", App: "pay"}, &heard{})
	if r.Outcome != runtime.HostError || r.Code != codeNotAllowed || !strings.Contains(r.Error, "does not offer plugin self to app pay") {
		t.Errorf("another app: %+v", r)
	}
	if got := e.Apps("self"); len(got) != 1 || e.Apps("none") != nil {
		t.Errorf("apps: %v", got)
	}
}
