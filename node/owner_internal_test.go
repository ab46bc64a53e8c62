package node

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// fill sets every string of a message to x, and of the messages in it.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != nil, f.IsMap():
		case f.IsList():
			if f.Kind() == protoreflect.MessageKind && depth > 0 {
				fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
			}
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("x"))
		case f.Kind() == protoreflect.MessageKind && depth > 0:
			fill(m.Mutable(f).Message(), depth-1)
		}
	}
}

// TestEveryRequestNamesItsApp: a request in which the server finds no app would be
// answered by the wrong server.
func TestEveryRequestNamesItsApp(t *testing.T) {
	none := map[protoreflect.Name]bool{ // these concern a server, or all servers
		"ListApps": true, "ListHosts": true, "GetVersion": true, "ListServers": true,
		"Join": true, "Watch": true, "Work": true, "FetchModule": true, "Backup": true, "FetchState": true,
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			switch s.Name() {
			case "Queues", "Guest", "Membership", "Backups": // about the files of one server; a host's request for a run of this server; ownership; all state
				continue
			}
			for k := range s.Methods().Len() {
				m := s.Methods().Get(k)
				kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
				if err != nil {
					t.Fatal(err)
				}
				request := kind.New()
				fill(request, 3)
				apps := appsOf(request.Interface())
				if want := !none[m.Name()]; want != slices.Equal(apps, []string{"x"}) || !want && len(apps) > 0 {
					t.Errorf("%s: its apps are %v", m.FullName(), apps)
				}
			}
		}
		return true
	})
}
