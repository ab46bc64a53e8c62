package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/importer/fires"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// cronJob has the fields of a CronJob that are converted or reported.
type cronJob struct {
	Kind     string    `yaml:"kind"`
	Items    []cronJob `yaml:"items"`
	Metadata struct {
		Name      string            `yaml:"name"`
		Namespace string            `yaml:"namespace"`
		Labels    map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec struct {
		Schedule   string `yaml:"schedule"`
		Zone       string `yaml:"timeZone"`
		Deadline   *int64 `yaml:"startingDeadlineSeconds"`
		Concurrent string `yaml:"concurrencyPolicy"`
		Suspend    bool   `yaml:"suspend"`
		Succeeded  *int   `yaml:"successfulJobsHistoryLimit"`
		Failed     *int   `yaml:"failedJobsHistoryLimit"`
		Template   struct {
			Spec struct {
				Backoff     *int64 `yaml:"backoffLimit"`
				Deadline    int64  `yaml:"activeDeadlineSeconds"`
				Completions int64  `yaml:"completions"`
				Parallelism int64  `yaml:"parallelism"`
				Mode        string `yaml:"completionMode"`
				TTL         *int64 `yaml:"ttlSecondsAfterFinished"`
				OnFailure   any    `yaml:"podFailurePolicy"`
				Template    struct {
					Spec struct {
						Containers []container `yaml:"containers"`
						Init       []container `yaml:"initContainers"`
					} `yaml:"spec"`
				} `yaml:"template"`
			} `yaml:"spec"`
		} `yaml:"jobTemplate"`
	} `yaml:"spec"`
}

type container struct {
	Name    string   `yaml:"name"`
	Image   string   `yaml:"image"`
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	Env     []struct {
		Name string `yaml:"name"`
	} `yaml:"env"`
}

// Kubernetes converts the CronJobs of manifests in YAML or JSON.
func Kubernetes(text []byte, o Options) (*Result, error) {
	c := begin("kubernetes", o)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var m cronJob
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		c.manifest(m)
	}
	if len(c.jobs) == 0 {
		return nil, errors.New("the file has no CronJob")
	}
	return c.end(), nil
}

func (c *conversion) manifest(m cronJob) {
	if m.Kind == "CronJob" {
		c.cronJob(m)
		return
	}
	for _, item := range m.Items {
		c.manifest(item)
	}
}

func (c *conversion) cronJob(m cronJob) {
	j := c.job(strings.Trim(m.Metadata.Namespace+"/"+m.Metadata.Name, "/"), m.Metadata.Name)
	for k, v := range m.Metadata.Labels {
		if len(k) <= 128 && len(j.spec.Labels) < 60 {
			j.label(k, v)
		}
	}
	j.containers(m)
	j.whenKubernetes(m)
	if d := m.Spec.Deadline; d != nil && *d > 0 {
		j.spec.Deadline = short(time.Duration(min(*d, 1<<31)) * time.Second)
	}
	switch m.Spec.Concurrent {
	case "", "Allow":
		j.line("concurrencyPolicy", Kept, "runs may overlap")
	case "Forbid":
		j.spec.Overlap = &apiv1.Overlap{Policy: "discard"}
		j.line("concurrencyPolicy", Kept, "overlap: discard")
	case "Replace":
		j.spec.Overlap = &apiv1.Overlap{Policy: "cover"}
		j.line("concurrencyPolicy", Kept, "overlap: cover")
	default:
		j.line("concurrencyPolicy", Todo, "%q is not known: runs may overlap", m.Spec.Concurrent)
	}
	j.template(m)
	if m.Spec.Succeeded != nil || m.Spec.Failed != nil {
		j.line("successfulJobsHistoryLimit, failedJobsHistoryLimit", Lost, "runs stay for a time, which is set for the app: wheelwork app set --retain-runs")
	}
	j.state("suspend", !m.Spec.Suspend)
}

