package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/contexts"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	defaultURL = "http://127.0.0.1:7700"
	defaultApp = sdk.DefaultApp
	// DefaultTimeout bounds the calls of a command that does not wait for other work.
	DefaultTimeout = 30 * time.Second
)

// Server is the server that a command line names, and the app that it means there. Each of
// URL, CACert, App and the token comes from a flag, a variable, a context or a default.
type Server struct {
	URL, CACert, App string
	Timeout          time.Duration // 0: the command's own

	root   *cobra.Command
	getenv func(string) string
	token  string
	wanted string            // --context
	given  map[string]string // flags of the command line whose fields have other values

	chosen selection
	local  bool // contexts are ignored
	only   bool // flags and variables are ignored: the context alone counts
}

// selection is the context in effect.
type selection struct {
	wanted  string         // --context when it was selected
	file    *contexts.File // nil: there is none, or it cannot be read
	name    string         // "": no context is in effect
	context contexts.Context
	fault   error // why the context cannot be used
}

// New adds the flags about the server to the root command, with the defaults from the
// environment.
func New(root *cobra.Command, getenv func(string) string) *Server {
	s := &Server{root: root, getenv: getenv, given: map[string]string{}}
	flags := root.PersistentFlags()
	flags.StringVar(&s.wanted, "context", "", "`name` of the context with the settings of the server, or WHEELWORK_CONTEXT; an empty name: none (default the current one)")
	flags.StringVar(&s.URL, "url", cmp.Or(getenv("WHEELWORK_URL"), defaultURL), "address of the server, or WHEELWORK_URL")
	flags.StringVar(&s.token, "token", "", "token of the caller, or WHEELWORK_TOKEN") // help would print a default
	flags.String("token-file", "", "`file` with the token of the caller, or WHEELWORK_TOKEN_FILE")
	flags.StringVar(&s.CACert, "ca-cert", getenv("WHEELWORK_CA_CERT"), "PEM `file` with the authority that signed the server's certificate, or WHEELWORK_CA_CERT (default the system's)")
	flags.StringVar(&s.App, "app", cmp.Or(getenv("WHEELWORK_APP"), defaultApp), "the app that jobs, runs and modules belong to, or WHEELWORK_APP")
	flags.DurationVar(&s.Timeout, "timeout", 0, "end the command after this time, as 30s or 5m (default 30s for calls, none for commands that wait)")
	err := root.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return s.CompleteContexts(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(fmt.Sprintf("complete --context: %v", err)) // the flag is misspelt in this program
	}
	return s
}

// Check checks the flags after they are parsed, and finds the settings that they leave out.
func (s *Server) Check(cmd *cobra.Command) error {
	if s.Timeout < 0 {
		return command.Usage(cmd, "--timeout %v: want a positive duration", s.Timeout)
	}
	if s.token != "" && s.flag("token-file").Value != "" {
		return command.Usage(cmd, "--token and --token-file: give one of them")
	}
	s.resolve()
	return nil
}

// Dial connects to the server.
func (s *Server) Dial(ctx context.Context) (*sdk.Client, error) {
	if s.wanted != s.chosen.wanted { // completion in the shell parses flags after Check
		s.resolve()
	}
	if err := s.Ready(); err != nil {
		return nil, err
	}
	token, err := s.Token()
	if err != nil {
		return nil, err
	}
	return s.dial(ctx, token)
}

func (s *Server) dial(ctx context.Context, token string) (_ *sdk.Client, err error) {
	options := sdk.Options{Token: token, Program: "cli"}
	if s.CACert != "" {
		if options.TLS, err = s.TLS(); err != nil {
			return nil, err
		}
	}
	return sdk.Dial(ctx, s.URL, options)
}

// TLS returns the configuration that trusts the authority of --ca-cert, or those of the
// system.
func (s *Server) TLS() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CACert == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(s.CACert)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.used("ca-cert").origin("ca-cert"), err)
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read %s: %s holds no certificate in PEM form", s.used("ca-cert").origin("ca-cert"), s.CACert)
	}
	return conf, nil
}

// Action is the body of a command that calls a server.
type Action func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error

// Call runs an action of one or a few calls, with the timeout.
func (s *Server) Call(do Action) func(*cobra.Command, []string) error {
	return s.connected(DefaultTimeout, do)
}

// Wait runs an action without a timeout, unless the command line has one.
func (s *Server) Wait(do Action) func(*cobra.Command, []string) error {
	return s.connected(0, do)
}

func (s *Server) connected(timeout time.Duration, do Action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := s.Deadline(cmd.Context(), timeout)
		defer cancel()
		client, err := s.Dial(ctx)
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // every answer has come
		return do(ctx, client, cmd, args)
	}
}

// Deadline returns a context with the timeout of the command line, or with another one if
// there is none. 0 means no timeout.
func (s *Server) Deadline(ctx context.Context, otherwise time.Duration) (context.Context, context.CancelFunc) {
	if timeout := cmp.Or(s.Timeout, otherwise); timeout > 0 {
		return context.WithTimeout(ctx, timeout)
	}
	return context.WithCancel(ctx)
}

// Fatal reports whether an error concerns a whole command on many objects rather than one of
// them: the other objects would fail in the same way.
func Fatal(err error) bool {
	return err != nil && (errors.Is(err, sdk.ErrUnauthenticated) || errors.Is(err, sdk.ErrUnavailable) ||
		errors.Is(err, sdk.ErrDenied) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
