package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/contexts"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// Sources of a setting, from the strongest to the weakest.
const (
	FromFlag        = "flag"
	FromEnvironment = "environment"
	FromContext     = "context"
	FromSession     = "session"
	FromDefault     = "default"
)

// Hidden is printed in the place of a token.
const Hidden = "(hidden)"

// Level is one source of a setting. The first one with a value decides.
type Level struct {
	Source string `json:"source"`
	Name   string `json:"name"`  // of the flag, the variable or the context
	Value  string `json:"value"` // of a token: [Hidden]
	Used   bool   `json:"used"`
}

// origin names the source of a setting for an error.
func (l Level) origin(key string) string {
	if l.Source == FromContext {
		return "the " + key + " of context " + l.Name
	}
	return l.Name
}

// Keys returns the settings that a context may decide, and "context" itself.
func Keys() []string { return []string{"app", "ca-cert", "context", "token", "url"} }

// Levels returns the sources that a setting may come from, the strongest first; none for a key
// that is no setting.
func (s *Server) Levels(key string) []Level {
	var levels []Level
	context := func(value string) Level { return Level{FromContext, s.chosen.name, value, false} }
	c := s.chosen.context
	if (key == "token" || key == "ca-cert") && s.used("url").Value != c.URL {
		c.TokenFile, c.CACert = "", "" // another server must not learn the token of this one
	}
	switch key {
	case "url":
		levels = []Level{s.flag("url"), s.variable("WHEELWORK_URL"), context(c.URL), {FromDefault, "", defaultURL, false}}
	case "app":
		levels = []Level{s.flag("app"), s.variable("WHEELWORK_APP"), context(c.App), {FromDefault, "", defaultApp, false}}
	case "ca-cert":
		levels = []Level{s.flag("ca-cert"), s.variable("WHEELWORK_CA_CERT"), context(c.CACert), {FromDefault, "", "", false}}
	case "token":
		levels = []Level{
			hide(s.flag("token")), s.flag("token-file"),
			hide(s.variable("WHEELWORK_TOKEN")), s.variable("WHEELWORK_TOKEN_FILE"),
			context(c.TokenFile),
			s.session(),
			{FromDefault, "", "", false},
		}
	case "context":
		current := Level{FromContext, "current-context", "", false}
		if s.chosen.file != nil {
			current.Value = s.chosen.file.Current
		}
		levels = []Level{s.flag("context"), s.variable("WHEELWORK_CONTEXT"), current, {FromDefault, "", "", false}}
		if f := s.root.PersistentFlags().Lookup("context"); f.Changed && f.Value.String() == "" {
			levels[0].Used = true // an empty name chooses no context
			return levels
		}
	default:
		return nil
	}
	if s.only {
		levels = slices.DeleteFunc(levels, func(l Level) bool { return l.Source == FromFlag || l.Source == FromEnvironment })
	}
	i := slices.IndexFunc(levels, func(l Level) bool { return l.Value != "" || l.Source == FromDefault })
	levels[i].Used = true
	return levels
}

// used returns the level that decides a setting.
func (s *Server) used(key string) Level {
	levels := s.Levels(key)
	return levels[slices.IndexFunc(levels, func(l Level) bool { return l.Used })]
}

// flag returns the level of a flag, which has no value unless the command line gives one.
func (s *Server) flag(name string) Level {
	l := Level{Source: FromFlag, Name: "--" + name}
	l.Value, _ = s.typed(name)
	return l
}

// typed returns the value that the command line gives a flag, and whether it does. The fields
// that flags write to have the settings in effect after resolve.
func (s *Server) typed(name string) (string, bool) {
	if text, ok := s.given[name]; ok {
		return text, true
	}
	if f := s.root.PersistentFlags().Lookup(name); f.Changed {
		return f.Value.String(), true
	}
	return "", false
}

func (s *Server) variable(name string) Level {
	return Level{Source: FromEnvironment, Name: name, Value: s.getenv(name)}
}

// session returns the level of the session that `wheelwork login` has started at the server.
func (s *Server) session() Level {
	l := Level{Source: FromSession, Name: "wheelwork login"}
	if !s.local {
		if path, ok := contexts.HasSession(s.getenv, s.used("url").Value); ok {
			l.Value = path
		}
	}
	return l
}

