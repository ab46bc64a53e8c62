package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/host"
	"github.com/wheelworkhq/wheelwork/host/services"
	"github.com/wheelworkhq/wheelwork/ingress"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
	"github.com/wheelworkhq/wheelwork/internal/outbound"
	"github.com/wheelworkhq/wheelwork/internal/verifier"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/node/certificates"
	"github.com/wheelworkhq/wheelwork/operation"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// closers are closed in reverse order, all of them, whatever fails.
type closers []io.Closer

func (c *closers) add(x io.Closer) { *c = append(*c, x) }

func (c *closers) Close() error {
	var err error
	for _, x := range slices.Backward(*c) {
		err = errors.Join(err, x.Close())
	}
	*c = nil
	return err
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// serverParts are the open parts of a server.
type serverParts struct {
	closers
	id      string
	keys    *keyring.Ring // of the secrets
	sched   *sched.Server // nil in a cluster
	member  *memberParts  // nil if standalone
	ingress *ingress.Ingress
	state   *archive.Source // the source of a backup; nil in a cluster
	faults  *faults         // of its logs
	uploads *verifier.Verifier
	// authority signs the certificates of machines; nil: the server has none, because it serves without TLS.
	authority *authority.Authority
	// operations makes the services of operations.
	operations *operation.Runner
}

// run serves until ctx ends.
func (p *serverParts) run(ctx context.Context) error {
	if p.member != nil {
		return p.member.run(ctx)
	}
	return p.sched.Run(ctx)
}

// report returns the server's report to a nameserver.
func (p *serverParts) report(ctx context.Context, address string) (*apiv1.ServerReport, error) {
	if p.member != nil {
		return p.member.Report(ctx), nil
	}
	load, err := p.sched.Load(ctx)
	if err != nil {
		return nil, err
	}
	return &apiv1.ServerReport{
		Server: p.id, Address: address, Version: version.String(),
		ScheduleRate: load.ScheduleRate, Hosts: int32(load.Hosts), Apps: load.Apps,
	}, nil
}

// errServesNone is the error of events at a server that serves no partition.
var errServesNone = errors.New("this server serves no partition now")

// note gives audit events to a partition that this server serves.
func (p *serverParts) note(ctx context.Context, events []audit.Event) error {
	if p.member == nil {
		return p.sched.Note(ctx, events)
	}
	for _, r := range p.member.replicas {
		if services := r.Serving(); services != nil && services.Enter() {
			defer services.Leave()
			return services.Sched.Note(ctx, events)
		}
	}
	return errServesNone
}

// owns returns what the server owns of its cluster, as a text to compare; "" if
// standalone.
func (p *serverParts) owns() string {
	if p.member == nil {
		return ""
	}
	return p.member.Owns()
}

// untilOther waits until owns does not return owned any longer, or until a tick. It
// reports false when ctx has ended.
func (p *serverParts) untilOther(ctx context.Context, owned string, tick <-chan time.Time) bool {
	if p.member != nil {
		return p.member.UntilOther(ctx, owned, tick)
	}
	select {
	case <-tick:
		return true
	case <-ctx.Done():
		return false
	}
}

func openServer(ctx context.Context, d *datadir.Dir, cfg ServerConfig, tokens credential.Processes, guard *access.Guard, tel *telemetry, log *slog.Logger) (_ *serverParts, err error) {
	p := &serverParts{faults: newFaults(), operations: &operation.Runner{Current: guard.Current}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.id, err = datadir.Identity(d.Join("server-id"), "srv-"); err != nil {
		return nil, err
	}
	l, err := mq.Open(mq.Config{Dir: d.Join("journal"), Writer: cfg.Writer, Sync: cfg.Sync, OnFail: p.faults.of("the journal"), Logger: log})
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	j, err := local.Open(l, d.Join("journal-closed"))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.add(j)
	alarm, err := deadLetters(tel.meter, log)
	if err != nil {
		return nil, err
	}
	q, err := queue.Open(queue.Config{
		Dir: d.Join("ingress"), Log: mq.Config{SegmentBytes: datadir.IngressSegment, Writer: cfg.Writer, Sync: cfg.Sync, OnFail: p.faults.of("the ingress")},
		RetainDead: cfg.Retain.DeadLetters,
		OnDead:     alarm,
		Logger:     log,
	})
	if err != nil {
		return nil, fmt.Errorf("open the ingress: %w", err)
	}
	p.add(q)
	if err := watchQueue(tel.meter, q); err != nil {
		return nil, err
	}
	p.ingress = ingress.New(ingress.Config{
		Queue: q, Journal: l, Logger: log,
		Apply: func(ctx context.Context, accepted []*apiv1.Ingress, again bool) ([]*apiv1.CommandResult, error) {
			if p.member != nil {
				return p.member.Router.Apply(ctx, accepted, again)
			}
			return p.sched.Apply(ctx, accepted, again)
		},
		NewRun: func(app, name string, at time.Time) []byte {
			id := sched.NewRunID(app, name, at)
			return id[:]
		},
	})
	keys, err := credential.SecretKeys(secretKeyFile(d, cfg), cfg.SecretKey == "")
	if err != nil {
		return nil, err
	}
	p.keys = keyring.NewRing(keys)
	if cfg.Verifier.CodeDir == "" {
		cfg.Verifier.CodeDir = d.Join("interpreters")
	}
	p.uploads = verifier.New(cfg.Verifier)
	if err := p.uploads.Probe(); err != nil {
		if cfg.Verifier.Sandbox == SandboxRequire {
			return nil, fmt.Errorf("--sandbox require: upload verifier: %w: allow it, or start with --sandbox auto", err)
		}
		log.Warn("the upload verifier works without a wall: --sandbox require refuses that", "reason", err)
	}
	edges, open, err := openAlerts(cfg.Alerts, p.id, cfg.Data, tel.meter, log)
	if err != nil {
		return nil, err
	}
	p.add(&open)
	conf := sched.Config{
		Publish: guard.Issue, Alerts: edges, Conditions: func() core.Conditions { return conditionsOf(q) },
		ID: p.id, Inspect: p.uploads.Inspect, Scripts: p.uploads, UploadBytes: func() int64 { return p.uploads.Limits().ModuleBytes }, Ingress: p.ingress, Sync: cfg.Sync.String(),
		MaxApps: cfg.MaxApps, PublicURL: cfg.People.PublicURL, Keys: p.keys, Meter: tel.meter, Logger: log,
	}
	if cfg.secure() && len(cfg.Etcd.Endpoints) == 0 {
		if p.authority, err = certificates.OpenAuthority(d); err != nil {
			return nil, err
		}
		p.authority = p.authority.WithLife(cfg.Certificates.Life)
		conf.Authority = p.authority
	}
	if len(cfg.Etcd.Endpoints) > 0 {
		if l.Next() > 1 {
			return nil, errOwnJournal
		}
		guard.Await()                  // the state is known when the first partition has been read
		conf.Sync = mq.Always.String() // etcd syncs
		if p.member, err = openMember(ctx, d, q, cfg, conf, tokens, tel, log); err != nil {
			return nil, err
		}
		p.add(p.member)
		for _, r := range p.member.replicas {
			r.Operations = func() sched.Operations { return p.operations.NewService() }
		}
		p.authority = p.member.authority
		if err := d.MarkClustered(); err != nil {
			return nil, err
		}
		return p, nil
	}
	if names, err := datadir.Partitions(d.Path); err != nil || len(names) > 0 {
		return nil, errors.Join(err, errHasPartitions)
	}
	if conf.Store, err = datadir.OpenStore(d, l, cfg.Retain.ofStore(), log); err != nil {
		return nil, err
	}
	p.add(conf.Store)
	if err := datadir.CheckSpan(d.Path, datadir.SpanOf(l), conf.Store.Applied()); err != nil {
		return nil, err
	}
	if conf.Modules, err = modules.Open(d.Join("modules")); err != nil {
		return nil, err
	}
	conf.Journal, conf.SnapshotTimes = j, snapshotTimes
	// Nothing that is loaded now is garbage: repeated collections would take a third of
	// the start. The extra memory is returned later, see giveBack.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if p.sched, err = sched.New(conf); err != nil {
		return nil, err
	}
	p.sched.Operate(p.operations.NewService())
	if err := checkSecrets(d, p.sched.UnreadableSecrets(), cfg, log); err != nil {
		return nil, err
	}
	p.state = &archive.Source{ID: p.id, Dir: d, Queue: q, Parts: []archive.Part{{
		Modules: conf.Modules, Copy: archive.CopyOf(conf.Store, func(ctx context.Context) error { return p.sched.CaughtUp(ctx) }),
	}}}
	return p, nil
}

// renewKeys reads the keys of the secrets again. It refuses to lose a key with which secrets of
// this server are sealed. In a cluster it knows those of the partitions that it owns.
func (p *serverParts) renewKeys(d *datadir.Dir, cfg ServerConfig) (func(), error) {
	file := secretKeyFile(d, cfg)
	next, err := credential.SecretKeys(file, false)
	if err != nil {
		return nil, err
	}
	lost := slices.DeleteFunc(p.keys.Keys().IDs(), next.Has)
	if len(lost) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		sealed, err := p.sealedWith(ctx)
		if err != nil {
			return nil, fmt.Errorf("find out whether secrets need the keys that %s lost: %w", file, err)
		}
		for _, id := range lost {
			if n := sealed[id]; n > 0 {
				return nil, fmt.Errorf("%s has lost the key %s, with which %d secrets are sealed: bring it back, and remove it after `wheelwork secret reseal`", file, id, n)
			}
		}
	}
	return func() { p.keys.Set(next) }, nil
}

