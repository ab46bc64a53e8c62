package house

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestPermissions checks that every method declares the permission that its caller must
// hold, its route and the field of its app. The server refuses all calls of a method
// without a permission or a route, so the method would never work.
func TestPermissions(t *testing.T) {
	methods := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for k := range service.Methods().Len() {
				method := service.Methods().Get(k)
				methods++
				if proto.GetExtension(method.Options(), apiv1.E_Permission) == "" {
					t.Errorf("%s has no permission: add `option (permission) = \"…\";` in %s", method.FullName(), f.Path())
				}
				if proto.GetExtension(method.Options(), apiv1.E_Route) == apiv1.Route_ROUTE_UNSPECIFIED {
					t.Errorf("%s has no route: add `option (route) = …;` in %s, see api/v1/options.proto", method.FullName(), f.Path())
				}
				if proto.GetExtension(method.Options(), apiv1.E_AppField) == "" {
					t.Errorf("%s has no app_field: add `option (app_field) = \"…\";` in %s, see api/v1/options.proto", method.FullName(), f.Path())
				}
			}
		}
		return true
	})
	if methods == 0 {
		t.Error("wheelwork.v1 has no methods")
	}
}
