package console

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func (f *fakeAPI) populateMachines(ts func(time.Duration) *timestamppb.Timestamp) {
	f.machines = []*apiv1.Certificate{
		{Id: "host-1", Kind: "host", Name: "press-1", Apps: []string{"billing", "shop"}, Labels: map[string]string{"zone": "a", "gpu": "yes"}, Executors: []string{"modules", "plugin:*"}, JoinedAt: ts(50 * time.Hour), RenewedAt: ts(time.Hour), ExpiresAt: ts(-23 * time.Hour), JoinToken: "join-1", Address: "10.0.3.9"},
		{Id: "host-2", Kind: "host", Name: "press-2" + evil, Labels: map[string]string{"zone": evil}, JoinedAt: ts(90 * time.Hour), RenewedAt: ts(20 * time.Hour), ExpiresAt: ts(-4 * time.Hour), JoinToken: "join-1"},
		{Id: "srv-3", Kind: "server", Name: "north", JoinedAt: ts(90 * time.Hour), RenewedAt: ts(30 * time.Hour), ExpiresAt: ts(6 * time.Hour), JoinToken: "join-0", Address: "10.0.3.1"},
	}
	f.joins = []*apiv1.JoinToken{
		{Id: "join-1", Kind: "host", Apps: []string{"shop"}, Labels: map[string]string{"zone": "b"}, UsesLeft: 1234, ExpiresAt: ts(-30 * time.Minute), CreatedAt: ts(30 * time.Minute), CreatedBy: "ada" + evil},
		{Id: "join-2", Kind: "host", ExpiresAt: ts(-30 * time.Minute), CreatedAt: ts(30 * time.Minute)}, // used up
	}
}

func (f *fakeAPI) ListCertificates(context.Context, *apiv1.ListCertificatesRequest) (*apiv1.ListCertificatesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListCertificatesResponse{Certificates: slices.Clone(f.machines)}, nil
}

func (f *fakeAPI) ListJoinTokens(context.Context, *apiv1.ListJoinTokensRequest) (*apiv1.ListJoinTokensResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListJoinTokensResponse{Tokens: slices.Clone(f.joins)}, nil
}

func (f *fakeAPI) CreateJoinToken(_ context.Context, r *apiv1.CreateJoinTokenRequest) (*apiv1.JoinToken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.plain:
		return nil, status.Error(codes.FailedPrecondition, "this server has no authority for certificates of machines, because it serves without TLS")
	case r.Kind == "server" && len(r.Apps) > 0:
		return nil, status.Error(codes.InvalidArgument, "a server serves all apps")
	}
	t := &apiv1.JoinToken{Id: "join-new", Kind: r.Kind, Apps: r.Apps, Labels: r.Labels, Executors: r.Executors, UsesLeft: r.Uses, ExpiresAt: timestamppb.New(time.Now().Add(time.Hour)), CreatedAt: timestamppb.Now(), CreatedBy: "ada"}
	f.joins = append(slices.Clone(f.joins), t)
	t = proto.CloneOf(t)
	t.Token = onceJoin
	return t, nil
}

func (f *fakeAPI) RevokeJoinToken(_ context.Context, r *apiv1.RevokeJoinTokenRequest) (*apiv1.RevokeJoinTokenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(f.joins), func(t *apiv1.JoinToken) bool { return t.Id == r.Id })
	if len(left) == len(f.joins) {
		return nil, status.Errorf(codes.NotFound, "there is no join token %q", r.Id)
	}
	f.joins = left
	return &apiv1.RevokeJoinTokenResponse{}, nil
}

func (f *fakeAPI) RenameMachine(_ context.Context, r *apiv1.RenameMachineRequest) (*apiv1.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.machines, func(m *apiv1.Certificate) bool { return m.Id == r.Id })
	switch {
	case i < 0:
		return nil, status.Errorf(codes.NotFound, "no machine with a certificate is called %q", r.Id)
	case r.Name == "":
		return nil, status.Error(codes.InvalidArgument, "the name is empty")
	}
	m := proto.CloneOf(f.machines[i])
	m.Name = r.Name
	f.machines = slices.Clone(f.machines)
	f.machines[i] = m
	return m, nil
}

func (f *fakeAPI) RevokeCertificate(_ context.Context, r *apiv1.RevokeCertificateRequest) (*apiv1.RevokeCertificateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.machines = slices.DeleteFunc(slices.Clone(f.machines), func(m *apiv1.Certificate) bool { return m.Id == r.Id && m.Kind == r.Kind })
	return &apiv1.RevokeCertificateResponse{}, nil
}
