package access_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// shown is a connection whose client has shown a certificate.
type shown struct {
	credentials.CommonAuthInfo
	cert *x509.Certificate
}

func (shown) AuthType() string                 { return "tls" }
func (s shown) Certificate() *x509.Certificate { return s.cert }

// certified is a guard that knows one machine, with its certificate.
type certified struct {
	guard *access.Guard
	ctx   context.Context
	state *access.State
	key   [32]byte
	join  string
}

func newCertified(t *testing.T, q *apiv1.CreateJoinTokenRequest) *certified {
	t.Helper()
	ca, err := authority.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t)
	f.now = time.Now()
	signer, err := authority.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &certified{guard: access.New(), state: f.state, join: f.token(q).Token}
	if c.key, err = authority.DigestOf(signer.Public()); err != nil {
		t.Fatal(err)
	}
	changes, m, err := f.state.Machines.Join(&apiv1.JoinRequest{Token: c.join, Id: "host-1", Name: "press"}, c.key, "", f.now, authority.DefaultLife)
	if f.apply(changes, err) != nil {
		t.Fatal(err)
	}
	text, err := ca.Issue(signer.Public(), m, nil, f.now)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := authority.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	c.ctx = peer.NewContext(t.Context(), &peer.Peer{AuthInfo: shown{cert: cert}})
	c.publish()
	return c
}

func (c *certified) publish() { c.guard.Issue(c.state.Credentials()) }

// call makes a unary call, and returns its error.
func (c *certified) call(ctx context.Context, method string, req any) error {
	_, err := c.guard.Unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return err
}

// hostStream is a stream of a host that sends messages.
type hostStream struct {
	grpc.ServerStream
	ctx context.Context
	up  []*apiv1.WorkUp
}

func (s *hostStream) Context() context.Context { return s.ctx }

func (s *hostStream) RecvMsg(m any) error {
	if len(s.up) == 0 {
		return io.EOF
	}
	proto.Reset(m.(*apiv1.WorkUp))
	proto.Merge(m.(*apiv1.WorkUp), s.up[0])
	s.up = s.up[1:]
	return nil
}

