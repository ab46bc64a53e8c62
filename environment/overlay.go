package environment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
)

// Overlay has what differs in one environment on purpose, and what a plan must pass to be
// applied there. It changes the definitions on their way to the environment, and never the
// documents that they come from.
type Overlay struct {
	Gates  Gates    `yaml:"gates"`
	Jobs   []Rule   `yaml:"jobs"`
	Alerts []Alerts `yaml:"alerts"`
}

// Gates are the conditions under which a plan is applied.
type Gates struct {
	// Soak is how long the source must have had the definitions, as "24h".
	Soak string `yaml:"soak" json:"soak,omitempty"`
	// LastGreen is the number of last runs of each job in the source that must have succeeded.
	LastGreen int `yaml:"last_green" json:"last_green,omitempty"`
	// Approval says that another principal applies the plan than the one that made it.
	Approval bool `yaml:"approval" json:"approval,omitempty"`
	// Freeze names a calendar of the target, on whose dates nothing is applied.
	Freeze string `yaml:"freeze" json:"freeze,omitempty"`
}

// Rule sets fields of the jobs that it selects. A later rule wins.
type Rule struct {
	Names  []string          `yaml:"names"`  // patterns with * and ?; none: all
	Labels map[string]string `yaml:"labels"` // the job has all of these
	Set    Set               `yaml:"set"`
}

// Set has the fields of a job that an overlay may set. A nil field stays.
type Set struct {
	Paused  *bool             `yaml:"paused"`
	Zone    *string           `yaml:"zone"` // of the schedule, if the job has one
	Timeout *string           `yaml:"timeout"`
	Memory  *int64            `yaml:"memory_bytes"`
	Fuel    *int64            `yaml:"fuel"`
	Input   *string           `yaml:"input"`
	Labels  map[string]string `yaml:"labels"` // added
}

// Alerts sets the channels of the alert rules that it selects.
type Alerts struct {
	Names    []string `yaml:"names"` // patterns with * and ?; none: all
	Channels []string `yaml:"channels"`
}

// maxOverlay bounds the bytes of an overlay.
const maxOverlay = 1 << 20

// ReadOverlay reads an overlay.
func ReadOverlay(r io.Reader) (*Overlay, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxOverlay+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxOverlay {
		return nil, fmt.Errorf("it is larger than %d MiB", maxOverlay>>20)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	o := &Overlay{}
	if err := d.Decode(o); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return o, o.check()
}

func (o *Overlay) check() error {
	if err := o.Gates.Check(); err != nil {
		return err
	}
	patterns := func(names []string) error {
		for _, name := range names {
			if _, err := path.Match(name, ""); err != nil {
				return fmt.Errorf("names: %q is no pattern: %w", name, err)
			}
		}
		return nil
	}
	for i, r := range o.Jobs {
		if err := patterns(r.Names); err != nil {
			return fmt.Errorf("jobs[%d]: %w", i, err)
		}
		if r.Set.Zone != nil {
			if _, err := time.LoadLocation(*r.Set.Zone); err != nil {
				return fmt.Errorf("jobs[%d]: zone: %w", i, err)
			}
		}
	}
	for i, r := range o.Alerts {
		if err := patterns(r.Names); err != nil {
			return fmt.Errorf("alerts[%d]: %w", i, err)
		}
		if len(r.Channels) == 0 {
			return fmt.Errorf("alerts[%d]: channels: name at least one", i)
		}
	}
	return nil
}

// Check refuses gates that no plan could pass.
func (g Gates) Check() error {
	if d, err := time.ParseDuration(g.Soak); g.Soak != "" && (err != nil || d < 0) {
		return fmt.Errorf("soak %q: want a duration, as 30m or 24h", g.Soak)
	}
	if g.LastGreen < 0 || g.LastGreen > 100 {
		return fmt.Errorf("last_green %d: want 0 to 100", g.LastGreen)
	}
	return nil
}

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return len(patterns) == 0
}

// selects reports whether a rule is about a job.
func (r *Rule) selects(job *apiv1.Job) bool {
	for key, value := range r.Labels {
		if got, ok := job.GetLabels()[key]; !ok || got != value {
			return false
		}
	}
	return matches(r.Names, job.GetName())
}

// mayHaveSelected reports whether a rule may have selected a job before the overlay was applied: a label
// that the overlay sets says nothing about it.
func (o *Overlay) mayHaveSelected(r *Rule, job *apiv1.Job) bool {
	for key, value := range r.Labels {
		ours := slices.ContainsFunc(o.Jobs, func(x Rule) bool { _, sets := x.Set.Labels[key]; return sets })
		if got, ok := job.GetLabels()[key]; !ours && (!ok || got != value) {
			return false
		}
	}
	return matches(r.Names, job.GetName())
}