func (p *serverParts) sealedWith(ctx context.Context) (map[string]int, error) {
	if p.member != nil {
		return p.member.sealedWith(ctx)
	}
	return p.sched.SealedWith(ctx)
}

// secretKeyFile is the file with the keys of the secrets.
func secretKeyFile(d *datadir.Dir, cfg ServerConfig) string {
	return cmp.Or(cfg.SecretKey, d.Join(datadir.SecretKeyFile))
}

// checkSecrets refuses a key that does not open all secrets, because a mistake in the file is
// likely. It accepts that after a restore without keys, until the key opens all of them.
func checkSecrets(d *datadir.Dir, unreadable []string, cfg ServerConfig, log *slog.Logger) error {
	keyless := d.Join(datadir.KeylessFile)
	if len(unreadable) == 0 {
		if err := os.Remove(keyless); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	file := secretKeyFile(d, cfg)
	_, err := os.Stat(keyless)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil && !cfg.NewSecretKey {
		return fmt.Errorf("the server's key does not open %d of the secrets that are kept, among them %s: they were sealed with another key; bring the file %s back that it was, or start with --new-secret-key and set these secrets again", len(unreadable), unreadable[0], file)
	}
	warnUnreadable(log, unreadable, file)
	return nil
}

func warnUnreadable(log *slog.Logger, names []string, file string) {
	const most = 100 // more would hide the rest of the log
	for _, name := range names[:min(len(names), most)] {
		log.Warn("a secret cannot be read, and runs that use it fail: set it again, or bring the key back with which it was sealed", "secret", name, "key_file", file)
	}
	if more := len(names) - most; more > 0 {
		log.Warn("more secrets cannot be read", "secrets", more)
	}
}

var errHasPartitions = errors.New("the data directory holds several partitions of a cluster, and a server alone has one: start it with --cluster or --etcd-endpoints; if it was restored from a backup, make it the first one of a cluster with `wheelwork cluster init` before")

// snapshotTimes is for a journal on the server's own disk: before the rows are read for a
// snapshot, the journal may be so many times as large as the rows, and at least 256 MiB.
// With a million jobs that costs 1 % of the work done meanwhile, and 4 % with 256 MiB
// alone. A start after a power cut reads as much of the journal again.
const snapshotTimes = 4

// connect finds the servers with which a host has sessions.
type connect struct {
	server     func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error)
	partitions func(ctx context.Context) ([]string, error) // partitions of the cluster; nil: there is one server
	partition  func(ctx context.Context, partition string) (grpc.ClientConnInterface, io.Closer, error)
}

