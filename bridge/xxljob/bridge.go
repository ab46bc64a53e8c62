package xxljob

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/outbound"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// FunctionPrefix precedes the APPNAME of a group in the name of its function.
const FunctionPrefix = "xxl-job."

// Config configures a bridge. A zero value means the default that the comment of the field
// gives; the other fields are required.
type Config struct {
	// Worker has the server and the token of the workers, one for each group of executors.
	// The bridge fills in Name, Apps, Dir and Concurrency where they are empty.
	Worker worker.Options
	App    string // the app whose runs the executors execute
	Dir    string // for the attempts that executors work on; only one bridge may use it
	Token  string // the access token, which executors and the bridge send each other
	Zone   string // the time zone of cron expressions of scripts; default UTC

	// Allow are the networks of the executors. Default: [PrivateNetworks].
	Allow []netip.Prefix

	// API returns a client of the server with the token of a script.
	API func(ctx context.Context, token string) (*sdk.Client, error)

	// Transport sends requests to executors, for tests. Default: HTTP, to addresses in Allow.
	Transport http.RoundTripper
}

// PrivateNetworks returns the networks in which executors are by default: this machine and
// private networks.
func PrivateNetworks() []netip.Prefix {
	var list []netip.Prefix
	for _, p := range []string{"127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

// concurrency is how many runs of a group are at executors at once. A run that waits for a
// callback costs little.
const concurrency = 1024

// Bridge is an admin for executors of XXL-JOB.
type Bridge struct {
	cfg      Config
	log      *slog.Logger
	token    [sha256.Size]byte
	caller   *caller
	registry *registry
	router   *router
	attempts *attempts
	ids      *ids

	mu   sync.Mutex
	busy map[string]int // by group: the attempts that the bridge waits for
}

// New returns a bridge that continues with what the bridge before it has left in the directory.
func New(cfg Config) (*Bridge, error) {
	if cfg.Token == "" {
		return nil, errors.New("the access token is empty: give the executors and the bridge the same secret")
	}
	if cfg.Allow == nil {
		cfg.Allow = PrivateNetworks()
	}
	if cfg.Worker.Logger == nil {
		cfg.Worker.Logger = slog.Default()
	}
	if cfg.Worker.Concurrency == 0 {
		cfg.Worker.Concurrency = concurrency
	}
	cfg.Worker.Apps = []string{cfg.App}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	attempts, err := openAttempts(filepath.Join(cfg.Dir, "attempts"))
	if err != nil {
		return nil, fmt.Errorf("read the attempts: %w", err)
	}
	ids, err := openIDs(filepath.Join(cfg.Dir, "ids"))
	if err != nil {
		return nil, fmt.Errorf("read the ids of jobs: %w", err)
	}
	guard := outbound.Guard{Allow: cfg.Allow, Only: "--executor-allow", Timeout: answerTime}
	client := guard.Client()
	if cfg.Transport != nil {
		client.Transport = cfg.Transport
	}
	// A redirect would carry the access token to another address.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Bridge{
		cfg: cfg, log: cfg.Worker.Logger, token: sha256.Sum256([]byte(cfg.Token)), caller: &caller{http: client, token: cfg.Token},
		registry: newRegistry(guard.Check), router: newRouter(), attempts: attempts, ids: ids, busy: map[string]int{},
	}, nil
}

// group is the worker of a group of executors.
type group struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// Run has a worker for each group that has an executor, until ctx ends. It fails if a server
// refuses a worker.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.caller.http.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failures := make(chan error, 1) // the first one
	fail := func(err error) {
		select {
		case failures <- err:
		default:
		}
		cancel()
	}
	groups := map[string]*group{}
	var all sync.WaitGroup
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		b.match(ctx, groups, &all, fail)
		select {
		case <-ctx.Done():
		case <-b.registry.woken:
		case <-tick.C:
			if err := b.attempts.expire(); err != nil {
				b.log.Warn("forget old attempts", "error", err)
			}
		}
	}
	all.Wait()
	select {
	case err := <-failures:
		return errors.Join(err, b.ids.close())
	default:
		return b.ids.close()
	}
}

