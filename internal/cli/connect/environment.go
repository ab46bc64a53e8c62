package connect

import "github.com/wheelworkhq/wheelwork/internal/cli/command"

// Environment returns the server and the app of a context. Flags and variables do not count, so that
// a command about two environments cannot mix them.
func (s *Server) Environment(name string) (*Server, error) {
	file, err := s.Contexts()
	if err != nil {
		return nil, err
	}
	context, err := file.Get(name)
	if err != nil {
		return nil, err
	}
	e := &Server{root: s.root, getenv: s.getenv, given: map[string]string{}, wanted: s.wanted, Timeout: s.Timeout, only: true}
	e.chosen = selection{wanted: s.wanted, file: file, name: name, context: context}
	e.URL = e.used("url").Value
	e.App, e.CACert = e.used("app").Value, e.used("ca-cert").Value
	return e, nil
}

// Overlay returns the path of the overlay of the context in effect, "" if it has none.
func (s *Server) Overlay() string { return s.chosen.context.Overlay }

// Name returns the name of the context in effect, "" if there is none.
func (s *Server) Name() string { return s.chosen.name }

// In explains an error of a call to the server of an environment.
func (s *Server) In(err error) error {
	if err == nil || !s.only {
		return err
	}
	code, message := s.Explain(err)
	return command.Fail(code, "environment %s: %s", s.chosen.name, message)
}
