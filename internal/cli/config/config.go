package config

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
)

const (
	prefix = "WHEELWORK_"
	// maxFile bounds the bytes of a configuration file.
	maxFile = 1 << 20
)

// Help describes the sources of settings in the help of a command.
const Help = `Each flag may also be a variable or a key of a file: --metrics-listen is
WHEELWORK_METRICS_LISTEN, and metrics-listen in the YAML file of --config. A flag has
precedence over its variable, and a variable over the file. --print-config shows the result.`

// global are the flags of the root command that a process uses.
var global = []string{"ca-cert", "color", "output"}

// others are the variables with our prefix that are no settings of a process.
var others = []string{"URL", "TOKEN", "CONTEXT", "APP", "CA_CERT", "INTERPRETERS", "COMPILED", "VERIFIER_LIMITS"}

// ofServices matches the variables that Kubernetes sets for a service with our name.
var ofServices = regexp.MustCompile(`(_SERVICE_(HOST|PORT)|_PORT)(_|$)`)

// Origin says where the value of a setting comes from.
type Origin string

// The origins without a name of their own; the others are "environment NAME" and "file PATH".
const (
	Default Origin = "default"
	Flag    Origin = "flag"
)

// Setting is one setting of a process as it is in effect.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin Origin `json:"origin"`
}

// Source is where the settings of one command come from besides its flags.
type Source struct {
	file    string
	print   bool
	origins map[string]Origin // of the flags that a variable or the file has set
}

// Add adds --config and --print-config to a command.
func Add(cmd *cobra.Command) *Source {
	s := &Source{origins: map[string]Origin{}}
	cmd.Flags().StringVar(&s.file, "config", "", "YAML `file` with settings, whose keys are the names of flags, or WHEELWORK_CONFIG")
	cmd.Flags().BoolVar(&s.print, "print-config", false, "print each setting with its value and origin, and end")
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	cmd.Long += "\n\n" + Help
	return s
}

// Print reports whether the command is only to show its settings.
func (s *Source) Print() bool { return s.print }

// Environment is the environment of the process.
type Environment struct {
	Get   func(name string) string // "" if there is none; an empty variable counts as none
	Names []string                 // of all variables
	Args  []string                 // the command line, without the program
}

// Apply sets the flags that the command line leaves out. all are the commands whose variables
// are known, and warn receives a sentence about variables that are not.
func (s *Source) Apply(cmd *cobra.Command, env Environment, all []*cobra.Command, warn func(format string, args ...any)) error {
	variables, err := s.readEnvironment(cmd, env, all, warn)
	if err != nil {
		return err
	}
	if path, ok := variables["config"]; ok && !cmd.Flags().Changed("config") {
		s.file = path
	}
	values := map[string]any{}
	if s.file != "" {
		if values, err = s.readFile(cmd); err != nil {
			return fmt.Errorf("--config %s: %w", s.file, err)
		}
	}
	for _, f := range settings(cmd) {
		origin := Origin("environment " + variableOf(f.Name))
		value, ok := any(nil), false
		if text, set := variables[f.Name]; set {
			value, ok = text, true
		} else if value, ok = values[f.Name]; ok {
			origin = Origin("file " + s.file)
		}
		if !ok || f.Changed {
			continue
		}
		if err := set(f, value); err != nil {
			return command.Usage(cmd, "%s (%s): %v", f.Name, origin, err)
		}
		f.Changed = true
		s.origins[f.Name] = origin
	}
	return nil
}

// Settings returns all settings of a command in the order of their names.
func (s *Source) Settings(cmd *cobra.Command) []Setting {
	var all []Setting
	for _, f := range settings(cmd) {
		origin := Default
		if f.Changed {
			origin = Flag
		}
		if from, ok := s.origins[f.Name]; ok {
			origin = from
		}
		all = append(all, Setting{f.Name, text(f), origin})
	}
	return all
}

