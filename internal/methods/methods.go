// Package methods has what the definitions of the API's methods say about them: permission, route
// and app, as options in api/v1/options.proto (ADR 41).
package methods

import (
	"iter"
	"maps"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Method is the definition of a method. The zero value is that of an unknown method, which no
// caller may call.
type Method struct {
	Permission string // "": no caller may call it
	Route      apiv1.Route
	Merge      apiv1.Merge
	Apps       Apps
	app        []protoreflect.FieldDescriptor // the path of the request's field that names the app; nil: none does
}

// Apps says how a request names apps.
type Apps int

// The ways to name apps.
const (
	Unknown Apps = iota // the option app_field is missing or wrong
	One                 // one field names it
	None                // the method is about a server or the cluster
	Each                // each command names its own
	Many                // the method is about what the caller may see
)

// of has all methods of the API by "/package.Service/Method".
var of = sync.OnceValue(func() map[string]Method {
	all := map[string]Method{}
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for k := range methods.Len() {
				m := methods.Get(k)
				all["/"+string(m.Parent().FullName())+"/"+string(m.Name())] = read(m)
			}
		}
		return true
	})
	return all
})

// read reads the options of a method. A wrong path of a field leaves Apps unknown.
func read(d protoreflect.MethodDescriptor) (m Method) {
	m.Permission, _ = proto.GetExtension(d.Options(), apiv1.E_Permission).(string)
	m.Route, _ = proto.GetExtension(d.Options(), apiv1.E_Route).(apiv1.Route)
	m.Merge, _ = proto.GetExtension(d.Options(), apiv1.E_Merge).(apiv1.Merge)
	path, _ := proto.GetExtension(d.Options(), apiv1.E_AppField).(string)
	switch path {
	case "":
		return m
	case "-":
		m.Apps = None
		return m
	case "commands":
		m.Apps = Each
		return m
	case "*":
		m.Apps = Many
		return m
	}
	at := d.Input()
	var app []protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		if at == nil {
			return m
		}
		f := at.Fields().ByName(protoreflect.Name(name))
		if f == nil {
			return m
		}
		app, at = append(app, f), f.Message()
	}
	m.Apps, m.app = One, app
	return m
}

// Of returns a method by its name as gRPC has it, "/package.Service/Method".
func Of(name string) Method { return of()[name] }

// All returns all methods of the API by their names.
func All() iter.Seq2[string, Method] { return maps.All(of()) }

// App returns the app that a request names; "": it names none, which means the default one
// if Apps is One.
func (m Method) App(req proto.Message) string {
	if len(m.app) == 0 {
		return ""
	}
	at := req.ProtoReflect()
	for _, f := range m.app[:len(m.app)-1] {
		at = at.Get(f).Message()
	}
	return at.Get(m.app[len(m.app)-1]).String()
}