// Apply returns a definition as the environment has it. It does not change d.
func (o *Overlay) Apply(d *document.Document) *document.Document {
	if o == nil {
		return d
	}
	switch x := d.Spec.(type) {
	case *apiv1.Job:
		job := proto.CloneOf(x)
		for i := range o.Jobs {
			if o.Jobs[i].selects(x) {
				o.Jobs[i].Set.apply(job)
			}
		}
		return document.Of(d.Kind, job)
	case *apiv1.AlertRule:
		rule := proto.CloneOf(x)
		for _, a := range o.Alerts {
			if matches(a.Names, x.GetName()) {
				rule.Channels = a.Channels
			}
		}
		return document.Of(d.Kind, rule)
	}
	return d
}

// hasZone reports whether the times of a schedule depend on a zone.
func hasZone(s *apiv1.Schedule) bool {
	return s.GetCron() != "" || s.GetDaily() != nil || len(s.GetInclude())+len(s.GetExclude()) > 0
}

func (s *Set) apply(job *apiv1.Job) {
	if s.Paused != nil {
		job.Paused = proto.Bool(*s.Paused)
	}
	if s.Zone != nil && hasZone(job.GetSchedule()) {
		job.Schedule.Zone = *s.Zone
	}
	if s.Timeout != nil {
		job.Timeout = *s.Timeout
	}
	if (s.Memory != nil || s.Fuel != nil) && job.Limits == nil {
		job.Limits = &apiv1.Limits{}
	}
	if s.Memory != nil {
		job.Limits.MemoryBytes = *s.Memory
	}
	if s.Fuel != nil {
		job.Limits.Fuel = *s.Fuel
	}
	if s.Input != nil {
		job.Input, job.InputBytes = *s.Input, nil
	}
	if len(s.Labels) > 0 {
		if job.Labels == nil {
			job.Labels = map[string]string{}
		}
		maps.Copy(job.Labels, s.Labels)
	}
}

// Without returns a definition of the environment without what its overlay has set: those
// fields have the values that the definition there has which it is to replace. A nil there
// leaves them unset. So the values of one environment do not reach another one.
func (o *Overlay) Without(d, there *document.Document) *document.Document {
	if o == nil {
		return d
	}
	switch x := d.Spec.(type) {
	case *apiv1.Job:
		next, was := proto.CloneOf(x), &apiv1.Job{}
		if there != nil {
			was = there.Spec.(*apiv1.Job)
		}
		for i := range o.Jobs {
			if o.mayHaveSelected(&o.Jobs[i], x) {
				o.Jobs[i].Set.restore(next, was)
			}
		}
		return document.Of(d.Kind, next)
	case *apiv1.AlertRule:
		next := proto.CloneOf(x)
		for _, a := range o.Alerts {
			if matches(a.Names, x.GetName()) && there != nil {
				next.Channels = there.Spec.(*apiv1.AlertRule).GetChannels()
			}
		}
		return document.Of(d.Kind, next)
	}
	return d
}

func (s *Set) restore(next, was *apiv1.Job) {
	if s.Paused != nil {
		next.Paused = was.Paused
	}
	if s.Zone != nil && hasZone(next.GetSchedule()) {
		next.Schedule.Zone = was.GetSchedule().GetZone()
	}
	if s.Timeout != nil {
		next.Timeout = was.GetTimeout()
	}
	if s.Memory != nil || s.Fuel != nil {
		if next.Limits = proto.CloneOf(next.GetLimits()); next.Limits == nil {
			next.Limits = &apiv1.Limits{}
		}
		if s.Memory != nil {
			next.Limits.MemoryBytes = was.GetLimits().GetMemoryBytes()
		}
		if s.Fuel != nil {
			next.Limits.Fuel = was.GetLimits().GetFuel()
		}
		if proto.Size(next.Limits) == 0 && was.Limits == nil {
			next.Limits = nil
		}
	}
	if s.Input != nil {
		next.Input, next.InputBytes = was.GetInput(), was.GetInputBytes()
	}
	for key := range s.Labels {
		if value, ok := was.GetLabels()[key]; ok {
			next.Labels[key] = value
		} else {
			delete(next.Labels, key)
		}
	}
}

func lower(s string) string { return strings.ToLower(s) }
