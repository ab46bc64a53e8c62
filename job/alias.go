package job

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// This file defines aliases. An alias is a name that a definition uses instead of a
// version. Such a definition has no digest. The record that makes a run pins the run to a
// version. The pin is in the record because the alias is in another slot than the job,
// which a replay must not read.

// Bounds of the aliases of an app and of the events of one alias.
const (
	MaxAliases     = 1000
	maxAliasEvents = 20
)

// The kinds of events of an alias.
const (
	AliasSet         = "set"
	AliasCanary      = "canary"
	AliasCanaryEnded = "canary_ended"
	AliasRolledBack  = "rolled_back"
)

// AliasRef is the text by which a definition names an alias: module@alias.
func AliasRef(a *apiv1.Alias) string { return a.GetModule() + "@" + a.GetName() }

// CheckCanary fills in the defaults of a canary and returns an error if it is invalid.
func CheckCanary(c *apiv1.Canary) error {
	if c.MinAttempts == 0 {
		c.MinAttempts = 20
	}
	if c.MaxFailure == 0 {
		c.MaxFailure = 0.1
	}
	if c.Window == "" {
		c.Window = "10m"
	}
	if err := naming.Check("canary.version", c.Version); err != nil {
		return err
	}
	window, err := time.ParseDuration(c.Window)
	switch {
	case !(c.Percent > 0 && c.Percent < 100): // also refuses NaN
		return fmt.Errorf("canary.percent is %v, it must be above 0 and below 100: to send it every run, set the alias to the version", c.Percent)
	case c.MinAttempts < 1 || c.MinAttempts > 1_000_000:
		return fmt.Errorf("canary.min_attempts is %d, it must be 1 to 1000000", c.MinAttempts)
	case !(c.MaxFailure > 0 && c.MaxFailure <= 1):
		return fmt.Errorf("canary.max_failure is %v, it must be a share above 0 and up to 1, as 0.1", c.MaxFailure)
	case err != nil || window < time.Minute || window > 24*time.Hour:
		return fmt.Errorf("canary.window: %q is not a time from 1m to 24h, as 10m", c.Window)
	}
	return nil
}

// InCanary reports whether a run belongs to the share of a canary. The result depends
// only on the id of the run and on ref, so repeated calls agree, and a larger percentage
// includes the runs of a smaller one.
func InCanary(id RunID, ref string, percent float64) bool {
	h := sha256.New()
	h.Write([]byte("canary\x00" + ref + "\x00"))
	h.Write(id[:])
	at := binary.BigEndian.Uint64(h.Sum(nil)) >> 11 // 53 bits, which a float64 represents exactly
	return float64(at)/(1<<53)*100 < percent
}

// PinOf returns the version to which an alias resolves for a run. module looks up a
// version, and returns nil for a version that no longer exists; then PinOf returns nil.
func PinOf(a *apiv1.Alias, id RunID, module func(ref string) *apiv1.Module) *apiv1.Pin {
	if c := a.GetCanary(); c != nil && InCanary(id, AliasRef(a), c.Percent) {
		return pinTo(a, c.Version, true, module)
	}
	return StablePin(a, module)
}

// StablePin is [PinOf] for a run that is not in the share of a canary.
func StablePin(a *apiv1.Alias, module func(ref string) *apiv1.Module) *apiv1.Pin {
	return pinTo(a, a.GetVersion(), false, module)
}

func pinTo(a *apiv1.Alias, version string, canary bool, module func(ref string) *apiv1.Module) *apiv1.Pin {
	m := module(a.GetModule() + "@" + version)
	if m == nil {
		return nil
	}
	return &apiv1.Pin{Alias: AliasRef(a), Module: a.Module + "@" + version, Digest: m.Digest, Canary: canary, Needs: m.Needs}
}

// NoteAlias puts an event in front of the events of an alias and drops the oldest ones
// beyond maxAliasEvents.
func NoteAlias(a *apiv1.Alias, e *apiv1.AliasEvent) {
	a.Events = append([]*apiv1.AliasEvent{e}, a.Events...)
	a.Events = a.Events[:min(len(a.Events), maxAliasEvents)]
}