// settings returns the flags that may come from a variable or a file.
func settings(cmd *cobra.Command) []*pflag.Flag {
	var all []*pflag.Flag
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "config" && f.Name != "print-config" {
			all = append(all, f)
		}
	})
	for _, name := range global {
		if f := cmd.InheritedFlags().Lookup(name); f != nil {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *pflag.Flag) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// isSecret reports whether a flag names a file with a secret, so that the secret itself must
// be in no variable and not in the configuration.
func isSecret(flag string) bool {
	return slices.Contains([]string{"token-file", "server-token-file", "secret-key-file"}, flag)
}

func variableOf(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readEnvironment returns the values of the variables that are settings of cmd, by flag.
func (s *Source) readEnvironment(cmd *cobra.Command, env Environment, all []*cobra.Command, warn func(string, ...any)) (map[string]string, error) {
	own, known := map[string]string{variableOf("config"): "config"}, map[string]bool{}
	for _, f := range settings(cmd) {
		own[variableOf(f.Name)] = f.Name
	}
	for _, c := range all {
		for _, f := range settings(c) {
			known[variableOf(f.Name)] = true
		}
	}
	for _, name := range others {
		known[prefix+name] = true
	}
	values := map[string]string{}
	var unknown []string
	for name, flag := range own {
		value := env.Get(name)
		if strings.Contains(value, "\n") || strings.Contains(value, "-----BEGIN") {
			return nil, command.Usage(cmd, "%s holds several lines, as a key does: write them to a file, and set the variable to its path", name)
		}
		if value != "" {
			values[flag] = value
		}
		if plain := strings.TrimSuffix(name, "_FILE"); isSecret(flag) && !known[plain] && env.Get(plain) != "" {
			return nil, command.Usage(cmd, "%s holds a secret, which child processes and crash reports would show: write it to a file, and set %s to its path", plain, name)
		}
	}
	for _, name := range env.Names {
		if strings.HasPrefix(name, prefix) && own[name] == "" && !known[name] && env.Get(name) != "" && !ofServices.MatchString(name) {
			unknown = append(unknown, name+suggestion(name, slices.Collect(maps.Keys(own))))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		warn("unknown variables are ignored: %s", strings.Join(unknown, "; "))
	}
	return values, nil
}

// readFile returns the values of the configuration file by flag.
func (s *Source) readFile(cmd *cobra.Command) (map[string]any, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	values := map[string]any{}
	if err := yaml.NewDecoder(bytes.NewReader(body)).Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, command.YAMLError(err, values)
	}
	var names []string
	for _, f := range settings(cmd) {
		names = append(names, f.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch {
		case slices.Contains(names, key):
		case isSecret(key+"-file") && slices.Contains(names, key+"-file"):
			return nil, command.Usage(cmd, "%s: a secret does not belong into this file: write it to a file of its own, and set %s-file to its path", key, key)
		default:
			return nil, command.Usage(cmd, "there is no setting %q of wheelwork %s%s", key, cmd.Name(), suggestion(key, names))
		}
	}
	return values, nil
}

// set gives a flag a value of a variable (a text, as on the command line) or of the file.
func set(f *pflag.Flag, value any) error {
	switch value := value.(type) {
	case nil:
		return errors.New("it has no value: give it one, or leave it out")
	case []any:
		list, ok := f.Value.(pflag.SliceValue)
		if !ok {
			return errors.New("want one value, not a list")
		}
		var texts []string
		for _, v := range value {
			switch v.(type) {
			case nil, []any, map[string]any:
				return errors.New("want a list of texts")
			}
			texts = append(texts, fmt.Sprint(v))
		}
		return list.Replace(texts)
	case map[string]any:
		if f.Value.Type() != "stringToString" {
			return errors.New("want one value, not a map")
		}
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(value)) {
			switch value[k].(type) {
			case nil, []any, map[string]any:
				return errors.New("want a map of texts")
			}
			pairs = append(pairs, fmt.Sprintf("%s=%v", k, value[k]))
		}
		var line strings.Builder
		w := csv.NewWriter(&line)
		if err := w.Write(pairs); err != nil {
			return err
		}
		w.Flush()
		return f.Value.Set(strings.TrimSpace(line.String()))
	default:
		return f.Value.Set(fmt.Sprint(value))
	}
}

// text returns the value of a flag as a variable or the command line would have it.
func text(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "stringSlice", "stringToString":
		return strings.TrimSuffix(strings.TrimPrefix(f.Value.String(), "["), "]")
	}
	return f.Value.String()
}
