package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/node"
)

// service is the process of a command whose sources were read: the command line, variables, the
// configuration file and the files that these name.
type service[C any] struct {
	conf C
	log  process.Log
	// kept are files in the data directory that a reload reads, besides those that settings name.
	kept []string
	// readers returns the token of readers of profiles, or the file that has it.
	readers func(C) (token, file string)
	// run runs the process until the context ends, and calls ready once.
	run func(ctx context.Context, conf C, ready func(), reloads <-chan node.Reload[C]) error
}

// resolved is what the sources of a process say.
type resolved struct {
	conf     any
	level    slog.Level
	settings snapshot
}

// launch runs the process of a command until its context ends, and reloads it at each SIGHUP.
func launch[C any](c *commands, cmd *cobra.Command, s service[C]) (err error) {
	r := resolved{s.conf, s.log.Level.Level(), snapshotOf(c.settings())}
	if c.hand != nil {
		c.hand(r)
		return nil
	}
	var current atomic.Pointer[C]
	current.Store(&s.conf)
	if address := cmd.Flag("pprof").Value.String(); address != "" {
		stop, err := node.Profile(node.ProfileConfig{Address: address, Readers: func() (string, string) { return s.readers(*current.Load()) }})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	manager := supervisor{s.log.Logger}
	requests := make(chan node.Reload[C])
	l := &reloader{log: s.log, manager: manager, serves: make(chan struct{}), resolve: c.again, kept: s.kept, settings: r.settings, apply: func(ctx context.Context, conf any) error {
		next, ok := conf.(C)
		if !ok {
			return errors.New("the command line is that of another process")
		}
		if err := request(ctx, requests, next); err != nil {
			return err
		}
		current.Store(&next)
		return nil
	}}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ctx, cancel := context.WithCancel(cmd.Context())
	var reloading sync.WaitGroup
	reloading.Go(func() { l.run(ctx, hangups) })
	defer reloading.Wait()
	defer cancel()
	defer manager.attend(ctx)()
	return s.run(ctx, s.conf, l.ready, requests)
}

// request lets the process take over a configuration, and waits for its answer.
func request[C any](ctx context.Context, requests chan<- node.Reload[C], conf C) error {
	answer := make(chan error, 1)
	select {
	case requests <- node.Reload[C]{Config: conf, Done: func(err error) { answer <- err }}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// again reads the sources of the process again. It executes the same command line, up to the
// point at which the process would start.
func (c *commands) again() (resolved, error) {
	root := &cobra.Command{Use: "wheelwork", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(io.Discard)
	root.SetErr(io.Discard) // what a start has noted of the variables is still true
	root.SetFlagErrorFunc(command.FlagError)
	var got resolved
	fresh := &commands{Printer: output.New(root, c.env.Get), Server: connect.New(root, c.env.Get), env: c.env, hand: func(r resolved) { got = r }}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return cmp.Or(fresh.Printer.Check(cmd), fresh.Server.Check(cmd))
	}
	root.AddCommand(fresh.processes()...)
	root.SetArgs(c.env.Args)
	if err := root.Execute(); err != nil {
		return got, err
	}
	if got.conf == nil {
		return got, errors.New("the command line starts no process")
	}
	return got, nil
}

// reloader reloads one process.
type reloader struct {
	log     process.Log
	manager supervisor
	serves  chan struct{} // closed when the process is ready; the first reload waits for it
	resolve func() (resolved, error)
	// apply puts a configuration into effect, except for settings that need a restart. After an
	// error nothing has changed.
	apply    func(ctx context.Context, conf any) error
	kept     []string // as in service
	settings snapshot // in effect
}

// ready says that the process serves, and that it can be reloaded.
func (r *reloader) ready() {
	close(r.serves)
	r.manager.ready()
}

// run reloads the process at each signal, until ctx ends.
func (r *reloader) run(ctx context.Context, signals <-chan os.Signal) {
	select {
	case <-r.serves:
		r.settings.addFiles(r.kept) // the first start makes them
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-signals:
			r.manager.reloading()
			r.reload(ctx)
			if ctx.Err() == nil {
				r.manager.ready()
			}
		case <-ctx.Done():
			return
		}
	}
}

func (r *reloader) reload(ctx context.Context) {
	next, err := r.resolve()
	if err == nil {
		next.settings.addFiles(r.kept)
		err = r.apply(ctx, next.conf)
	}
	switch {
	case ctx.Err() != nil: // the process ends
		return
	case err != nil:
		r.log.Error("the reload failed and changed nothing: correct what the error names, and reload again", "error", oneLine(err))
		return
	}
	took, waiting := compare(r.settings, next.settings)
	for _, name := range took {
		r.settings[name] = next.settings[name]
	}
	// At the more talkative of the two levels this line shows.
	r.log.Level.Set(min(r.log.Level.Level(), next.level))
	switch {
	case len(took) > 0:
		r.log.Info("reload: settings changed", "settings", strings.Join(took, ", "))
	case len(waiting) == 0:
		r.log.Info("reload: nothing changed")
	}
	r.log.Level.Set(next.level)
	for _, text := range waiting {
		r.log.Warn(text)
	}
}

// oneLine returns the text of an error, whose parts errors.Join puts on lines of their own.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
