package access

import (
	"context"
	"crypto/x509"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// This file knows callers by their certificates, and holds hosts to what theirs say.

// Certified is the auth info of a connection whose client has shown a certificate that the authority of the
// installation has signed, and that was valid at the handshake.
type Certified interface {
	// Certificate returns it; nil: the client has shown none.
	Certificate() *x509.Certificate
}

// certificateOf returns the certificate of the client that makes a call; nil: it has none.
func certificateOf(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if c, ok := p.AuthInfo.(Certified); ok {
		return c.Certificate()
	}
	return nil
}

// keyOf returns what the guard knows of the credential of a call: its token or, without one, its certificate;
// nil: nothing.
func (g *Guard) keyOf(ctx context.Context, authorization []string) *key {
	switch len(authorization) {
	case 1:
		token, ok := strings.CutPrefix(authorization[0], "Bearer ")
		if !ok {
			return nil
		}
		return (*g.known.Load())[Digest(token)]
	case 0:
		if cert := certificateOf(ctx); cert != nil {
			return (*g.known.Load())[authority.KeyDigest(cert)]
		}
	}
	return nil
}

// Shows reports whether a call has a valid credential, whatever permissions it has.
func (g *Guard) Shows(ctx context.Context, authorization []string) bool {
	k := g.keyOf(ctx, authorization)
	return k != nil && k.refusal() == ""
}

// certified returns the principal of a certificate.
func (g *Guard) certified(cert *x509.Certificate) (*Principal, error) {
	k := (*g.known.Load())[authority.KeyDigest(cert)]
	if k == nil {
		if p := g.newServer(cert); p != nil {
			return p, nil
		}
	}
	switch {
	case k == nil && g.waiting.Load():
		return nil, status.Error(codes.Unavailable, "this server has just started, and does not know the machines yet: try again in a moment")
	case k == nil:
		return nil, status.Error(codes.Unauthenticated, "the certificate was refused: it was revoked, or replaced; join again with --join-token")
	}
	if why := k.refusal(); why != "" {
		return nil, status.Errorf(codes.Unauthenticated, "the certificate was refused: %s", why)
	}
	return k.Of, nil
}

// newServer returns the principal of a server that has started, and is not enrolled yet: only servers have the
// authority, which has signed the certificate. nil: the certificate is one of a host, or of a server that is enrolled
// with another key, or revoked.
func (g *Guard) newServer(cert *x509.Certificate) *Principal {
	m, err := authority.Named(cert)
	if err != nil || m.Kind != authority.Server {
		return nil
	}
	if _, known := (*g.servers.Load())[m.ID]; known {
		return nil
	}
	return &Principal{Name: m.ID, Kind: KindServer, Process: Server, Machine: &m, called: m.ID}
}

// claimed is the stream of a host with a certificate. The host gets what the certificate says, and is refused
// if it claims more.
type claimed struct {
	grpc.ServerStream
	p *Principal
}

func (s claimed) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	up, ok := m.(*apiv1.WorkUp)
	if !ok {
		return status.Errorf(codes.Internal, "a host sent a %T", m)
	}
	if up.Hello != nil {
		if err := s.p.greet(up.Hello); err != nil {
			return err
		}
	}
	return s.p.mayExecute(up.GetAbilities().GetAbi())
}

// greet checks the hello of a host, and completes it with what the certificate says.
func (p *Principal) greet(hello *apiv1.Hello) error {
	m := p.Machine
	if hello.Host != m.ID {
		return exceeds(p, "the host is %.100q", hello.Host)
	}
	hello.Name = p.called
	for _, app := range hello.Apps {
		if !p.serves(app) {
			return exceeds(p, "the host serves the app %.100s (--apps)", app)
		}
	}
	if len(hello.Apps) == 0 {
		hello.Apps = slices.Clone(m.Apps)
	}
	for name, value := range hello.Labels {
		if own, ok := m.Labels[name]; !ok || own != value {
			return exceeds(p, "the host has the label %.100s=%.100s (--label)", name, value)
		}
	}
	hello.Labels = maps.Clone(m.Labels)
	abi := hello.Abi
	if len(abi) == 0 {
		abi = []string{modulesOnly}
	}
	return p.mayExecute(abi)
}

// modulesOnly are the executors that run modules, whatever their ABI.
const modulesOnly = "modules"

// mayExecute returns an error if the certificate of a host does not let it have an executor.
func (p *Principal) mayExecute(abi []string) error {
	if len(p.Machine.Executors) == 0 {
		return nil
	}
	for _, x := range abi {
		if !slices.ContainsFunc(p.Machine.Executors, func(allowed string) bool { return covers(allowed, x) }) {
			return exceeds(p, "the host offers %.100s", x)
		}
	}
	return nil
}

// covers reports whether an executor in a certificate allows one of a host: the same, one with the beginning
// before a "*", or with "modules" each that runs modules.
func covers(allowed, x string) bool {
	if prefix, ok := strings.CutSuffix(allowed, "*"); ok {
		return strings.HasPrefix(x, prefix)
	}
	return allowed == x || allowed == modulesOnly && !strings.Contains(x, ":")
}

func exceeds(p *Principal, format string, args ...any) error {
	return status.Errorf(codes.PermissionDenied, format+", which the certificate of %s does not say: change how the host is started, or let it join with another join token", append(args, p.Machine.ID)...)
}
