package serve

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/config"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/node"
)

func TestCompare(t *testing.T) {
	one, two := setting{value: "f", content: [32]byte{1}}, setting{value: "f", content: [32]byte{2}}
	text := func(s string) setting { return setting{value: s} }
	for name, c := range map[string]struct {
		now, next     snapshot
		took, waiting []string
	}{
		"nothing":               {snapshot{"listen": text("a"), "token-file": one}, snapshot{"listen": text("a"), "token-file": one}, nil, nil},
		"values":                {snapshot{"log-level": text("info"), "max-body": text("4MiB")}, snapshot{"log-level": text("warn"), "max-body": text("1MiB")}, []string{"log-level", "max-body"}, nil},
		"what is in a file":     {snapshot{"token-file": one, "tls-key": one}, snapshot{"token-file": two, "tls-key": two}, []string{"tls-key", "token-file"}, nil},
		"a setting at restart":  {snapshot{"listen": text("a")}, snapshot{"listen": text("b")}, nil, []string{`setting listen changed from "a" to "b"; restart to apply it`}},
		"a file at restart":     {snapshot{"plugins": one}, snapshot{"plugins": two}, nil, []string{"the file of setting plugins changed, f; restart to apply it"}},
		"another file":          {snapshot{"tls-cert": one}, snapshot{"tls-cert": text("g")}, []string{"tls-cert"}, nil},
		"TLS that appears":      {snapshot{"tls-cert": text("")}, snapshot{"tls-cert": one}, nil, []string{`setting tls-cert changed from "" to "f"; restart to apply it`}},
		"TLS that disappears":   {snapshot{"ca-cert": one}, snapshot{"ca-cert": text("")}, nil, []string{`setting ca-cert changed from "f" to ""; restart to apply it`}},
		"tokens that appear":    {snapshot{"token-file": text("")}, snapshot{"token-file": one}, []string{"token-file"}, nil},
		"a file of the process": {snapshot{"d/token": one}, snapshot{"d/token": two}, []string{"d/token"}, nil},
	} {
		if took, waiting := compare(c.now, c.next); !slices.Equal(took, c.took) || !slices.Equal(waiting, c.waiting) {
			t.Errorf("%s: %q and %q, want %q and %q", name, took, waiting, c.took, c.waiting)
		}
	}
}

// processesOf returns the commands that run processes, and a function that executes one of them up
// to its start.
func processesOf(t *testing.T, args ...string) (*commands, []*cobra.Command) {
	t.Helper()
	root := &cobra.Command{Use: "wheelwork"}
	none := func(string) string { return "" }
	c := &commands{Printer: output.New(root, none), Server: connect.New(root, none), env: config.Environment{Get: none, Args: args}}
	all := c.processes()
	root.AddCommand(all...)
	return c, all
}

// TestEffects checks that effects has every setting and no other, and that docs/install.md says of
// each setting when a change takes effect.
func TestEffects(t *testing.T) {
	known := map[string]bool{}
	_, all := processesOf(t)
	for _, cmd := range all {
		s := config.Add(&cobra.Command{Use: "none"})
		for _, x := range s.Settings(cmd) {
			if x.Key == "config" || x.Key == "print-config" {
				continue
			}
			known[x.Key] = true
			if _, ok := effects[x.Key]; !ok {
				t.Errorf("%s has the setting %s, and effects does not say whether a reload applies it", cmd.Name(), x.Key)
			}
		}
	}
	text, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Reload\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\| (a reload|a restart)").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if _, twice := documented[name[1]]; twice {
				t.Errorf("docs/install.md has %s twice", name[1])
			}
			documented[name[1]] = row[2] == "a reload"
		}
	}
	for name, e := range effects {
		if !known[name] {
			t.Errorf("effects has %s, which no process has", name)
		}
		if at, ok := documented[name]; !ok || at != e.reload {
			t.Errorf("docs/install.md does not say that %s takes effect at a reload (%t)", name, e.reload)
		}
	}
	for name := range documented {
		if _, ok := effects[name]; !ok {
			t.Errorf("docs/install.md has %s, which is no setting", name)
		}
	}
}

// TestAgain changes the configuration file of a command line, and resolves the command line again.
// Flags keep their precedence, and no process starts.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "server.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("max-body: 1MiB\nlog-level: warn\nzone: a\n")
	c, _ := processesOf(t, "server", "--config", file, "--log-level", "error", "--data", filepath.Join(dir, "never"))
	first, err := c.again()
	if err != nil {
		t.Fatal(err)
	}
	write("max-body: 2MiB\nlog-level: debug\nzone: b\n")
	next, err := c.again()
	if err != nil {
		t.Fatal(err)
	}
	conf, ok := next.conf.(node.ServerConfig)
	if !ok || conf.Limits.Body != 2<<20 || conf.Zone != "b" || next.level != slog.LevelError {
		t.Errorf("the command line says %T %+v at level %v", next.conf, conf.Limits, next.level)
	}
	took, waiting := compare(first.settings, next.settings)
	if !slices.Equal(took, []string{"max-body"}) || !slices.Equal(waiting, []string{`setting zone changed from "a" to "b"; restart to apply it`}) {
		t.Errorf("took %q, waiting %q", took, waiting)
	}
	for text, want := range map[string]string{"max-body: many\n": "--max-body", "zone: [a]\n": "zone", "zones: a\n": `no setting "zones"`, "\t": "--config"} {
		write(text)
		if _, err := c.again(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v, want %q", text, err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the command made files: %v, %v", entries, err)
	}
}

// TestReloader checks what a reload logs, and that a failed one changes nothing.
func TestReloader(t *testing.T) {
	var said bytes.Buffer
	level := &slog.LevelVar{}
	without := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := process.Log{Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: level, ReplaceAttr: without})), Level: level}
	var next resolved
	var refusal error
	applied := 0
	r := &reloader{
		log: log, resolve: func() (resolved, error) { return next, nil }, settings: snapshot{"zone": {value: "a"}, "max-body": {value: "1MiB"}},
		apply: func(context.Context, any) error {
			if refusal == nil {
				applied++
			}
			return refusal
		},
	}
	reload := func(level slog.Level, zone, body, want string) {
		t.Helper()
		said.Reset()
		next = resolved{level: level, settings: snapshot{"zone": {value: zone}, "max-body": {value: body}}}
		r.reload(t.Context())
		if said.String() != want {
			t.Errorf("the reload says\n%swant\n%s", said.String(), want)
		}
	}
	const restart = `level=WARN msg="setting zone changed from \"a\" to \"b\"; restart to apply it"` + "\n"
	reload(slog.LevelInfo, "a", "1MiB", `level=INFO msg="reload: nothing changed"`+"\n")
	reload(slog.LevelInfo, "b", "2MiB", `level=INFO msg="reload: settings changed" settings=max-body`+"\n"+restart)
	reload(slog.LevelInfo, "b", "2MiB", restart) // until the restart
	refusal = errors.Join(errors.New("read --token-file: no such file"), errors.New("read --ca-cert: no such file"))
	reload(slog.LevelDebug, "a", "3MiB", `level=ERROR msg="the reload failed and changed nothing: correct what the error names, and reload again" error="read --token-file: no such file; read --ca-cert: no such file"`+"\n")
	if applied != 3 || level.Level() != slog.LevelInfo {
		t.Errorf("%d reloads took effect, and the level is %v", applied, level.Level())
	}
	refusal = nil
	reload(slog.LevelWarn, "a", "3MiB", `level=INFO msg="reload: settings changed" settings=max-body`+"\n")
	reload(slog.LevelWarn, "a", "3MiB", "")
}
