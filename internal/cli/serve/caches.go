package serve

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
)

// addCaches adds the flags that bound a host's disk space for modules and the memory of
// its handlers. The returned function reads them.
func addCaches(cmd *cobra.Command, modules, compiled, guests *int64) func(*cobra.Command) error {
	sizes := []struct {
		flag, text, usage string
		to                *int64
	}{
		{"module-cache", "1GiB", "most disk space for the modules of a host, as `SIZE`: the host deletes the least recently used ones, with their compiled code", modules},
		{"compile-cache", "2GiB", "most disk space for compiled modules, as `SIZE`: the host deletes the least recently used ones that are not loaded", compiled},
		{"guest-memory", "", "most memory of all handlers in WebAssembly together, as `SIZE` (default three quarters of the machine's)", guests},
	}
	for i := range sizes {
		s := &sizes[i]
		cmd.Flags().StringVar(&s.text, s.flag, s.text, s.usage)
	}
	return func(cmd *cobra.Command) error {
		for _, s := range sizes {
			if s.text == "" {
				continue // its default is not a number
			}
			var err error
			if *s.to, err = command.Size(s.text); err != nil {
				return command.Usage(cmd, "--%s %q: %s", s.flag, s.text, err)
			}
		}
		return nil
	}
}

// addDirs adds the flags that name directories for modules. The returned function reads
// them.
func addDirs(cmd *cobra.Command, dirs *map[string]string, apps *map[string][]string) func() {
	cmd.Flags().StringToStringVar(dirs, "dir", nil, "`NAME=PATH` of a directory that grants may name, in every app that the host serves; may be repeated")
	of := cmd.Flags().StringToString("dir-apps", nil, "`NAME=APP|APP`: the apps whose grants may name the directory of --dir (default all); may be repeated")
	return func() {
		*apps = map[string][]string{}
		for name, list := range *of {
			(*apps)[name] = strings.Split(list, "|")
		}
	}
}
