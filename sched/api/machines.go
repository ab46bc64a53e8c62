package api

import (
	"context"
	"crypto/sha256"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// machinesAPI signs certificates of machines. The package access decides which.
type machinesAPI struct {
	apiv1.UnimplementedMachinesServer
	s *Services
}

// authority returns what signs certificates.
func (a *machinesAPI) authority() (*authority.Authority, error) {
	if a.s.cfg.Authority == nil {
		return nil, status.Error(codes.FailedPrecondition, "this server has no authority for certificates of machines, because it serves without TLS: start it with --tls on, or beyond this machine")
	}
	return a.s.cfg.Authority, nil
}

func (a *machinesAPI) CreateJoinToken(ctx context.Context, req *apiv1.CreateJoinTokenRequest) (*apiv1.JoinToken, error) {
	ca, err := a.authority()
	if err != nil {
		return nil, err
	}
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.JoinToken, error) {
		if req.Kind == authority.Server && a.s.cfg.Grant == nil {
			return nil, nil, status.Error(codes.FailedPrecondition, "this server is alone, and takes no other: start it with --cluster")
		}
		return st.Machines.CreateJoinToken(by, req, ca.Pin())
	})
}

func (a *machinesAPI) ListJoinTokens(ctx context.Context, _ *apiv1.ListJoinTokensRequest) (*apiv1.ListJoinTokensResponse, error) {
	return seen(ctx, a.s, func(st *access.State, _ *access.Principal, now time.Time) *apiv1.ListJoinTokensResponse {
		return &apiv1.ListJoinTokensResponse{Tokens: st.Machines.JoinTokens(now)}
	})
}

func (a *machinesAPI) RevokeJoinToken(ctx context.Context, req *apiv1.RevokeJoinTokenRequest) (*apiv1.RevokeJoinTokenResponse, error) {
	return changed(ctx, a.s, func(st *access.State, _ access.By) ([]access.Change, *apiv1.RevokeJoinTokenResponse, error) {
		changes, err := st.Machines.RevokeJoinToken(req.Id)
		return changes, &apiv1.RevokeJoinTokenResponse{}, err
	})
}

// certify decides about the certificate of a machine, and signs it when the decision is durable.
func (a *machinesAPI) certify(ctx context.Context, ca *authority.Authority, request []byte, decide func(l *core.Loop, st *access.State, key [sha256.Size]byte, now time.Time) ([]access.Change, authority.Machine, error)) (*apiv1.CertificateResponse, error) {
	public, err := authority.ReadRequest(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	digest, err := authority.DigestOf(public)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	now := time.Now()
	m, err := core.Change(ctx, a.s.loop, func(l *core.Loop) (m authority.Machine, err error) {
		err = l.ChangeAccess(func(st *access.State) (changes []access.Change, err error) {
			changes, m, err = decide(l, st, digest, now)
			return changes, err
		})
		return m, err
	})
	if err != nil {
		return nil, err
	}
	cert, err := ca.Issue(public, m, nil, now)
	return &apiv1.CertificateResponse{Certificate: string(cert), Authority: string(ca.PEM())}, err
}

func (a *machinesAPI) Join(ctx context.Context, req *apiv1.JoinRequest) (*apiv1.CertificateResponse, error) {
	ca, err := a.authority()
	if err != nil {
		return nil, err
	}
	address := (&access.Principal{}).AddressOf(ctx)
	kind := ""
	resp, err := a.certify(ctx, ca, req.Request, func(l *core.Loop, st *access.State, key [sha256.Size]byte, now time.Time) ([]access.Change, authority.Machine, error) {
		changes, m, err := st.Machines.Join(req, key, address, now, ca.Life())
		by := &apiv1.Attribution{Author: m.ID, Kind: m.Kind, Address: address}
		switch {
		case err == nil:
			l.Note(by, audit.Row{Code: "machine.joined", Object: m.ID, Message: joinedWith(changes)})
		case status.Code(err) == codes.Unauthenticated:
			// Any client can cause this line, as often as it likes.
			a.s.cfg.Logger.Debug("a machine was refused", "address", address, "id", req.Id, "error", err)
		}
		kind = m.Kind
		return changes, m, err
	})
	if err == nil && kind == authority.Server && a.s.cfg.Grant != nil {
		resp.Server = a.s.cfg.Grant()
	}
	return resp, err
}

func (a *machinesAPI) EnrollServer(ctx context.Context, req *apiv1.EnrollServerRequest) (*apiv1.EnrollServerResponse, error) {
	ca, err := a.authority()
	if err != nil {
		return nil, err
	}
	cert, err := authority.ParseCertificate([]byte(req.Certificate))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the certificate: %v", err)
	}
	m, err := ca.Machine(cert)
	if err != nil {
		return nil, status.Errorf(codes.PermissionDenied, "the certificate: %v", err)
	}
	now := time.Now()
	if !now.Before(cert.NotAfter) {
		return nil, status.Error(codes.PermissionDenied, "the certificate has ended")
	}
	by := access.Caller(ctx)
	// The change has no caller, like that of another machine: a renewal makes no audit event.
	bare, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return core.Change(bare, a.s.loop, func(l *core.Loop) (*apiv1.EnrollServerResponse, error) {
		return &apiv1.EnrollServerResponse{}, l.ChangeAccess(func(st *access.State) ([]access.Change, error) {
			changes, err := st.Machines.Enroll(by, m, req.Name, authority.KeyDigest(cert), cert.NotAfter, now)
			if err == nil && changes[0].Put.GetMachine().JoinedMs == now.UnixMilli() {
				l.Note(&apiv1.Attribution{Author: m.ID, Kind: m.Kind}, audit.Row{Code: "machine.joined", Object: m.ID})
			}
			return changes, err
		})
	})
}

