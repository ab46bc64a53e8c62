package job

import (
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// WithoutDefaults returns a copy of a definition without the values that are defaults and
// without objects that are then empty. Two definitions that are equal after it do the same. The
// table of package document has the same defaults, which a test there compares.
func WithoutDefaults(d *apiv1.Job) *apiv1.Job {
	d = proto.CloneOf(d)
	clear := func(of *string, standard string) {
		if *of == standard {
			*of = ""
		}
	}
	if h := d.Handler; h != nil {
		if clear(&h.Name, "main"); h.Http != nil {
			clear(&h.Http.Timeout, "30s")
		}
	}
	for _, n := range d.Workflow.GetNodes() {
		clear(&n.When, "success")
	}
	if s := d.Schedule; s != nil {
		clear(&s.Zone, "UTC")
		clear(&s.Gap, "shift")
		clear(&s.Fold, "first")
		if s.Daily != nil {
			clear(&s.Daily.From, "00:00")
			clear(&s.Daily.Until, "23:59:59")
			clear(&s.Daily.Every, "24h")
		}
		d.Schedule = unlessEmpty(s)
	}
	if r := d.Retry; r != nil {
		clear(&r.Backoff, "exponential")
		clear(&r.First, "1s")
		clear(&r.Limit, "1m")
		d.Retry = unlessEmpty(r)
	}
	if m := d.Misfire; m != nil {
		clear(&m.Policy, "fire_once")
		d.Misfire = unlessEmpty(m)
	}
	if o := d.Overlap; o != nil {
		clear(&o.Policy, "parallel")
		d.Overlap = unlessEmpty(o)
	}
	if r := d.Rate; r != nil {
		clear(&r.Per, "1s")
		d.Rate = unlessEmpty(r)
	}
	if r := d.Routing; r != nil {
		clear(&r.Strategy, "least_loaded")
		clear(&r.Key, "job")
		d.Routing = unlessEmpty(r)
	}
	if x := d.Dependency; x != nil {
		clear(&x.On, "success")
		clear(&x.Need, "all")
		d.Dependency = unlessEmpty(x)
	}
	for _, a := range d.Alerts {
		if w := a.When; w != nil {
			clear(&w.LateStart, "1m")
			clear(&w.NotFinishedBy, "00:00")
			a.When = unlessEmpty(w)
		}
		clear(&a.Severity, "error")
		clear(&a.Window, "0s")
		clear(&a.Wait, "30s")
		clear(&a.Repeat, "4h")
		clear(&a.Silence, "0s")
		clear(&a.Zone, "UTC")
	}
	if l := d.Limits; l != nil {
		d.Limits = unlessEmpty(l)
	}
	if d.Paused != nil && !*d.Paused {
		d.Paused = nil
	}
	return d
}

// unlessEmpty returns m, or nil if no field of it is set.
func unlessEmpty[M any, P interface {
	*M
	proto.Message
}](m P) P {
	if proto.Size(m) == 0 {
		return nil
	}
	return m
}
