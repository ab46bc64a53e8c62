package environment

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
)

// For returns definitions of one environment as they go to an app of another one. Settings of the app
// and alert channels are left out where the target has them, because they belong to an
// environment; a pause is left out of jobs that the target has, because operators decide about it. from
// is the overlay of the source, whose values stay there.
func For(app string, source, target []*document.Document, from *Overlay) []*document.Document {
	there := make(map[Object]*document.Document, len(target))
	for _, d := range target {
		there[objectOf(d)] = d
	}
	var all []*document.Document
	for _, d := range source {
		next := document.Of(d.Kind, proto.Clone(d.Spec))
		if settings, ok := next.Spec.(*apiv1.App); ok {
			settings.Name = app
		}
		next.SetApp(app)
		was := there[objectOf(next)]
		if was != nil && (d.Kind.Name == "App" || d.Kind.Name == "AlertChannel") {
			continue
		}
		next = from.Without(next, was)
		if job, ok := next.Spec.(*apiv1.Job); ok && was != nil {
			job.Paused = nil
		}
		all = append(all, next)
	}
	return all
}

// Select returns the named jobs with what they need: the jobs, calendars and aliases that they name, the
// grants of their modules, the alert rules that name one of them, and the channels of these.
func Select(source []*document.Document, jobs []string) ([]*document.Document, error) {
	byName := map[Object]*document.Document{}
	for _, d := range source {
		byName[objectOf(d)] = d
	}
	chosen := map[Object]bool{}
	var take func(kind, name string)
	take = func(kind, name string) {
		o := Object{kind, name}
		d := byName[o]
		if d == nil || chosen[o] {
			return
		}
		chosen[o] = true
		switch x := d.Spec.(type) {
		case *apiv1.Job:
			for _, name := range slices.Concat(x.GetSchedule().GetInclude(), x.GetSchedule().GetExclude()) {
				take("Calendar", name)
			}
			for _, name := range x.GetDependency().GetJobs() {
				take("Job", name)
			}
			for _, n := range x.GetWorkflow().GetNodes() {
				take("Job", n.GetJob())
			}
			if module, _, ok := strings.Cut(x.GetHandler().GetModule(), "@"); ok {
				take("Alias", x.GetHandler().GetModule())
				take("Grant", module)
			}
		case *apiv1.AlertRule:
			for _, name := range slices.Concat(x.GetChannels(), x.GetEscalate().GetChannels()) {
				take("AlertChannel", name)
			}
			for _, name := range x.GetMute() {
				take("Calendar", name)
			}
		}
	}
	for _, name := range jobs {
		if byName[Object{"Job", name}] == nil {
			return nil, fmt.Errorf("there is no job %q", name)
		}
		take("Job", name)
	}
	for _, d := range source {
		if rule, ok := d.Spec.(*apiv1.AlertRule); ok && slices.ContainsFunc(rule.GetSelect().GetJobs(), func(name string) bool { return chosen[Object{"Job", name}] }) {
			take("AlertRule", d.Name)
		}
	}
	return slices.DeleteFunc(slices.Clone(source), func(d *document.Document) bool { return !chosen[objectOf(d)] }), nil
}

// Versions returns the versions of modules that definitions name, sorted, as name@version. An alias
// among them counts with its targets; other aliases are among aliases, which the target must
// have.
func Versions(definitions []*document.Document) (versions []string) {
	aliases := map[string]bool{}
	for _, d := range definitions {
		if alias, ok := d.Spec.(*apiv1.Alias); ok {
			aliases[d.Name] = true
			versions = append(versions, alias.GetModule()+"@"+alias.GetVersion())
			if canary := alias.GetCanary().GetVersion(); canary != "" {
				versions = append(versions, alias.GetModule()+"@"+canary)
			}
		}
	}
	for _, d := range definitions {
		if job, ok := d.Spec.(*apiv1.Job); ok && job.GetHandler().GetModule() != "" && !aliases[job.GetHandler().GetModule()] {
			versions = append(versions, job.GetHandler().GetModule())
		}
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}

// Secrets returns the names of the secrets that definitions name, sorted.
func Secrets(definitions []*document.Document) (names []string) {
	for _, d := range definitions {
		addSecrets(d.Spec.ProtoReflect(), &names)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// addSecrets adds the secrets that a message names: in a field secret with one name, or secrets with several.
func addSecrets(m protoreflect.Message, names *[]string) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		text := field.Kind() == protoreflect.StringKind
		switch {
		case field.IsMap():
		case text && field.Name() == "secret" && !field.IsList():
			*names = append(*names, v.String())
		case text && field.Name() == "secrets" && field.IsList():
			for i := range v.List().Len() {
				*names = append(*names, v.List().Get(i).String())
			}
		case field.Kind() != protoreflect.MessageKind:
		case field.IsList():
			for i := range v.List().Len() {
				addSecrets(v.List().Get(i).Message(), names)
			}
		default:
			addSecrets(v.Message(), names)
		}
		return true
	})
}

// Capabilities returns what a version imports and requests and none of the others does, sorted.
func Capabilities(m *apiv1.Module, others []*apiv1.Module) (all []string) {
	known := map[string]bool{}
	for _, other := range others {
		for _, x := range capabilitiesOf(other) {
			known[x] = true
		}
	}
	return slices.DeleteFunc(capabilitiesOf(m), func(x string) bool { return known[x] })
}

func capabilitiesOf(m *apiv1.Module) []string {
	all := slices.Clone(m.GetImports())
	g := m.GetRequests()
	for _, x := range g.GetHttp() {
		all = append(all, "http "+x.GetHost())
	}
	for _, x := range g.GetKv() {
		access := "read"
		if x.GetWrite() {
			access = "write"
		}
		all = append(all, "kv "+x.GetName()+" "+access)
	}
	for _, x := range g.GetSecrets() {
		all = append(all, "secret "+x)
	}
	for _, x := range g.GetEnqueue() {
		all = append(all, "enqueue "+x)
	}
	for _, x := range g.GetFiles() {
		all = append(all, "files "+x.GetMount())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