// hostParts are the open parts of a host.
type hostParts struct {
	closers
	host   *host.Host
	faults *faults // of its spool
	egress *egress
}

// openHost opens a host whose files are in dir, in the data directory of cfg.
func openHost(ctx context.Context, dir func(...string) string, cfg HostConfig, c connect, tel *telemetry, log *slog.Logger) (_ *hostParts, err error) {
	p := &hostParts{faults: newFaults()}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	id, err := datadir.Identity(dir("id"), "host-")
	if err != nil {
		return nil, err
	}
	cfg.Name = hostName(cfg.Name, id)
	out := outbound.New(outbound.Config{})
	p.add(out)
	guests := services.New(services.Config{
		Send: func(ctx context.Context, g *runtime.Grants, secrets services.Secrets, r runtime.Request) (*runtime.Response, error) {
			return out.Send(ctx, g, secrets, r)
		},
		Meter: tel.meter,
	})
	if cfg.GuestBytes == 0 {
		cfg.GuestBytes = systemMemory() / 4 * 3
	}
	engine, err := wasm.New(ctx, wasm.Config{CacheDir: dir("compiled"), CacheBytes: cfg.CompiledBytes, MaxTotalBytes: cfg.GuestBytes, Slots: cfg.Slots, Services: guests, Dirs: cfg.Dirs, DirApps: cfg.DirApps})
	if err != nil {
		return nil, fmt.Errorf("start the Wasm engine: %w", err)
	}
	p.add(closeFunc(func() error { return engine.Close(context.WithoutCancel(ctx)) }))
	mods, err := modules.Open(dir("modules"))
	if err != nil {
		return nil, err
	}
	spool, err := mq.Open(mq.Config{Dir: dir("spool"), SegmentBytes: spoolSegment, OnFail: p.faults.of("the spool"), Logger: log})
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	p.add(spool)
	others, open, err := openExecutors(cfg.Executors, id, cfg.Data, dir, tel.meter, log)
	if err != nil {
		return nil, err
	}
	p.add(&open)
	p.egress = openEgress(cfg.Executors.HTTP, cfg.Executors.Private)
	p.add(p.egress)
	others["builtin:http"] = p.egress
	cordon := dir(cordonFile)
	off, err := cordoned(cordon)
	if err != nil {
		return nil, err
	}
	p.host, err = host.New(host.Config{
		ID: id, Name: cfg.Name, Version: version.String(), Labels: cfg.Labels, Apps: cfg.Apps,
		ABI: append(abi.Served(), script.Served()...), Slots: cfg.Slots, MaxSleeping: cfg.MaxSleeping,
		Cordoned: off, Cordon: func(on bool) error { return storeCordon(cordon, on) },
		Connect: c.server, Units: c.partitions, ConnectUnit: c.partition, Engine: engine, Others: others, Guests: guests, Modules: mods, TrustedKeys: cfg.TrustedKeys, ModuleBytes: cfg.ModuleBytes, Spool: spool, Tracer: tel.tracer, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	guests.Attach(p.host)
	return p, nil
}

// spoolSegment is in bytes. It is small, because a host stores little, and for a short
// time.
const spoolSegment = 8 << 20