// work sends the messages of a host, and returns the hello that the server gets.
func (c *certified) work(up ...*apiv1.WorkUp) (hello *apiv1.Hello, err error) {
	s := &hostStream{ctx: c.ctx, up: up}
	err = c.guard.Stream(nil, s, &grpc.StreamServerInfo{FullMethod: apiv1.Worker_Work_FullMethodName}, func(_ any, s grpc.ServerStream) error {
		for {
			var m apiv1.WorkUp
			if err := s.RecvMsg(&m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if m.Hello != nil {
				hello = m.Hello
			}
		}
	})
	return hello, err
}

// TestClaims: a host gets what its certificate says, and is refused if it claims more.
func TestClaims(t *testing.T) {
	c := newCertified(t, &apiv1.CreateJoinTokenRequest{Apps: []string{"billing", "shop"}, Labels: map[string]string{"zone": "a"}, Executors: []string{"modules", "plugin:*", "builtin:http"}})
	hello, err := c.work(&apiv1.WorkUp{Hello: &apiv1.Hello{Host: "host-1", Name: "whatever"}})
	if err != nil || !slices.Equal(hello.Apps, []string{"billing", "shop"}) || !maps.Equal(hello.Labels, map[string]string{"zone": "a"}) || hello.Name != "press" {
		t.Errorf("%v, %v", hello, err)
	}
	hello, err = c.work(&apiv1.WorkUp{Hello: &apiv1.Hello{Host: "host-1", Apps: []string{"shop"}, Labels: map[string]string{"zone": "a"}, Abi: []string{"wasi-p1", "wheelwork_v1.0", "plugin:x", "builtin:http"}}})
	if err != nil || !slices.Equal(hello.Apps, []string{"shop"}) {
		t.Errorf("%v, %v", hello, err)
	}
	for name, x := range map[string]*apiv1.WorkUp{
		"another id":            {Hello: &apiv1.Hello{Host: "host-2"}},
		"no id":                 {Hello: &apiv1.Hello{}},
		"another app":           {Hello: &apiv1.Hello{Host: "host-1", Apps: []string{"shop", "payments"}}},
		"another label":         {Hello: &apiv1.Hello{Host: "host-1", Labels: map[string]string{"gpu": "yes"}}},
		"another value":         {Hello: &apiv1.Hello{Host: "host-1", Labels: map[string]string{"zone": "b"}}},
		"another executor":      {Hello: &apiv1.Hello{Host: "host-1", Abi: []string{"builtin:exec"}}},
		"functions of its own":  {Hello: &apiv1.Hello{Host: "host-1", Abi: []string{"native:x"}}},
		"an executor, later on": {Abilities: &apiv1.Abilities{Abi: []string{"wasi-p1", "builtin:exec"}}},
	} {
		if _, err := c.work(&apiv1.WorkUp{Hello: &apiv1.Hello{Host: "host-1"}}, x); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, x := range map[string]struct {
		method string
		req    any
		ok     bool
	}{
		"a secret of its app":      {apiv1.Guest_GetSecret_FullMethodName, &apiv1.GuestGetSecretRequest{Caller: &apiv1.Caller{App: "shop"}}, true},
		"a secret of another":      {apiv1.Guest_GetSecret_FullMethodName, &apiv1.GuestGetSecretRequest{Caller: &apiv1.Caller{App: "payments"}}, false},
		"a secret of the default":  {apiv1.Guest_GetSecret_FullMethodName, &apiv1.GuestGetSecretRequest{Caller: &apiv1.Caller{}}, false},
		"a module of its app":      {apiv1.Worker_GetModuleProof_FullMethodName, &apiv1.GetModuleProofRequest{App: "shop"}, true},
		"a module of another":      {apiv1.Worker_GetModuleProof_FullMethodName, &apiv1.GetModuleProofRequest{App: "payments"}, false},
		"a job of its app":         {apiv1.Jobs_GetJob_FullMethodName, &apiv1.GetJobRequest{App: "shop", Name: "x"}, true},
		"a job of another":         {apiv1.Jobs_GetJob_FullMethodName, &apiv1.GetJobRequest{App: "payments", Name: "x"}, false},
		"its own server":           {apiv1.Nameserver_Watch_FullMethodName, &apiv1.WatchRequest{HostId: "host-1"}, true},
		"the server of another":    {apiv1.Nameserver_Watch_FullMethodName, &apiv1.WatchRequest{HostId: "host-2"}, false},
		"a trigger":                {apiv1.Jobs_TriggerJob_FullMethodName, &apiv1.TriggerJobRequest{App: "shop"}, false},
		"a server joins":           {apiv1.Nameserver_Join_FullMethodName, &apiv1.ServerReport{}, false},
		"the state of a partition": {apiv1.Backups_FetchState_FullMethodName, &apiv1.FetchStateRequest{}, false},
		"a command is forwarded":   {apiv1.Membership_Forward_FullMethodName, &apiv1.ForwardRequest{}, false},
		"a backup":                 {apiv1.Backups_Backup_FullMethodName, &apiv1.BackupRequest{}, false},
		"another join token":       {apiv1.Machines_CreateJoinToken_FullMethodName, &apiv1.CreateJoinTokenRequest{}, false},
		"the other machines":       {apiv1.Machines_ListCertificates_FullMethodName, &apiv1.ListCertificatesRequest{}, false},
		"it revokes another":       {apiv1.Machines_RevokeCertificate_FullMethodName, &apiv1.RevokeCertificateRequest{}, false},
		"an audit log is anchored": {apiv1.Audit_AnchorAudit_FullMethodName, &apiv1.AnchorAuditRequest{}, false},
	} {
		if err := c.call(c.ctx, x.method, x.req); (err == nil) != x.ok || err != nil && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, want allowed: %v", name, err, x.ok)
		}
	}
	acting := metadata.NewIncomingContext(c.ctx, metadata.Pairs(access.ActingHeader, "admin"))
	if err := c.call(acting, apiv1.Jobs_ListJobs_FullMethodName, &apiv1.ListJobsRequest{App: "shop"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a host acts for an administrator: %v", err)
	}
	wrong := metadata.NewIncomingContext(c.ctx, metadata.Pairs("authorization", "Bearer wrong"))
	if err := c.call(wrong, apiv1.Jobs_ListJobs_FullMethodName, &apiv1.ListJobsRequest{App: "shop"}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a wrong token beside a certificate: %v", err)
	}
}

// TestCertificateEnds: a stream of a machine ends with its certificate, goes on when that is renewed, and ends at
// once when it is revoked.
func TestCertificateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, &apiv1.CreateJoinTokenRequest{})
		begin := time.Now()
		bound := c.guard.Bound(c.ctx, nil)
		time.Sleep(16 * time.Hour)
		renew := func() {
			t.Helper()
			changes, _, err := c.state.Machines.Renew("host-1", c.key, time.Now(), time.Now(), authority.DefaultLife)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range changes {
				c.state.Apply(x)
			}
			c.publish()
		}
		renew()
		time.Sleep(16 * time.Hour)
		if bound.Err() != nil {
			t.Fatalf("the stream ended %v after the host has joined: %v", time.Since(begin), context.Cause(bound))
		}
		if err := c.call(c.ctx, apiv1.Jobs_ListJobs_FullMethodName, &apiv1.ListJobsRequest{}); err != nil {
			t.Error(err)
		}
		<-bound.Done()
		if at := time.Since(begin); at != 40*time.Hour {
			t.Errorf("the stream ended after %v, want 40h", at)
		}
		if err := c.call(c.ctx, apiv1.Jobs_ListJobs_FullMethodName, &apiv1.ListJobsRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("after the end: %v", err)
		}
		renew()
		bound = c.guard.Bound(c.ctx, nil)
		changes, err := c.state.Machines.RevokeCertificate(&apiv1.RevokeCertificateRequest{Id: "host-1"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range changes {
			c.state.Apply(x)
		}
		c.publish()
		synctest.Wait()
		if bound.Err() == nil || c.guard.Shows(c.ctx, nil) {
			t.Error("the stream of a revoked machine goes on")
		}
		if err := c.call(c.ctx, apiv1.Jobs_ListJobs_FullMethodName, &apiv1.ListJobsRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("after the revocation: %v", err)
		}
	})
}
