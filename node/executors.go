package node

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wheelworkhq/wheelwork/alert/command"
	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/internal/outbound"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/builtin"
	"github.com/wheelworkhq/wheelwork/runtime/plugin"
	"github.com/wheelworkhq/wheelwork/runtime/process"
	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
)

// Plugin is a program whose functions are handlers; see plugin.Spec.
type Plugin struct {
	Name, Path   string
	Args         []string
	Env          map[string]string
	Dir          string
	SHA256       []string
	Keys         []ed25519.PublicKey
	Signature    string
	Processes    int
	StartTimeout time.Duration
	Grace        time.Duration
	HealthEvery  time.Duration
	Rights
}

// Rights are what a host gives a plugin or a command; see process.Rights.
type Rights = process.Rights

// Sandbox says what a process does when the system lacks a wall; see sandbox.Mode.
type Sandbox = sandbox.Mode

// SandboxAuto uses the walls that the system has, SandboxRequire needs all.
const (
	SandboxAuto    = sandbox.Auto
	SandboxRequire = sandbox.Require
)

// ParseSandbox reads the text of a setting.
func ParseSandbox(text string) (Sandbox, error) { return sandbox.ParseMode(text) }

// Executors are what the operator lets a host execute besides modules. The zero value is
// nothing.
type Executors struct {
	Plugins  []Plugin
	Commands []builtin.Command
	// HTTP are servers that jobs may call: "api.example.com", "*.example.com", with
	// ":port"; "*" is every server on the Internet.
	HTTP []string
	// Private are likewise servers, and may be on this machine or in its network.
	Private []string
	// Sandbox says whether the walls of plugins and commands are required; default: auto.
	Sandbox Sandbox
	// Guard is the command line of a process that calls process.Guard; see there.
	Guard []string
}

// openExecutors opens the programs that a host executes besides modules. data is the data
// directory of the process, dir a folder of the host in it.
func openExecutors(cfg Executors, id, data string, dir func(...string) string, meter metric.Meter, log *slog.Logger) (_ map[string]runtime.Executor, open closers, err error) {
	defer func() {
		if err != nil {
			_ = open.Close() // err is the error that matters
		}
	}()
	others := map[string]runtime.Executor{}
	if len(cfg.Plugins)+len(cfg.Commands) == 0 {
		return others, open, nil
	}
	policy, err := policyOf(cfg.Sandbox, id, data, meter, log)
	if err != nil {
		return nil, open, err
	}
	keeper := process.NewKeeper(policy, cfg.Guard...)
	open.add(keeper)
	if len(cfg.Commands) > 0 {
		x, err := builtin.NewExec(cfg.Commands, keeper, dir("commands"))
		if err != nil {
			return nil, open, err
		}
		others["builtin:exec"] = x
		for _, name := range x.Names() {
			others["builtin:exec/"+name] = x
		}
	}
	if len(cfg.Plugins) > 0 {
		var specs []plugin.Spec
		for _, p := range cfg.Plugins {
			specs = append(specs, plugin.Spec(p))
		}
		x, err := plugin.Open(plugin.Config{Plugins: specs, Dir: dir("plugins"), Keeper: keeper, Version: version.String(), Logger: log})
		if err != nil {
			return nil, open, err
		}
		open.add(x)
		for _, p := range cfg.Plugins {
			others["plugin:"+p.Name] = x
		}
	}
	return others, open, nil
}

// maxProcesses bounds the processes and threads of one program, unless its entry says
// otherwise: enough for a large program, and too few to exhaust a machine.
const maxProcesses = 4096

// policyOf returns what a host does with its programs, and reports which walls hold.
func policyOf(mode Sandbox, id, data string, meter metric.Meter, log *slog.Logger) (process.Policy, error) {
	p := process.Policy{Mode: cmp.Or(mode, sandbox.Auto), Data: data, Temp: "wheelwork-" + id + "-", Memory: systemMemory() / 2, Processes: maxProcesses}
	walls, groups := sandbox.Walls{}, error(nil)
	if p.Mode != sandbox.Off {
		walls = sandbox.Probe()
		if err := walls.Missing(); err != nil {
			if p.Mode == SandboxRequire {
				return p, fmt.Errorf("--sandbox require: %w: enable it, or start with --sandbox auto", err)
			}
			log.Warn("plugins and commands run without a wall: --sandbox require refuses that", "reason", err)
		}
		if p.Groups, groups = process.OpenGroups(); groups != nil {
			log.Info("plugins and commands have no control groups: their memory is limited for each process, the number of processes is not", "reason", groups)
		}
	}
	has := map[string]int64{"landlock": int64(walls.Landlock), "seccomp": 0, "cgroup": 0}
	if walls.Seccomp {
		has["seccomp"] = 1
	}
	if p.Groups != nil {
		has["cgroup"] = 1
	}
	log.Info("walls of plugins and commands", "sandbox", p.Mode, "landlock", has["landlock"], "seccomp", walls.Seccomp, "cgroup", p.Groups != nil)
	gauge, err := meter.Int64Gauge("wheelwork.host.walls", metric.WithDescription("Walls around plugins and commands: 0 is none, a number above 1 the version."))
	if err != nil {
		return p, err
	}
	for wall, version := range has {
		gauge.Record(context.Background(), version, metric.WithAttributes(attribute.String("wall", wall)))
	}
	return p, nil
}

// GuardCommand returns the command line that starts this program as a guard of processes,
// provided that the program handles [GuardWord]; nil if its path is unknown.
func GuardCommand() []string {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{exe, GuardWord}
}

// GuardWord is the only argument of the program when it works as a guard of processes.
const GuardWord = "guard-processes"

// AlertsConfig says what messages of alerts may reach.
type AlertsConfig struct {
	// Commands are programs, each as NAME=PATH, which channels may name. They get the walls of [Executors], with the
	// network.
	Commands []string
	Sandbox  Sandbox  // whether these walls are required; default: auto
	Guard    []string // see Executors
	// Egress are networks beyond the public addresses, in which receivers may be.
	Egress []netip.Prefix
}

// openAlerts opens what messages of alerts reach the world with. id is that of the process, and
// data its data directory.
func openAlerts(cfg AlertsConfig, id, data string, meter metric.Meter, log *slog.Logger) (_ *definition.Edges, open closers, err error) {
	guard := outbound.Guard{Allow: cfg.Egress}
	edges := &definition.Edges{Client: guard.Client(), Dial: guard.Dial}
	open.add(closeFunc(func() error { edges.Client.CloseIdleConnections(); return nil }))
	if len(cfg.Commands) == 0 {
		return edges, open, nil
	}
	defer func() {
		if err != nil {
			_ = open.Close() // err is the error that matters
		}
	}()
	var programs []command.Program
	for _, text := range cfg.Commands {
		p, err := command.Parse(text)
		if err != nil {
			return nil, open, fmt.Errorf("--alert-command: %w", err)
		}
		p.Network = true
		programs = append(programs, p)
	}
	policy, err := policyOf(cfg.Sandbox, id, data, meter, log)
	if err != nil {
		return nil, open, err
	}
	keeper := process.NewKeeper(policy, cfg.Guard...)
	open.add(keeper)
	runner, err := command.New(programs, keeper)
	if err != nil {
		return nil, open, fmt.Errorf("--alert-command: %w", err)
	}
	edges.Commands = runner
	return edges, open, nil
}
