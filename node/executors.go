package node

import (
	"crypto/ed25519"
	"log/slog"
	"os"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/builtin"
	"github.com/wheelworkhq/wheelwork/runtime/plugin"
	"github.com/wheelworkhq/wheelwork/runtime/process"
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
}

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
	// Guard is the command line of a process that calls process.Guard; see there.
	Guard []string
}

// openExecutors opens the programs that a host executes besides modules.
func openExecutors(cfg Executors, dir func(...string) string, log *slog.Logger) (_ map[string]runtime.Executor, open closers, err error) {
	defer func() {
		if err != nil {
			_ = open.Close() // err is the error that matters
		}
	}()
	others := map[string]runtime.Executor{}
	if len(cfg.Plugins)+len(cfg.Commands) == 0 {
		return others, open, nil
	}
	keeper := process.New(cfg.Guard...)
	open.add(keeper)
	if len(cfg.Commands) > 0 {
		x, err := builtin.NewExec(cfg.Commands, keeper)
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
