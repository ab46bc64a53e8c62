package planned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

const (
	// DefaultKeep is how many backups stay.
	DefaultKeep = 7
	// lookEvery is how often a server finds out whether it makes the backups of its cluster.
	lookEvery = 10 * time.Second
	// A planned backup that failed is repeated so often, so long after each failure: in a
	// cluster a partition may have moved meanwhile.
	repeats   = 2
	repeatsIn = time.Minute
	// overdueAfter is how long after a planned time its backup may end.
	overdueAfter = time.Hour
)

// Config is what a Maker needs.
type Config struct {
	Dir      string // for the backups; it must exist
	Scratch  string // for drills of encrypted backups: on the disk of the server, which has their contents anyway
	Schedule Schedule
	Keep     int    // backups that stay; default DefaultKeep
	Server   string // id of this server
	Order    func() (archive.Order, error)
	Write    func(context.Context, io.Writer, archive.Keys) error
	Size     func() int64 // of the next backup, in bytes, or a little more
	// Drill opens a restored directory as a server would.
	Drill func(ctx context.Context, dir string) (Found, error)
	Board Board
	// Free returns the free bytes of the disk of a directory; ok is false if they are unknown. Default: those of the system.
	Free func(dir string) (free int64, ok bool)
	Log  *slog.Logger
	// wrote is called in tests with the path of the written file, before it is read back.
	wrote func(file string)
}

// Maker makes backups.
type Maker struct {
	cfg  Config
	wake chan struct{}

	mu       sync.Mutex
	state    State
	leads    bool
	running  time.Time // when the backup began that is being made; zero: none
	asked    bool      // Start has begun it
	tries    int       // of the planned time that is due
	again    time.Time // when to try it again
	told     string    // the last problem with the board that was logged
	failures int64     // since the start of this process
}

// New returns a maker. It makes the directory if there is none.
func New(cfg Config) (*Maker, error) {
	cfg.Keep = cmp.Or(cfg.Keep, DefaultKeep)
	if cfg.Keep < 0 {
		return nil, fmt.Errorf("--backup-keep %d: keep at least one backup", cfg.Keep)
	}
	var err error
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("--backup-dir: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("--backup-dir: %w", err)
	}
	if cfg.Free == nil {
		cfg.Free = datadir.FreeBytes
	}
	if cfg.wrote == nil {
		cfg.wrote = func(string) {}
	}
	return &Maker{cfg: cfg, wake: make(chan struct{}, 1)}, nil
}

// Run makes backups until ctx ends.
func (m *Maker) Run(ctx context.Context) error {
	if err := errors.Join(removePartial(m.cfg.Dir, m.cfg.Server), m.removeDrills()); err != nil {
		m.cfg.Log.Warn("what an interrupted backup left could not be removed", "dir", m.cfg.Dir, "error", err)
	}
	for {
		wait := time.NewTimer(m.turn(ctx))
		select {
		case <-wait.C:
		case <-m.wake:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
		wait.Stop()
	}
}

// RunningError means that a backup is being made.
type RunningError struct{ Since time.Time }

func (e *RunningError) Error() string {
	return fmt.Sprintf("a backup is being made since %s: wait for its end", e.Since.UTC().Format(time.RFC3339))
}

// errElsewhere means that another server makes the backups, and knows their state.
var errElsewhere = errors.New("another server makes the backups now")

// Start begins a backup now, which Run makes.
func (m *Maker) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running.IsZero() {
		return &RunningError{m.running}
	}
	m.running, m.asked = time.Now(), true
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return nil
}

// turn makes the backup that is due, if any, and returns how long there is nothing to do.
func (m *Maker) turn(ctx context.Context) time.Duration {
	if err := m.lead(ctx); err != nil {
		if ctx.Err() == nil {
			m.tell(err)
		}
		return lookEvery
	}
	m.mu.Lock()
	m.told = ""
	now := time.Now()
	next := m.cfg.Schedule.after(m.state.Done)
	due := !next.IsZero() && !next.After(now) && !m.again.After(now)
	asked := m.asked
	if asked || due && m.leads {
		m.asked = false
		if m.running.IsZero() {
			m.running = now
		}
	}
	leads, began := m.leads, m.running
	m.mu.Unlock()
	switch {
	case asked && !leads:
		m.end(ctx, time.Time{}, State{}, errElsewhere)
	case asked:
		made, err := m.make(ctx, began)
		m.end(ctx, time.Time{}, made, err)
	case due && leads:
		made, err := m.make(ctx, began)
		m.end(ctx, next, made, err)
	default:
		return m.idle(next, now)
	}
	return 0
}