// SessionFile returns the path of the file with the token of the session at the server.
func (s *Server) SessionFile() (string, error) { return contexts.SessionFile(s.getenv, s.URL) }

// Anonymous connects to the server without a token.
func (s *Server) Anonymous(ctx context.Context) (*sdk.Client, error) { return s.dial(ctx, "") }

func hide(l Level) Level {
	if l.Value != "" {
		l.Value = Hidden
	}
	return l
}

// resolve reads the file with the contexts, and sets the fields that the command line leaves
// out. An error waits until a command calls a server, so that commands without a
// server, and those that repair the file, still work.
func (s *Server) resolve() {
	s.chosen = selection{wanted: s.wanted}
	if !s.local {
		s.chosen.fault = s.selectContext()
	}
	for key, field := range map[string]*string{"url": &s.URL, "app": &s.App, "ca-cert": &s.CACert} {
		if text, ok := s.typed(key); ok {
			s.given[key] = text
		}
		*field = s.used(key).Value
	}
}

// selectContext reads the file, and selects the context of the command.
func (s *Server) selectContext() error {
	file, err := s.Contexts()
	s.chosen.file = file
	name := s.used("context")
	switch {
	case errors.Is(err, contexts.ErrNowhere) && name.Value == "":
		return nil // a machine without a home directory has no contexts
	case err != nil:
		return err
	case name.Value == "":
		return nil
	}
	if s.chosen.context, err = file.Get(name.Value); err != nil {
		return fmt.Errorf("%s: %w", name.Name, err)
	}
	s.chosen.name = name.Value
	return nil
}

// Contexts returns the file with the contexts.
func (s *Server) Contexts() (*contexts.File, error) {
	path, err := contexts.Path(s.getenv)
	if err != nil {
		return nil, err
	}
	return contexts.Load(path)
}

// Ready returns the error, if any, for which the context of the command cannot be used.
func (s *Server) Ready() error { return s.chosen.fault }

// ContextName returns the name of the context in effect, "" if there is none. The context may
// be missing.
func (s *Server) ContextName() string { return s.used("context").Value }

// IgnoreContexts is for a process: its settings come from its own flags, variables and file.
func (s *Server) IgnoreContexts() { s.local = true }

// PlainToken returns the token of --token or WHEELWORK_TOKEN, "" if there is none.
func (s *Server) PlainToken() string { return cmp.Or(s.token, s.getenv("WHEELWORK_TOKEN")) }

// Token returns the token of the caller, "" if there is none.
func (s *Server) Token() (string, error) {
	from := s.used("token")
	if from.Value == Hidden {
		if from.Source == FromFlag {
			return s.token, nil
		}
		return s.getenv("WHEELWORK_TOKEN"), nil
	}
	if from.Value == "" {
		return "", nil
	}
	token, err := credential.ReadPrivate(from.Value)
	switch {
	case err == nil && token == "":
		err = fmt.Errorf("%s is empty", from.Value)
	case err == nil:
		return token, nil
	}
	if from.Source == FromContext {
		err = fmt.Errorf("%w: name another file with \"wheelwork context set %s --token-file FILE\"", err, from.Name)
	}
	return "", fmt.Errorf("read %s: %w", from.origin("token"), err)
}

// CompleteContexts completes the names of contexts in the shell.
func (s *Server) CompleteContexts() []string {
	file, err := s.Contexts()
	if err != nil {
		return nil // a shell cannot show an error
	}
	return file.Names()
}

// Given changes a context by the flags of the command line, and reports whether there are any.
func (s *Server) Given(c *contexts.Context) (bool, error) {
	if s.root.PersistentFlags().Changed("token") {
		return false, command.Fail(command.CodeUsage, "a context stores no token, only the path of a file with it: write the token to a file that only you may read, and give --token-file FILE")
	}
	some := false
	for name, field := range map[string]*string{"url": &c.URL, "token-file": &c.TokenFile, "ca-cert": &c.CACert, "app": &c.App} {
		if text, ok := s.typed(name); ok {
			*field, some = text, true
		}
	}
	return some, nil
}
