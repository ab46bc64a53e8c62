package module

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/outbound"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
)

// localServices holds the services for a handler that runs locally.
type localServices struct {
	local.Services

	grant                    string
	kv, secrets, directories []string
	dirs                     map[string]string
	mounts                   []runtime.FileGrant               // of --dir with a path of the handler
	before                   map[string]map[string]local.Entry // initial values of --kv, by bucket
	http                     *outbound.Client
	app                      string
}

func (s *localServices) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.grant, "grant", "", "what the module may use: `asked` for all that its manifest requests, JSON as in a manifest's capabilities, or @FILE")
	cmd.Flags().StringArrayVar(&s.kv, "kv", nil, "`BUCKET/KEY=VALUE` that exists before the run; may be repeated")
	cmd.Flags().StringArrayVar(&s.secrets, "secret", nil, "`NAME=VALUE` of a secret; @FILE as a value reads it from a file; may be repeated")
	cmd.Flags().StringArrayVar(&s.directories, "dir", nil, "`NAME=PATH` of a directory that the module's grants may name; a NAME with a slash or a dot, such as /data, ./in or /, gives the handler the directory there, :ro behind the path to read only; may be repeated")
}

// fill reads the flags.
func (s *localServices) fill(cmd *cobra.Command, app string) error {
	s.app = app
	s.before = map[string]map[string]local.Entry{}
	ctx, task := cmd.Context(), &runtime.Task{App: app}
	for _, pair := range s.kv {
		name, value, ok := strings.Cut(pair, "=")
		bucket, key, both := strings.Cut(name, "/")
		if !ok || !both || bucket == "" || key == "" {
			return command.Usage(cmd, "--kv %q: want BUCKET/KEY=VALUE", pair)
		}
		if _, err := s.Put(ctx, task, bucket, key, []byte(value), runtime.AnyVersion); err != nil {
			return fmt.Errorf("--kv %s: %w", name, err)
		}
		s.before[bucket] = s.Entries(app, bucket)
	}
	for _, pair := range s.secrets {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return command.Usage(cmd, "--secret: want NAME=VALUE") // does not repeat the argument, which contains a secret
		}
		text, err := command.Input(cmd, value)
		if err != nil {
			return err
		}
		s.SetSecret(app, name, text)
	}
	s.dirs = map[string]string{}
	for _, pair := range s.directories {
		name, path, ok := strings.Cut(pair, "=")
		if !ok || name == "" || path == "" {
			return command.Usage(cmd, "--dir %q: want NAME=PATH", pair)
		}
		if strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
			if err := s.mount(name, path); err != nil {
				return command.Usage(cmd, "--dir %q: %s", pair, err)
			}
			continue
		}
		s.dirs[name] = path
	}
	if s.grant != "" && s.grant != "asked" {
		text, err := command.Input(cmd, s.grant)
		if err != nil {
			return err
		}
		s.grant = string(text)
	}
	s.http = outbound.New(outbound.Config{})
	s.Sender = func(ctx context.Context, t *runtime.Task, r runtime.Request) (*runtime.Response, error) {
		secret := func(ctx context.Context, name string) ([]byte, error) { return s.Secret(ctx, t, name) }
		return s.http.Send(ctx, t.Grants, secret, r)
	}
	return nil
}

// mount gives the handler a directory of this machine at a path of its own.
func (s *localServices) mount(at, dir string) error {
	if at != "." {
		at = strings.TrimPrefix(at, "./")
	}
	if err := manifest.CheckMount(at); err != nil {
		return err
	}
	dir, readOnly := strings.CutSuffix(dir, ":ro")
	name := fmt.Sprintf("mount %d", len(s.mounts)+1) // no other name of a directory has a space
	s.dirs[name] = dir
	s.mounts = append(s.mounts, runtime.FileGrant{Mount: at, Dir: name, Write: !readOnly, Bytes: mountBytes})
	return nil
}

// mountBytes is the quota of a directory that the user of the command names: as much as a
// grant can have.
const mountBytes = 1 << 40

func (s *localServices) close() {
	_ = s.http.Close() // closes idle connections; the error is always nil
}