// match starts and ends workers, so that there is one for each group.
func (b *Bridge) match(ctx context.Context, groups map[string]*group, all *sync.WaitGroup, fail func(error)) {
	there := map[string]bool{}
	for _, name := range b.registry.names() {
		there[name] = true
		if g := groups[name]; g != nil {
			select {
			case <-g.ended: // it was ended when the executors of the group had gone
			default:
				continue
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		g := &group{cancel, make(chan struct{})}
		groups[name] = g
		b.log.Info("a group of executors is there", "group", name)
		all.Go(func() {
			defer close(g.ended)
			if err := b.work(ctx, name); err != nil {
				fail(err)
			}
		})
	}
	for name, g := range groups {
		if there[name] {
			continue
		}
		select {
		case <-g.ended:
			delete(groups, name)
		default:
			if !b.isBusy(name) { // an attempt must learn that its executor is lost
				g.cancel()
			}
		}
	}
}

func (b *Bridge) isBusy(group string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy[group] > 0
}

// occupy counts an attempt of a group until the returned function is called.
func (b *Bridge) occupy(group string) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy[group]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.busy[group]--; b.busy[group] == 0 {
			delete(b.busy, group)
		}
	}
}

// work is the worker of a group, until ctx ends.
func (b *Bridge) work(ctx context.Context, name string) error {
	opt := b.cfg.Worker
	opt.Dir = filepath.Join(b.cfg.Dir, "workers", name)
	if opt.Name != "" {
		opt.Name += "/" + name
	} else {
		opt.Name = FunctionPrefix + name
	}
	if err := os.MkdirAll(filepath.Dir(opt.Dir), 0o700); err != nil {
		return err
	}
	err := worker.Run(ctx, opt, worker.Handle(FunctionPrefix+name, func(ctx context.Context, t *worker.Task) ([]byte, error) {
		return b.execute(ctx, name, t)
	}))
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the worker for the group %s of executors: %w", name, err)
	}
	return nil
}

// maxBody bounds the body of a request to the bridge.
const maxBody = 2 << 20

// Handler serves executors and scripts. The paths are those of XXL-JOB, with and without its
// usual prefix.
func (b *Bridge) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /api/registry", b.executor(b.register(b.registry.add)))
	mux.Handle("POST /api/registryRemove", b.executor(b.register(b.registry.remove)))
	mux.Handle("POST /api/callback", b.executor(b.callback))
	b.scripts(mux)

	root := http.NewServeMux()
	root.Handle("/", mux)
	root.Handle("/xxl-job-admin/", http.StripPrefix("/xxl-job-admin", mux))
	return root
}

// executor serves a request with the access token. An executor reads the code in the body: the
// status is 200 in any case.
func (b *Bridge) executor(do func(body []byte) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get(TokenHeader)))
		if subtle.ConstantTimeCompare(got[:], b.token[:]) != 1 {
			b.log.Warn("an executor has a wrong access token", "remote", r.RemoteAddr, "path", r.URL.Path)
			reply(w, nil, errors.New("the access token is wrong: the executor needs the one of the bridge"))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err == nil {
			err = do(body)
		}
		if err != nil {
			b.log.Warn("an executor is refused", "remote", r.RemoteAddr, "path", r.URL.Path, "error", err)
		}
		reply(w, nil, err)
	})
}

// reply answers as XXL-JOB does.
func reply(w http.ResponseWriter, value any, err error) {
	a := answer{Code: codeSuccess}
	if err != nil {
		a = answer{Code: codeFail, Msg: err.Error()}
	} else if value != nil {
		if a.Content, err = json.Marshal(value); err != nil {
			a = answer{Code: codeFail, Msg: err.Error()}
		}
		a.Data = a.Content
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	json.NewEncoder(w).Encode(a) //nolint:errcheck // the client has gone
}

func (b *Bridge) register(do func(registration) error) func([]byte) error {
	return func(body []byte) error {
		var g registration
		if err := json.Unmarshal(body, &g); err != nil {
			return fmt.Errorf("the registration is not JSON: %w", err)
		}
		return do(g)
	}
}

// callback stores results. A result that is not waited for is acknowledged too: the executor
// would send it again for ever.
func (b *Bridge) callback(body []byte) error {
	list, err := parseCallbacks(body)
	if err != nil {
		return fmt.Errorf("the callback is not JSON: %w", err)
	}
	for _, c := range list {
		known, err := b.attempts.settle(c.LogID, c.Code, c.Msg)
		switch {
		case err != nil:
			return fmt.Errorf("store the result: %w", err)
		case !known:
			b.log.Debug("a callback for no attempt, or a repeated one", "logId", c.LogID)
		}
	}
	return nil
}