// Tally counts the attempts of the runs of a canary by minute.
type Tally struct {
	StartedMs int64 // start of the counted canary
	minutes   []minuteTally
}

// minuteTally is one minute of a tally. Invariant: a tally has its minutes oldest first.
type minuteTally struct {
	at                int64 // Unix minutes
	succeeded, failed int64
}

// Add counts an attempt and drops the minutes that have left the window.
func (t *Tally) Add(atMs int64, window time.Duration, ok bool) {
	at := atMs / 60_000
	t.minutes = slices.DeleteFunc(t.minutes, func(m minuteTally) bool { return m.at <= at-minutesOf(window) })
	if n := len(t.minutes); n == 0 || t.minutes[n-1].at < at {
		t.minutes = append(t.minutes, minuteTally{at: at})
	}
	m := &t.minutes[len(t.minutes)-1] // after the clock was set back, the newest minute counts
	if ok {
		m.succeeded++
	} else {
		m.failed++
	}
}

// Sum counts the attempts in the window that ends now.
func (t *Tally) Sum(nowMs int64, window time.Duration) (succeeded, failed int64) {
	for _, m := range t.minutes {
		if m.at > nowMs/60_000-minutesOf(window) {
			succeeded += m.succeeded
			failed += m.failed
		}
	}
	return succeeded, failed
}

// minutesOf returns the number of minutes of a window, including the current one.
func minutesOf(window time.Duration) int64 {
	return max(int64((window+time.Minute-1)/time.Minute), 1)
}

// Row returns the tally as the store holds it.
func (t *Tally) Row() *apiv1.TallyRow {
	row := &apiv1.TallyRow{StartedMs: t.StartedMs}
	for _, m := range t.minutes {
		row.Minutes = append(row.Minutes, &apiv1.TallyRow_Minute{Minute: m.at, Succeeded: m.succeeded, Failed: m.failed})
	}
	return row
}

// LoadTally returns the tally of a row of the store.
func LoadTally(row *apiv1.TallyRow) *Tally {
	t := &Tally{StartedMs: row.StartedMs}
	for _, m := range row.Minutes {
		t.minutes = append(t.minutes, minuteTally{m.GetMinute(), m.GetSucceeded(), m.GetFailed()})
	}
	return t
}

// CanaryWindow is the window of a canary that [CheckCanary] has accepted.
func CanaryWindow(c *apiv1.Canary) time.Duration { return schedule.Duration(c.GetWindow()) }

// JudgeCanary returns the reason why a canary must be rolled back, from the attempts in
// its window, or "" if the canary continues.
func JudgeCanary(c *apiv1.Canary, succeeded, failed int64) string {
	all := succeeded + failed
	if all < int64(c.GetMinAttempts()) || float64(failed) <= c.GetMaxFailure()*float64(all) {
		return ""
	}
	return fmt.Sprintf("%d of %d attempts within %s failed, which is more than %.4g %%", failed, all, c.Window, c.MaxFailure*100)
}

// Counts reports whether the end of an attempt says something about the code that ran
// (counts), and whether it is a success (ok). An attempt that was stopped by request, or
// whose host was lost, does not count.
func Counts(r *Run) (ok, counts bool) {
	switch {
	case r.State == Succeeded:
		return true, true
	case r.State == Waiting, r.State == Failed, r.State == TimedOut:
		return false, r.Code != "host_lost"
	}
	return false, false
}

// use is a handler of a module that definitions name. Its module is "" if a definition
// names no module.
type use struct{ module, handler string }

func (sh *Shape) use() use {
	if sh == nil {
		return use{}
	}
	return use{sh.Handler.GetModule(), sh.Handler.GetName()}
}

// recount updates the counts of references when a job changes from one shape to another.
// nil is the shape of a job that does not exist.
func (s *Slot) recount(before, now *Shape) {
	s.Usage.Bytes += int64(now.size() - before.size())
	if before.refers() {
		s.refer--
	}
	if now.refers() {
		s.refer++
	}
	from, to := before.use(), now.use()
	if from == to {
		return
	}
	if from.module != "" {
		if s.uses[from]--; s.uses[from] == 0 {
			delete(s.uses, from)
		}
	}
	if to.module != "" {
		s.uses[to]++
	}
}