// idle returns how long to wait for a planned time. It is bounded, because clocks are set and
// another server may come to make the backups.
func (m *Maker) idle(next, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.again.After(next) {
		next = m.again
	}
	if next.IsZero() || !m.leads {
		return lookEvery
	}
	return min(max(next.Sub(now), time.Millisecond), lookEvery)
}

func (m *Maker) tell(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told != err.Error() {
		m.cfg.Log.Error("backups are not made now", "error", err)
	}
	m.told = err.Error()
}

// lead finds out whether this server makes the backups, and reads the state when it begins to.
func (m *Maker) lead(ctx context.Context) error {
	leads, err := m.cfg.Board.Leads(ctx)
	if err != nil {
		return fmt.Errorf("find out which server makes the backups: %w", err)
	}
	m.mu.Lock()
	fresh := leads && !m.leads
	m.mu.Unlock()
	if !fresh {
		m.mu.Lock()
		m.leads = leads
		m.mu.Unlock()
		return nil
	}
	state, err := load(ctx, m.cfg.Board)
	if err != nil {
		return err
	}
	// A plan begins when a server first has it: there are no earlier times to make up for.
	if text := m.cfg.Schedule.String(); state.Schedule != text || state.Done.IsZero() {
		state.Schedule, state.Done = text, time.Now()
		if err := save(ctx, m.cfg.Board, state); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.leads, m.tries, m.again = state, true, 0, time.Time{}
	return nil
}

// end records the result of an attempt. planned is its planned time; zero: a caller has started
// it. What is set in made replaces the state.
func (m *Maker) end(ctx context.Context, planned time.Time, made State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = time.Time{}
	if ctx.Err() != nil {
		return // the next start makes up for the planned time
	}
	if errors.Is(err, errElsewhere) {
		m.leads = false
		m.cfg.Log.Warn("a backup was not made", "dir", m.cfg.Dir, "error", err)
		return
	}
	now := time.Now()
	s := &m.state
	if made.Drill != nil {
		s.Drill = made.Drill
	}
	if err == nil {
		s.Last, s.Error, s.Failures = made.Last, "", 0
	} else {
		s.Error, s.FailedAt = err.Error(), now
		s.Failures++
		m.failures++
		m.cfg.Log.Error("a backup was not made", "dir", m.cfg.Dir, "error", err)
	}
	if !planned.IsZero() {
		if m.tries++; err == nil || m.tries > repeats {
			m.tries, m.again = 0, time.Time{}
			s.Done = planned
			if next := m.cfg.Schedule.after(planned); !next.IsZero() && !next.After(now) {
				s.Done = now // one backup makes up for all the times that passed
			}
		} else {
			m.again = now.Add(repeatsIn)
		}
	}
	state := *s
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	if err := save(ctx, m.cfg.Board, state); err != nil {
		m.cfg.Log.Warn("the result of a backup is not recorded: a restart may repeat it", "error", err)
	}
}

// Status is how the backups are.
type Status struct {
	State
	Dir, Schedule, Server string
	Keep                  int
	Encrypted             bool
	Next, Running         time.Time // zero: none
	Overdue               bool
	Files                 []File // the newest first
}

// Status returns how the backups are. The error is about the list of files.
func (m *Maker) Status() (Status, error) {
	order, err := m.cfg.Order()
	m.mu.Lock()
	s := Status{
		State: m.state, Dir: m.cfg.Dir, Schedule: m.cfg.Schedule.String(), Server: m.cfg.Server, Keep: m.cfg.Keep,
		Encrypted: err == nil && order.Recipients.Any(), Running: m.running,
	}
	if m.leads {
		s.Next = m.cfg.Schedule.after(s.Done)
		if m.again.After(s.Next) {
			s.Next = m.again
		}
		s.Overdue = !s.Next.IsZero() && time.Since(m.cfg.Schedule.after(s.Done)) > overdueAfter
	}
	m.mu.Unlock()
	s.Files, err = list(m.cfg.Dir)
	if err != nil {
		err = fmt.Errorf("list the backups: %w", err)
	}
	return s, err
}

// Figures returns the time of the last good backup and the number of failed attempts of this
// process, for metrics. The time is zero on a server that makes no backups now.
func (m *Maker) Figures() (good time.Time, size, failures int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leads && m.state.Last != nil {
		good, size = m.state.Last.Ended, m.state.Last.Bytes
	}
	return good, size, m.failures
}
