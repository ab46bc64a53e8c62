package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/store"
)

// Config configures the services. All fields but PublicURL, Remote and Ingress are required.
type Config struct {
	ID        string
	Partition string // "": main
	Epoch     uint64

	Loop    *core.Loop
	Store   *store.Store
	Modules *modules.Store
	// Journal reports the size of the journal.
	Journal interface{ Bytes() int64 }
	// Inspect is the upload verifier, see [ModuleInfo]. It returns an error of one sentence
	// that says why a module is refused.
	Inspect func(ctx context.Context, code *modules.Upload, manifest string) (ModuleInfo, error)
	// UploadBytes returns the size of the largest module that may be uploaded now; 0, or a
	// nil function: the default.
	UploadBytes func() int64
	Scripts     Scripts // nil: scripts are neither parsed nor tried

	// Authority signs the certificates of machines; nil: no machine joins.
	Authority *authority.Authority
	// Grant returns what a server that joins gets beside its certificate; nil: this server takes no other.
	Grant func() *apiv1.ServerGrant

	PublicURL string // where people reach the console; "": at the address of the API

	Keys    *keyring.Ring // of the secrets of apps; nil: the server refuses secrets
	Remote  Remote        // calls the other partitions; nil: there are none
	Ingress Ingress
	Sync    string // what durable means for the journal: always, interval or os
	Logger  *slog.Logger
}

// Services are the gRPC services of one partition, and the calls of other partitions. The
// methods are safe for concurrent use, except UnreadableSecrets.
type Services struct {
	cfg  Config
	loop *core.Loop
	logs *logbook
	hub  *core.Hub

	uploads   uploads
	hashes    hashes
	backfills turns
}

// New returns services for a loop.
func New(cfg Config) *Services {
	return &Services{cfg: cfg, loop: cfg.Loop, hub: cfg.Loop.Hub, hashes: newHashes(), logs: newLogbook(cfg.Store, cfg.Loop.Hub)}
}

// Ingress accepts commands that are applied later. Implementations are safe for
// concurrent use.
type Ingress interface {
	// Accept makes the commands durable and then calls done once, with a result for each
	// command in order, or with an error. If Accept itself returns an error, nothing was
	// accepted and it does not call done.
	Accept(commands []*apiv1.Command, origin string, done func([]*apiv1.CommandResult, error)) error
}

// ModuleInfo is what the upload verifier finds in a module.
type ModuleInfo struct {
	Digest      string // SHA-256 of the upload, to which Inspect has appended a separate manifest
	Kind        string // command or reactor
	Handlers    []string
	Imports     []string
	Needs       []string      // abilities that a host must advertise to run it
	Requests    *apiv1.Grants // capabilities that its manifest asks for; nil: none
	Interpreter string        // digest of the interpreter of a script; "": it is no script
	// InputSchemas are JSON Schemas by handler, of those handlers that have one.
	InputSchemas map[string]string
	// GetInterpreter is a text for users that says how to upload the interpreter.
	GetInterpreter string
}

// Scripts works with uploads that are scripts, and with the bytes of their interpreters.
// Implementations are safe for concurrent use. An error says why the script is refused.
type Scripts interface {
	// CheckScript parses the sources of a script and executes none of them.
	CheckScript(ctx context.Context, code *modules.Upload, interpreter []byte) error
	// TryScript executes a handler of a script.
	TryScript(ctx context.Context, code *modules.Upload, interpreter []byte, t Trial) (Tried, error)
}

// Trial is one call of a handler of a script.
type Trial struct {
	App, Module, Handler string
	Input                []byte
	Timeout              time.Duration // of the handler; the interpreter is compiled before it
}

// Tried is the result of a Trial.
type Tried struct {
	Outcome, Error, Code, Trace string
	Output                      []byte
	Took                        time.Duration // in the handler
	Log                         []TriedLine
}

// TriedLine is a line of the log of a Trial.
type TriedLine struct{ Level, Text string }
