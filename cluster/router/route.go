package router

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// rule is what the definition of a method says about the partition that answers it: see
// api/v1/options.proto (ADR 41).
type rule struct {
	route apiv1.Route
	merge apiv1.Merge
	app   []protoreflect.FieldDescriptor // the path of the request's field that names the app; nil: none does
}

// rules returns the rules of all methods, by "/package.Service/Method". A path that is
// wrong is reported by the test of the options.
var rules = sync.OnceValue(func() map[string]rule {
	all := map[string]rule{}
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for k := range methods.Len() {
				m := methods.Get(k)
				all["/"+string(m.Parent().FullName())+"/"+string(m.Name())] = readRule(m)
			}
		}
		return true
	})
	return all
})

func readRule(m protoreflect.MethodDescriptor) rule {
	r := rule{}
	r.route, _ = proto.GetExtension(m.Options(), apiv1.E_Route).(apiv1.Route)
	r.merge, _ = proto.GetExtension(m.Options(), apiv1.E_Merge).(apiv1.Merge)
	path, _ := proto.GetExtension(m.Options(), apiv1.E_AppField).(string)
	if path == "-" || path == "commands" {
		return r
	}
	at := m.Input()
	for name := range strings.SplitSeq(path, ".") {
		if at == nil {
			return r
		}
		f := at.Fields().ByName(protoreflect.Name(name))
		if f == nil {
			return r
		}
		r.app, at = append(r.app, f), f.Message()
	}
	return r
}

// ruleOf returns the rule of a method. A method without a rule is refused.
func ruleOf(method string) rule { return rules()[method] }

// appOf returns the app that a request names; "": it names none.
func (r rule) appOf(req proto.Message) string {
	if len(r.app) == 0 {
		return ""
	}
	m := req.ProtoReflect()
	for _, f := range r.app[:len(r.app)-1] {
		m = m.Get(f).Message()
	}
	return m.Get(r.app[len(r.app)-1]).String()
}

// slotOf returns the slot that a request is about, according to its routing. An invalid
// name or id is left to the service, which refuses it.
func slotOf(by apiv1.Route, req any) (slot uint8, ok bool) {
	switch by {
	case apiv1.Route_ROUTE_JOB:
		name := ""
		switch q := req.(type) {
		case interface{ GetJob() *apiv1.Job }:
			name = q.GetJob().GetName()
		case interface{ GetName() string }:
			name = q.GetName()
		}
		return job.SlotOf(name), name != ""
	case apiv1.Route_ROUTE_DEFINITION:
		if q, is := req.(interface{ GetKind() string }); is && q.GetKind() == job.KindJob {
			name := req.(interface{ GetName() string }).GetName()
			return job.SlotOf(name), name != ""
		}
	case apiv1.Route_ROUTE_RUN:
		if q, is := req.(interface{ GetId() string }); is {
			id, err := job.ParseRunID(q.GetId())
			return id.Slot(), err == nil
		}
	case apiv1.Route_ROUTE_CALLER:
		if q, is := req.(interface{ GetCaller() *apiv1.Caller }); is {
			run := q.GetCaller().GetRun()
			if len(run) == len(job.RunID{}) {
				return job.RunID(run).Slot(), true
			}
		}
	}
	return 0, false
}

// slotOfCommand returns the slot of a command's job.
func slotOfCommand(c *apiv1.Command) uint8 {
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		return job.SlotOf(k.Apply.GetName())
	case *apiv1.Command_Delete:
		return job.SlotOf(k.Delete.GetName())
	case *apiv1.Command_Trigger:
		return job.SlotOf(k.Trigger.GetName())
	}
	return job.ModuleSlot
}

// pathOf splits the full name of a method into its service and its own name.
func pathOf(method string) (service, name string) {
	service, name, _ = strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service, name
}
