package node_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/wheelworkhq/wheelwork/node"
)

// TestReflection calls a method as grpcurl does, knowing nothing but its name: it asks the
// server for the services and their definitions. That needs a token, of any role.
func TestReflection(t *testing.T) {
	p := dev(t, node.DevConfig{Data: t.TempDir(), Sample: true})
	conn, admin := dial(t, p, p.Token)
	_, worker := dial(t, p, p.HostToken)
	_, wrong := dial(t, p, "wwk_wrong-token-of-nobody")
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	for _, version := range []string{"v1", "v1alpha"} {
		for name, ctx := range map[string]context.Context{"no token": t.Context(), "a wrong token": wrong} {
			if _, err := ask(ctx, conn, version, list); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s with %s: %v", version, name, err)
			}
		}
		for name, ctx := range map[string]context.Context{"administrator": admin, "worker": worker} {
			resp, err := ask(ctx, conn, version, list)
			if err != nil {
				t.Fatalf("%s, %s: %v", version, name, err)
			}
			var services []string
			for _, s := range resp.GetListServicesResponse().GetService() {
				services = append(services, s.Name)
			}
			for _, want := range []string{"wheelwork.v1.Jobs", "wheelwork.v1.Runs", "grpc.health.v1.Health"} {
				if !slices.Contains(services, want) {
					t.Errorf("%s, %s: the services are %v, without %s", version, name, services, want)
				}
			}
		}
	}

	files := define(t, admin, conn, "wheelwork.v1.Jobs")
	d, err := files.FindDescriptorByName("wheelwork.v1.Jobs.GetJob")
	if err != nil {
		t.Fatal(err)
	}
	method := d.(protoreflect.MethodDescriptor)
	in, out := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	in.Set(method.Input().Fields().ByName("name"), protoreflect.ValueOfString("greet"))
	if err := conn.Invoke(admin, "/wheelwork.v1.Jobs/GetJob", in, out); err != nil {
		t.Fatal(err)
	}
	if text := out.Get(method.Output().Fields().ByName("description")).String(); !strings.HasPrefix(text, "The sample job") {
		t.Errorf("the job's description is %q", text)
	}
}

// ask sends one question to a version of the reflection service. The messages of both
// versions are equal on the wire.
func ask(ctx context.Context, conn *grpc.ClientConn, version string, q *reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo")
	if err != nil {
		return nil, err
	}
	_ = s.SendMsg(q) // RecvMsg returns the reason
	resp := &reflectionv1.ServerReflectionResponse{}
	return resp, s.RecvMsg(resp)
}

// define returns the files that define a symbol.
func define(t *testing.T, ctx context.Context, conn *grpc.ClientConn, symbol string) *protoregistry.Files {
	t.Helper()
	resp, err := ask(ctx, conn, "v1", &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}})
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, raw := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(raw, file); err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, file)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatalf("the files of %s do not define it: %v (%v)", symbol, err, resp.GetErrorResponse())
	}
	return files
}
