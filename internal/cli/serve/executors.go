package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/builtin"
)

// addExecutors adds the flags that allow a host to run other handlers than modules. The
// returned function reads their files after the flags are parsed.
func addExecutors(cmd *cobra.Command, to *node.Executors) func(*cobra.Command) error {
	var plugins, commands string
	flags := cmd.Flags()
	flags.StringVar(&plugins, "plugins", "", "YAML `file` with the plugins that jobs may use (plugin:NAME/HANDLER)")
	flags.StringVar(&commands, "commands", "", "YAML `file` with the commands that jobs may run (builtin:exec)")
	flags.StringSliceVar(&to.HTTP, "http-allow", nil, "`HOST`s on the Internet that jobs may call (builtin:http): a name, *.NAME, NAME:PORT, or * for all")
	flags.StringSliceVar(&to.Private, "http-allow-private", nil, "`HOST`s that jobs may call also on this machine or in its network")
	mode := addSandbox(cmd)
	return func(cmd *cobra.Command) error {
		var err error
		if to.Sandbox, err = mode(cmd); err != nil {
			return err
		}
		for _, host := range slices.Concat(to.HTTP, to.Private) {
			if host == "" || strings.ContainsAny(host, "/ @?#") || strings.Contains(strings.TrimPrefix(host, "*."), "*") && host != "*" {
				return command.Usage(cmd, "--http-allow %q: want NAME, *.NAME or NAME:PORT, without a scheme or path", host)
			}
		}
		if slices.Contains(to.Private, "*") {
			return command.Usage(cmd, "--http-allow-private *: name the hosts, because * allows every service on this machine")
		}
		if plugins != "" {
			if to.Plugins, err = readPlugins(plugins); err != nil {
				return fmt.Errorf("--plugins: %w", err)
			}
		}
		if commands != "" {
			if to.Commands, err = readCommands(commands); err != nil {
				return fmt.Errorf("--commands: %w", err)
			}
		}
		to.Guard = node.GuardCommand()
		return nil
	}
}

// readPlugins reads the file of --plugins. Relative paths start at its folder.
func readPlugins(file string) ([]node.Plugin, error) {
	var doc struct {
		Plugins []struct {
			Name         string            `yaml:"name"`
			Path         string            `yaml:"path"`
			Args         []string          `yaml:"args"`
			Env          map[string]string `yaml:"env"`
			Dir          string            `yaml:"dir"`
			SHA256       []string          `yaml:"sha256"`
			Keys         []string          `yaml:"keys"`
			Signature    string            `yaml:"signature"`
			Processes    int               `yaml:"processes"`
			StartTimeout time.Duration     `yaml:"start_timeout"`
			Grace        time.Duration     `yaml:"grace"`
			HealthEvery  time.Duration     `yaml:"health_every"`
			Rights       rights            `yaml:",inline"`
		} `yaml:"plugins"`
	}
	if err := readOperatorFile(file, &doc); err != nil {
		return nil, err
	}
	below := from(file)
	var plugins []node.Plugin
	for _, d := range doc.Plugins {
		allowed, err := d.Rights.read(below)
		if err != nil {
			return nil, fmt.Errorf("%s: plugin %s: %w", file, d.Name, err)
		}
		p := node.Plugin{
			Name: d.Name, Path: below(d.Path), Args: d.Args, Env: d.Env, Dir: below(d.Dir), SHA256: d.SHA256, Signature: below(d.Signature),
			Processes: d.Processes, StartTimeout: d.StartTimeout, Grace: d.Grace, HealthEvery: d.HealthEvery,
			Rights: allowed,
		}
		for _, text := range d.Keys {
			key, err := publicKey(text)
			if err != nil {
				return nil, fmt.Errorf("%s: plugin %s: %w", file, d.Name, err)
			}
			p.Keys = append(p.Keys, key)
		}
		plugins = append(plugins, p)
	}
	if len(plugins) == 0 {
		return nil, fmt.Errorf("%s names no plugin: write a list under plugins", file)
	}
	return plugins, nil
}

