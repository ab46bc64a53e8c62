package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/modules"
)

const (
	// Patience is how long a call waits for a partition that is moving from one owner to
	// another.
	Patience = 5 * time.Second
	// repeatEvery is the pause before a call is repeated, if this server learns of no
	// change before: another server may learn of it earlier.
	repeatEvery = Patience / 100
)

// Hosted is a partition as the router meets it on this server.
type Hosted interface {
	// Serving returns what serves the partition; nil: this server does not own it.
	Serving() *Services
	// Code returns the store with the code of its modules.
	Code() *modules.Store
	// CopyOut copies the shared state of an app to the app's other partitions. This is the
	// primary one.
	CopyOut(ctx context.Context, app string) error
}

// Forwarder is the way to the owner of a partition: on this server, or on another one over
// the connections in Peers. All calls that leave this server for an owner use it.
type Forwarder struct {
	View       *cluster.View
	Partitions map[string]Hosted // all of the cluster, by name; it does not change once calls are routed
	Peers      *Peers
}

// Owner is another server that owns a partition.
type Owner struct {
	Address string
	apiv1.MembershipClient
}

// Enter returns the services of a partition, once this server owns it; the caller must call
// Leave on them. If another server owns it, the error is a [Redirect]. If none does, Enter
// waits for Patience at most.
func (f *Forwarder) Enter(ctx context.Context, name, app string) (*Services, error) {
	u := f.Partitions[name]
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		changed := f.View.Change()
		if services := u.Serving(); services != nil && services.Enter() {
			return services, nil
		}
		a := f.View.Assignment(name)
		if a.Server != "" && a.Server != f.View.Self {
			return nil, &Redirect{App: app, To: a}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if app == "" {
				return nil, status.Errorf(codes.Unavailable, "the partition %s has no owner now: try again in a moment", name)
			}
			return nil, status.Errorf(codes.Unavailable, "the partition %s, where the app %s is, has no owner now: try again in a moment", name, app)
		}
	}
}

// Here calls here with the services of a partition, once this server owns it. Otherwise it
// returns the error of [Forwarder.Enter].
func (f *Forwarder) Here(ctx context.Context, partition, app string, here func(*Services) error) error {
	services, err := f.Enter(ctx, partition, app)
	if err != nil {
		return err
	}
	defer services.Leave()
	return here(services)
}

// Call makes a request to the owner of a partition, once: it calls here if this server is
// the owner, and there if another server is. app, if not "", is named in errors.
func (f *Forwarder) Call(ctx context.Context, partition, app string, here func(*Services) error, there func(Owner) error) error {
	services, err := f.Enter(ctx, partition, app)
	if err == nil {
		defer services.Leave()
		return here(services)
	}
	address := AddressIn(err)
	if address == "" {
		return err
	}
	conn, err := f.Peers.Conn(address)
	if err != nil {
		return err
	}
	return there(Owner{address, apiv1.NewMembershipClient(conn)})
}

// Repeat makes a call until again refuses its error, for Patience at most. It waits in
// between until this server learns of a change, or for repeatEvery. The context of the
// call ends with Patience.
func (f *Forwarder) Repeat(ctx context.Context, again func(error) bool, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		changed := f.View.Change()
		err := call(ctx)
		if err == nil || !again(err) || !pause(ctx, changed) {
			return err
		}
	}
}

// pause waits before a call is repeated. It reports false when ctx has ended.
func pause(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-time.After(repeatEvery):
		return true
	case <-ctx.Done():
		return false
	}
}

// Invoke makes one call to the server of an assignment. The context has the outgoing
// metadata.
func (f *Forwarder) Invoke(ctx context.Context, to *apiv1.Assignment, method string, req any) (any, error) {
	reply, err := replyOf(method)
	if err != nil {
		return nil, err
	}
	conn, err := f.Peers.Conn(to.Address)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	answer := reply.New().Interface()
	if err := conn.Invoke(ctx, method, req, answer); err != nil {
		if methods.Of(method).Permission == access.Public { // it needs no key: a refused sign-in is the client's
			return nil, err
		}
		return nil, passedOn(to, err)
	}
	return answer, nil
}

// Stream relays a stream, whose first message was received, to the server of an
// assignment until either end of it has ended. The context has the outgoing metadata.
func (f *Forwarder) Stream(ctx context.Context, to *apiv1.Assignment, info *grpc.StreamServerInfo, first proto.Message, s grpc.ServerStream) error {
	reply, err := replyOf(info.FullMethod)
	if err != nil {
		return err
	}
	conn, err := f.Peers.Conn(to.Address)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	desc := &grpc.StreamDesc{ServerStreams: info.IsServerStream, ClientStreams: info.IsClientStream}
	up, err := conn.NewStream(ctx, desc, info.FullMethod)
	if err != nil {
		return passedOn(to, err)
	}
	// An error of SendMsg says only that the stream has ended; RecvMsg says why.
	if err := up.SendMsg(first); err == nil && info.IsClientStream {
		go sendUp(s, up, first.ProtoReflect().Type(), cancel) // returns when the caller's stream ends, at the latest
	} else if err == nil {
		_ = up.CloseSend()
	}
	for {
		answer := reply.New().Interface()
		switch err := up.RecvMsg(answer); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return passedOn(to, err)
		}
		if err := s.SendMsg(answer); err != nil {
			return err
		}
	}
}

// sendUp relays the caller's messages, and the end of its stream, to the other server.
func sendUp(from grpc.ServerStream, up grpc.ClientStream, request protoreflect.MessageType, cancel func()) {
	for {
		m := request.New().Interface()
		switch err := from.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			_ = up.CloseSend() // RecvMsg returns the reason of a failure
			return
		case err != nil:
			cancel()
			return
		}
		if up.SendMsg(m) != nil {
			return
		}
	}
}

// replyOf returns the response type of "/package.Service/Method".
func replyOf(method string) (protoreflect.MessageType, error) {
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("pass on a call of %s: %w", method, err)
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("pass on a call of %s: it is not a method", method)
	}
	return protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
}