// whenKubernetes sets the schedule and what happens to missed times.
func (j *job) whenKubernetes(m cronJob) {
	line, in := strings.TrimSpace(m.Spec.Schedule), (*time.Location)(nil)
	zone := m.Spec.Zone
	if prefix, rest, ok := strings.Cut(line, " "); ok && (strings.HasPrefix(prefix, "TZ=") || strings.HasPrefix(prefix, "CRON_TZ=")) {
		_, zone, _ = strings.Cut(prefix, "=")
		line = strings.TrimSpace(rest)
	}
	if zone != "" {
		var err error
		if in, err = cron.LoadZone(zone); err != nil {
			j.line("timeZone", Todo, "the job has no schedule: %v", err)
			return
		}
	} else {
		in = j.c.zone()
	}
	if full := nicknames[strings.ToLower(line)]; full != "" {
		line = full
	}
	if every, ok := strings.CutPrefix(line, "@every "); ok {
		d, err := time.ParseDuration(strings.TrimSpace(every))
		if err != nil {
			j.line("schedule", Todo, "%q is no duration: the job has no schedule", every)
			return
		}
		j.rate("schedule", d, time.Time{})
	} else {
		j.unix("schedule", eitherDay(line), in, fires.Kubernetes)
	}
	if j.spec.Schedule == nil {
		return
	}
	if d := m.Spec.Deadline; d != nil && *d > 0 {
		j.spec.Misfire = &apiv1.Misfire{Policy: "fire_all", Max: 1, Window: short(time.Duration(min(*d, 1<<31)) * time.Second)}
		j.line("startingDeadlineSeconds", Kept, "deadline, and misfire: the newest missed time of the last %s", j.spec.Misfire.Window)
		return
	}
	j.misfire("startingDeadlineSeconds", "fire_once", 0, "fire_once")
}

// eitherDay writes */n in the day fields as a list if both are restricted, because the
// controller takes such a field for restricted, and this server does not.
func eitherDay(line string) string {
	fields := strings.Fields(line)
	if len(fields) != 5 || fields[2] == "*" || fields[4] == "*" || fields[2] == "?" || fields[4] == "?" {
		return line
	}
	for _, day := range []struct{ field, first, last int }{{2, 1, 31}, {4, 0, 6}} {
		i := day.field
		var step int
		if _, err := fmt.Sscanf(fields[i], "*/%d", &step); err != nil || step < 2 || fields[i] != fmt.Sprintf("*/%d", step) {
			continue
		}
		var list []string
		for n := day.first; n <= day.last; n += step {
			list = append(list, number(n))
		}
		fields[i] = strings.Join(list, ",")
	}
	return strings.Join(fields, " ")
}

// containers names what the job ran: a container cannot be imported.
func (j *job) containers(m cronJob) {
	j.spec.Handler = &apiv1.Handler{Name: "native:" + j.spec.Name}
	pod := m.Spec.Template.Spec.Template.Spec
	for _, x := range slices.Concat(pod.Init, pod.Containers) {
		var env []string
		for _, e := range x.Env {
			env = append(env, e.Name)
		}
		j.describe(strings.TrimSpace(fmt.Sprintf("container %s: image %s, command %q, environment %s", x.Name, x.Image, slices.Concat(x.Command, x.Args), strings.Join(env, " "))))
	}
	j.line("containers", Todo, "a container is no handler: write one, or change handler; %s is a function of a program with a worker, and the description has image, command and names of variables", j.spec.Handler.Name)
}

// template sets what the template of the Job says.
func (j *job) template(m cronJob) {
	s := m.Spec.Template.Spec
	backoff := int64(6)
	if s.Backoff != nil {
		backoff = *s.Backoff
	}
	if backoff > 0 {
		j.spec.Retry = &apiv1.Retry{Max: int32(min(backoff, 100)), First: "10s", Limit: "6m"}
		j.line("backoffLimit", Kept, "retry: %d, after 10s, 20s … 6m", j.spec.Retry.Max)
	}
	j.timeout("activeDeadlineSeconds", time.Duration(min(s.Deadline, 1<<31))*time.Second)
	if s.Deadline > 0 && backoff > 0 {
		j.line("activeDeadlineSeconds", Changed, "it bounds one attempt here, all attempts together there")
	}
	switch {
	case s.Completions > 1 && s.Mode == "Indexed":
		j.spec.Fanout = &apiv1.Fanout{Mode: "shards", Shards: int32(min(s.Completions, 10_000))}
		j.line("completions", Kept, "fanout: %d shards", j.spec.Fanout.Shards)
	case s.Completions > 1 || s.Parallelism > 1:
		j.line("completions, parallelism", Todo, "%d pods, %d at once: use fanout", s.Completions, s.Parallelism)
	}
	if s.TTL != nil {
		j.line("ttlSecondsAfterFinished", Lost, "runs stay for a time, which is set for the app")
	}
	if s.OnFailure != nil {
		j.line("podFailurePolicy", Todo, "the handler decides whether an error is retried: see docs/handlers.md")
	}
}