// readCommands reads the file of --commands. Relative paths start at its folder.
func readCommands(file string) ([]builtin.Command, error) {
	var doc struct {
		Commands []struct {
			Name    string            `yaml:"name"`
			Path    string            `yaml:"path"`
			Args    []string          `yaml:"args"`
			JobArgs bool              `yaml:"job_args"`
			Env     map[string]string `yaml:"env"`
			JobEnv  []string          `yaml:"job_env"`
			Dir     string            `yaml:"dir"`
			Grace   time.Duration     `yaml:"grace"`
			SHA256  []string          `yaml:"sha256"`
			Rights  rights            `yaml:",inline"`
		} `yaml:"commands"`
	}
	if err := readOperatorFile(file, &doc); err != nil {
		return nil, err
	}
	below := from(file)
	var commands []builtin.Command
	for _, d := range doc.Commands {
		allowed, err := d.Rights.read(below)
		if err != nil {
			return nil, fmt.Errorf("%s: command %s: %w", file, d.Name, err)
		}
		commands = append(commands, builtin.Command{
			Name: d.Name, Path: below(d.Path), Args: d.Args, JobArgs: d.JobArgs, Env: d.Env, JobEnv: d.JobEnv, Dir: below(d.Dir), Grace: d.Grace,
			SHA256: d.SHA256, Rights: allowed,
		})
	}
	if len(commands) == 0 {
		return nil, fmt.Errorf("%s names no command: write a list under commands", file)
	}
	return commands, nil
}

// rights are the fields of an entry that say what its program may do.
type rights struct {
	Apps      []string `yaml:"apps"`
	User      string   `yaml:"user"`
	Read      []string `yaml:"read"`
	Write     []string `yaml:"write"`
	Network   bool     `yaml:"network"`
	Ports     []uint16 `yaml:"ports"`
	Memory    string   `yaml:"memory"`
	Processes int64    `yaml:"max_processes"`
}

// read converts them; below makes a path absolute.
func (r *rights) read(below func(string) string) (node.Rights, error) {
	to := node.Rights{Apps: r.Apps, User: r.User, Network: r.Network, Ports: r.Ports, Processes: r.Processes}
	for _, path := range r.Read {
		to.Read = append(to.Read, below(path))
	}
	for _, path := range r.Write {
		to.Write = append(to.Write, below(path))
	}
	if r.Memory != "" {
		var err error
		if to.Memory, err = command.Size(r.Memory); err != nil {
			return to, fmt.Errorf("memory %q: %w", r.Memory, err)
		}
	}
	return to, nil
}

// addSandbox adds the flag that requires the walls of the system. The returned function
// reads it.
func addSandbox(cmd *cobra.Command) func(*cobra.Command) (node.Sandbox, error) {
	text := cmd.Flags().String("sandbox", string(node.SandboxAuto), "walls around programs of this process: auto (those that the system has), require (refuse to start without them), off")
	command.Complete(cmd, "sandbox", "auto", "require", "off")
	return func(cmd *cobra.Command) (node.Sandbox, error) {
		mode, err := node.ParseSandbox(*text)
		if err != nil {
			return "", command.Usage(cmd, "--sandbox %s", err)
		}
		return mode, nil
	}
}

// from returns a function that makes the paths of a file absolute; "" stays.
func from(file string) func(string) string {
	return func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		abs, err := filepath.Abs(filepath.Join(filepath.Dir(file), path))
		if err != nil {
			return path // refused later, because it is not absolute
		}
		return abs
	}
}

// readOperatorFile reads a file that decides which programs the host runs, and with which
// rights. It refuses a file that every user may write.
func readOperatorFile(file string, into any) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o002 != 0 && os.PathSeparator == '/' {
		return fmt.Errorf("every user of this machine may write %s, which names the programs that the host runs: chmod o-w it", file)
	}
	d := yaml.NewDecoder(io.LimitReader(f, 1<<20))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", file, command.YAMLError(err, into))
	}
	return nil
}