// Uses calls f for each handler that jobs of the slot name, with the number of these
// jobs.
func (s *Slot) Uses(f func(module, handler string, jobs int)) {
	for u, n := range s.uses {
		f(u.module, u.handler, n)
	}
}

// size returns the bytes that the shape adds to the definition of a job.
func (sh *Shape) size() int {
	if sh == nil {
		return 0
	}
	return len(sh.text)
}

// refers reports whether jobs of the shape refer to other jobs.
func (sh *Shape) refers() bool { return sh != nil && (sh.Dependency != nil || sh.Nodes != nil) }

// Refers reports whether any job of the slot depends on others, or is a workflow of them.
func (s *Slot) Refers() bool { return s.refer > 0 }

// Refers returns the jobs on which the job depends and the jobs of its nodes.
func (j *Job) Refers() []string {
	if d := j.Dependency(); d != nil {
		return append(slices.Clone(d.Jobs), j.Nodes()...)
	}
	return j.Nodes()
}

// Module returns the version or the alias that the job names; "" when it names no module.
func (j *Job) Module() string { return j.kind.shape.Handler.GetModule() }

// Alias returns the alias that the job names, as name@alias; "" when it names a
// version, or no module at all.
func (j *Job) Alias() string {
	if j.kind.shape.Digest != "" {
		return ""
	}
	return j.kind.shape.Handler.GetModule()
}

// RunModules calls f for each module version that the definitions of live runs name. It
// omits a run whose definition is the current one of its job: [Slot.Uses] has it.
func (s *Slot) RunModules(f func(module string)) {
	seen := map[*Shape]bool{}
	for r := range s.Runs.All() {
		if seen[r.shape] || r.owner.Current() && r.owner.kind.shape == r.shape {
			continue
		}
		seen[r.shape] = true
		if u := r.shape.use(); u.module != "" {
			f(u.module)
		}
	}
}

// maxPinned bounds the pins that a slot shares among runs.
const maxPinned = 1024

// pinKey identifies a definition in which a version replaces the alias.
type pinKey struct {
	shape                 *Shape
	alias, module, digest string
	canary                bool
}

type pinned struct {
	shape *Shape
	pin   *apiv1.Pin
}

// pin makes a run execute the version in its record. A nil pin changes nothing.
func (s *Slot) pin(r *Run, p *apiv1.Pin) {
	if p.GetModule() == "" || r.shape.Handler == nil {
		return
	}
	k := pinKey{r.shape, p.Alias, p.Module, p.Digest, p.Canary}
	x, ok := s.pinned[k]
	if !ok {
		d := decode([]byte(r.shape.text))
		d.Handler.Module, d.Digest, d.Needs = p.Module, p.Digest, p.Needs
		x = pinned{s.shape(d), proto.CloneOf(p)}
		if len(s.pinned) >= maxPinned {
			clear(s.pinned) // runs still hold the entries in use
		}
		s.pinned[k] = x
	}
	r.shape, r.Pin = x.shape, x.pin
}

// repin pins an armed run again after its definition was replaced. The run retains its
// version, unless the job now names another alias: then it gets the version in the
// record.
func (s *Slot) repin(r *Run, j *Job, p *apiv1.Pin) {
	old := r.Pin
	r.Pin = nil
	switch ref := j.Alias(); {
	case ref == "":
	case old.GetAlias() == ref:
		s.pin(r, old)
	default:
		s.pin(r, p)
	}
}

func (s *Slot) putAlias(a *apiv1.Alias, fx []Effect) []Effect {
	revise(s, KindAlias, AliasRef(a), s.Aliases[AliasRef(a)], a)
	s.Aliases[AliasRef(a)] = a
	return append(fx, Effect{Change: AliasChanged, Alias: a})
}

func (s *Slot) deleteAlias(d *apiv1.AliasDelete, fx []Effect) []Effect {
	ref := d.GetModule() + "@" + d.GetName()
	a := s.Aliases[ref]
	if a == nil {
		return fx
	}
	revise(s, KindAlias, ref, a, nil)
	delete(s.Aliases, ref)
	return append(fx, Effect{Change: AliasDeleted, Alias: a})
}