// grants returns the grants of the flags; asked are those that the module requests.
func (s *localServices) grants(asked runtime.Grants) (*runtime.Grants, error) {
	var g runtime.Grants
	switch s.grant {
	case "":
		if len(s.mounts) == 0 {
			return nil, nil
		}
	case "asked":
		g = asked
	default:
		var err error
		if g, err = manifest.Grants([]byte(s.grant)); err != nil {
			return nil, fmt.Errorf("--grant: %w", err)
		}
	}
	for _, m := range s.mounts { // a directory of --dir replaces the one that is granted there
		g.Files = slices.DeleteFunc(slices.Clone(g.Files), func(f runtime.FileGrant) bool { return f.Mount == m.Mount })
		g.Files = append(g.Files, m)
	}
	if err := manifest.Check(g); err != nil {
		return nil, fmt.Errorf("--grant and --dir: %w", err)
	}
	return &g, nil
}

// effects holds the changes that a handler made to services.
type effects struct {
	Checkpoint string            `json:"checkpoint,omitempty"`
	KV         map[string]string `json:"kv,omitempty"` // changed values, by BUCKET/KEY
	Deleted    []string          `json:"deleted,omitempty"`
	Enqueued   []enqueued        `json:"enqueued,omitempty"`
	Parts      []string          `json:"parts,omitempty"`
}

type enqueued struct {
	App     string  `json:"app"`
	Job     string  `json:"job"`
	Input   *string `json:"input,omitempty"` // nil: the job's own
	Key     string  `json:"key,omitempty"`
	DelayMs int64   `json:"delay_ms,omitempty"`
}

// effects compares the services with their initial state.
func (s *localServices) effects(task runtime.Task) effects {
	var e effects
	if data, err := s.Checkpoint(context.Background(), &task); err == nil {
		e.Checkpoint = string(data)
	}
	e.KV = map[string]string{}
	for _, bucket := range s.Buckets(s.app) {
		for key, entry := range s.Entries(s.app, bucket) {
			if s.before[bucket][key].Version != entry.Version {
				e.KV[bucket+"/"+key] = string(entry.Value)
			}
		}
	}
	for bucket, entries := range s.before {
		now := s.Entries(s.app, bucket)
		for key := range entries {
			if _, there := now[key]; !there {
				e.Deleted = append(e.Deleted, bucket+"/"+key)
			}
		}
	}
	slices.Sort(e.Deleted)
	for _, submit := range s.Submits() {
		out := enqueued{App: submit.App, Job: submit.Job, Key: submit.Key, DelayMs: submit.DelayMs}
		if submit.Input != nil {
			text := string(submit.Input)
			out.Input = &text
		}
		e.Enqueued = append(e.Enqueued, out)
	}
	for _, part := range s.Parts(task.App, task.RunID) {
		e.Parts = append(e.Parts, string(part))
	}
	return e
}

// lines describes the effects for people.
func (e effects) lines() []string {
	var out []string
	tell := func(format string, args ...any) { out = append(out, output.Printable(fmt.Sprintf(format, args...))) }
	if e.Checkpoint != "" {
		tell("checkpoint: %s", shorten(e.Checkpoint))
	}
	for _, name := range slices.Sorted(maps.Keys(e.KV)) {
		tell("set %s: %s", name, shorten(e.KV[name]))
	}
	for _, name := range e.Deleted {
		tell("deleted %s", name)
	}
	for _, q := range e.Enqueued {
		text, err := json.Marshal(q)
		if err != nil {
			panic(fmt.Sprintf("strings and numbers do not encode: %v", err))
		}
		tell("enqueued %s", text)
	}
	if n := len(e.Parts); n > 0 {
		tell("mapped %d parts, the first: %s", n, shorten(e.Parts[0]))
	}
	return out
}

// shorten returns the beginning of a text for one line.
func shorten(s string) string {
	const most = 200
	if len(s) > most {
		return fmt.Sprintf("%.*q… (%d bytes)", most, s, len(s))
	}
	return fmt.Sprintf("%q", s)
}