// joinedWith returns the id of the join token with which a machine has joined.
func joinedWith(changes []access.Change) string {
	for _, c := range changes {
		if m := c.Put.GetMachine(); m != nil {
			return m.JoinToken
		}
	}
	return ""
}

func (a *machinesAPI) RenewCertificate(ctx context.Context, req *apiv1.RenewCertificateRequest) (*apiv1.CertificateResponse, error) {
	ca, err := a.authority()
	if err != nil {
		return nil, err
	}
	former, err := authority.ParseCertificate([]byte(req.Certificate))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the former certificate: %v", err)
	}
	was, err := ca.Machine(former)
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "the former certificate: %v", err)
	}
	return a.certify(ctx, ca, req.Request, func(_ *core.Loop, st *access.State, key [sha256.Size]byte, now time.Time) ([]access.Change, authority.Machine, error) {
		if key != authority.KeyDigest(former) {
			return nil, was, status.Error(codes.Unauthenticated, "the request was signed with another key than that of the former certificate")
		}
		return st.Machines.Renew(was.ID, key, former.NotAfter, now, ca.Life())
	})
}

func (a *machinesAPI) ListCertificates(ctx context.Context, _ *apiv1.ListCertificatesRequest) (*apiv1.ListCertificatesResponse, error) {
	return seen(ctx, a.s, func(st *access.State, _ *access.Principal, _ time.Time) *apiv1.ListCertificatesResponse {
		return &apiv1.ListCertificatesResponse{Certificates: st.Machines.Certificates()}
	})
}

func (a *machinesAPI) RevokeCertificate(ctx context.Context, req *apiv1.RevokeCertificateRequest) (*apiv1.RevokeCertificateResponse, error) {
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.RevokeCertificateResponse, error) {
		changes, err := st.Machines.RevokeCertificate(req, by.Now)
		return changes, &apiv1.RevokeCertificateResponse{}, err
	})
}

func (a *machinesAPI) RenameMachine(ctx context.Context, req *apiv1.RenameMachineRequest) (*apiv1.Certificate, error) {
	return changed(ctx, a.s, func(st *access.State, _ access.By) ([]access.Change, *apiv1.Certificate, error) {
		return st.Machines.RenameMachine(req.Id, req.Name)
	})
}
