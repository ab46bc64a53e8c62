package console

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// policy is one setting of a job beside its schedule.
type policy struct {
	Name string   // key of the catalogue
	Text string   // the setting, in words
	Jobs []string // jobs at the end of the text, shown as links
}

// phrase collects the parts of a sentence. It keeps the first error.
type phrase struct {
	words
	parts []string
	err   error
}

// say adds the text of a key.
func (p *phrase) say(key string, args ...any) {
	text, err := p.texts.text(key, args...)
	if p.err == nil {
		p.err = err
	}
	p.parts = append(p.parts, text)
}

// value adds the text of a key with a value, unless the value is empty.
func (p *phrase) value(key, value string) {
	if value != "" {
		p.say(key, value)
	}
}

// number is value for a number; 0 counts as empty.
func (p *phrase) number(key string, n int64) {
	if n != 0 {
		p.say(key, count(n))
	}
}

// names adds the text of a key with a list of names.
func (p *phrase) names(key string, names []string) { p.value(key, strings.Join(names, ", ")) }

// text joins the parts with the separator of the language.
func (p *phrase) text() (string, error) {
	comma, err := p.texts.text("phrase.comma")
	if p.err == nil {
		p.err = err
	}
	return strings.Join(p.parts, comma), p.err
}

// policies describes the settings of a job that differ from the defaults.
func (w words) policies(j *apiv1.Job) ([]policy, error) {
	var list []policy
	for _, p := range []struct {
		name string
		say  func(*phrase)
		jobs []string
	}{
		{"dependency", func(p *phrase) { p.dependency(j.GetDependency()) }, j.GetDependency().GetJobs()},
		{"trigger", func(p *phrase) { p.trigger(j.GetTrigger()) }, nil},
		{"misfire", func(p *phrase) { p.misfire(j.GetMisfire()) }, nil},
		{"overlap", func(p *phrase) { p.overlap(j.GetOverlap()) }, nil},
		{"deadline", func(p *phrase) { p.value("deadline.within", j.GetDeadline()) }, nil},
		{"priority", func(p *phrase) { p.number("priority.is", int64(j.GetPriority())) }, nil},
		{"rate", func(p *phrase) { p.rate(j.GetRate()) }, nil},
		{"routing", func(p *phrase) { p.routing(j.GetRouting()) }, nil},
		{"fanout", func(p *phrase) { p.fanout(j.GetFanout()) }, nil},
	} {
		said := &phrase{words: w}
		p.say(said)
		text, err := said.text()
		if err != nil {
			return nil, err
		}
		if text != "" {
			list = append(list, policy{"policy." + p.name, text, p.jobs})
		}
	}
	return list, nil
}

func (p *phrase) dependency(d *apiv1.Dependency) {
	if len(d.GetJobs()) == 0 {
		return
	}
	if d.PassOutput {
		p.say("dependency.pass")
	}
	p.say("dependency." + cmp.Or(d.Need, "all") + "." + cmp.Or(d.On, "success"))
}

func (p *phrase) trigger(t *apiv1.EventTrigger) {
	if t == nil {
		return
	}
	p.say("event.type", t.Event)
	p.value("event.source", t.Source)
	for _, path := range slices.Sorted(maps.Keys(t.Match)) {
		if begin, ok := strings.CutSuffix(t.Match[path], "*"); ok {
			p.say("event.begins", path, begin)
		} else {
			p.say("event.match", path, t.Match[path])
		}
	}
}

func (p *phrase) misfire(m *apiv1.Misfire) {
	if m == nil {
		return
	}
	switch policy := cmp.Or(m.Policy, "fire_once"); policy {
	case "fire_all":
		p.say("misfire.all", count(cmp.Or(m.Max, 100)), cmp.Or(m.Window, "24h"))
	default:
		p.say("misfire." + policy)
	}
	p.value("misfire.threshold", m.Threshold)
}

func (p *phrase) overlap(o *apiv1.Overlap) {
	key := "overlap." + cmp.Or(o.GetPolicy(), "parallel")
	switch {
	case o.GetLimit() > 0:
		p.say(key+".limit", count(o.GetLimit()))
	case key != "overlap.parallel":
		p.say(key)
	}
}

func (p *phrase) rate(r *apiv1.Rate) {
	if r.GetMax() > 0 {
		p.say("rate.is", count(r.GetMax()), cmp.Or(r.GetPer(), "1s"))
	}
}

func (p *phrase) routing(r *apiv1.Routing) {
	if r == nil {
		return
	}
	strategy := cmp.Or(r.Strategy, "least_loaded")
	if strategy == "hash" {
		strategy += "." + cmp.Or(r.Key, "job")
	}
	p.say("routing." + strategy)
	p.names("routing.hosts", r.Hosts)
	p.names("routing.labels", r.Labels)
	p.number("routing.maxhosts", int64(r.MaxHosts))
	if r.MinFreeCpu > 0 {
		p.say("routing.cpu", strconv.FormatFloat(100*r.MinFreeCpu, 'g', 4, 64))
	}
	if r.MaxMemoryBytes > 0 {
		p.say("routing.memory", byteSize(int64(min(r.MaxMemoryBytes, 1<<63-1))))
	}
	p.number("routing.slots", int64(r.MinFreeSlots))
}

func (p *phrase) fanout(f *apiv1.Fanout) {
	switch f.GetMode() {
	case "broadcast":
		p.say("fanout.broadcast")
	case "shards":
		p.say("fanout.shards", count(f.GetShards()))
	}
}

// daily describes the times of each day at which a schedule plans a run.
func (p *phrase) daily(d *apiv1.Daily, zone string) {
	from := cmp.Or(d.From, "00:00")
	if d.Every == "" {
		p.say("schedule.daily.once", from, cmp.Or(zone, "UTC"))
	} else {
		p.say("schedule.daily.every", from, cmp.Or(d.Until, "23:59:59"), d.Every, cmp.Or(zone, "UTC"))
	}
	p.names("schedule.days", d.Days)
}

// bounds describes the limits and exceptions of a schedule.
func (p *phrase) bounds(s *apiv1.Schedule) {
	p.value("schedule.from", s.GetFrom())
	p.value("schedule.until", s.GetUntil())
	p.number("schedule.max", s.GetMaxRuns())
	p.value("schedule.jitter", s.GetJitter())
	p.names("schedule.include", s.GetInclude())
	p.names("schedule.exclude", s.GetExclude())
}
