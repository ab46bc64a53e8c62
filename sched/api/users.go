package api

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// firstPassword returns a password for a first sign-in, with its hash.
func (a *principalsAPI) firstPassword(ctx context.Context) (text, hash string, err error) {
	text = strings.ToLower(rand.Text())
	err = a.s.hashes.do(ctx, func() (err error) {
		hash, err = access.HashPassword(text, rand.Reader)
		return err
	})
	return text, hash, err
}

func (a *principalsAPI) CreateUser(ctx context.Context, req *apiv1.CreateUserRequest) (*apiv1.UserPassword, error) {
	text, hash, err := a.firstPassword(ctx)
	if err != nil {
		return nil, err
	}
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.UserPassword, error) {
		changes, err := st.CreateUser(by, req.Name, hash)
		return changes, &apiv1.UserPassword{Name: req.Name, Password: text}, err
	})
}

func (a *principalsAPI) ResetPassword(ctx context.Context, req *apiv1.ResetPasswordRequest) (*apiv1.UserPassword, error) {
	if err := access.RefuseBuiltIn(req.Name); err != nil {
		return nil, err
	}
	text, hash, err := a.firstPassword(ctx)
	if err != nil {
		return nil, err
	}
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.UserPassword, error) {
		changes, err := st.ResetPassword(by, req.Name, hash)
		return changes, &apiv1.UserPassword{Name: req.Name, Password: text}, err
	})
}

func (a *principalsAPI) DisableUser(ctx context.Context, req *apiv1.DisableUserRequest) (*apiv1.Principal, error) {
	if err := access.RefuseBuiltIn(req.Name); err != nil {
		return nil, err
	}
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.Principal, error) {
		return st.DisableUser(by, req.Name, req.Disabled)
	})
}

// Setup makes the first administrator.
func (a *principalsAPI) Setup(ctx context.Context, req *apiv1.SetupRequest) (*apiv1.SetupResponse, error) {
	missing, err := seen(ctx, a.s, func(st *access.State, _ *access.Principal, now time.Time) bool { return !st.HasAdmin(now) })
	if err != nil || req.Check {
		return &apiv1.SetupResponse{Missing: missing}, err
	}
	if err := access.CheckPassword(req.Name, req.Password); err != nil {
		return nil, core.Invalid(err)
	}
	hash := ""
	if err := a.s.hashes.do(ctx, func() (err error) {
		hash, err = access.HashPassword(req.Password, rand.Reader)
		return err
	}); err != nil {
		return nil, err
	}
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.SetupResponse, error) {
		changes, err := st.Setup(by, req.Name, hash)
		return changes, &apiv1.SetupResponse{}, err
	})
}

// SignIn compares the password outside the loop, because that takes 60 ms.
func (a *principalsAPI) SignIn(ctx context.Context, req *apiv1.SignInRequest) (*apiv1.SignInResponse, error) {
	if req.NewPassword != "" {
		if err := access.CheckPassword(req.Name, req.NewPassword); err != nil {
			return nil, core.Invalid(err)
		}
		if req.NewPassword == req.Password {
			return nil, status.Error(codes.InvalidArgument, "the new password is the old one")
		}
	}
	hash, refused := core.Ask(ctx, a.s.loop, func(l *core.Loop) (string, error) { return l.Access.State.Password(req.Name, time.Now()) })
	x := access.SignIn{Name: req.Name, Hash: hash, Program: req.Program, Address: (&access.Principal{}).AddressOf(ctx)}
	err := a.s.hashes.do(ctx, func() (err error) {
		if x.Fits = access.VerifyPassword(req.Password, hash); refused != nil || !x.Fits {
			if refused != nil {
				access.VerifyPassword(req.Password, access.NoPassword) // it takes as long for a user that does not exist
			}
			return nil
		}
		if req.NewPassword != "" {
			x.NewHash, err = access.HashPassword(req.NewPassword, rand.Reader)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	x.By = access.By{Now: time.Now(), Random: rand.Reader}
	var wrong error // the answer to a wrong password, whose count is recorded
	by := &apiv1.Attribution{Author: req.Name, Kind: access.KindUser, Address: x.Address}
	resp, err := core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.SignInResponse, error) {
		resp := &apiv1.SignInResponse{}
		return resp, l.ChangeAccess(func(st *access.State) ([]access.Change, error) {
			changes, session, token, err := st.SignIn(x)
			switch {
			case err != nil && len(changes) > 0:
				wrong, err = err, nil
				l.Note(by, audit.Row{Code: "session.failed", Object: req.Name, Outcome: audit.Denied})
			case err == nil:
				by.Token = session.Id
				l.Note(by, audit.Row{Code: "session.started", Object: session.Id, Message: req.Program})
				if x.NewHash != "" {
					l.Note(by, audit.Row{Code: "access.password", Object: req.Name})
				}
			}
			resp.Session, resp.Token = session, token
			return changes, err
		})
	})
	if err != nil || wrong != nil {
		return nil, firstOf(err, wrong)
	}
	return resp, nil
}

// Federate starts a session after a server of the installation has verified a sign-in at the
// OpenID provider or by the authenticating proxy.
func (a *principalsAPI) Federate(ctx context.Context, req *apiv1.FederateRequest) (*apiv1.SignInResponse, error) {
	x := access.Federated{
		Issuer: req.Issuer, Subject: req.Subject, Name: req.Name, Groups: req.Groups, Program: req.Program,
		Address: access.Caller(ctx).AddressOf(ctx), By: access.By{Now: time.Now(), Random: rand.Reader},
	}
	return a.openSession(ctx, x.Address, req.Program+", signed in by "+req.Issuer, func(st *access.State) (changes []access.Change, session *apiv1.Session, token string, err error) {
		return st.SignInFederated(x)
	})
}

func (a *principalsAPI) ApproveLogin(ctx context.Context, req *apiv1.ApproveLoginRequest) (*apiv1.ApproveLoginResponse, error) {
	p := access.Caller(ctx)
	by := access.By{Principal: p, Now: time.Now(), Random: rand.Reader}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ApproveLoginResponse, error) {
		return &apiv1.ApproveLoginResponse{}, l.ChangeAccess(func(st *access.State) ([]access.Change, error) {
			changes, err := st.ApproveLogin(by, req.Code)
			if err == nil {
				l.Note(&apiv1.Attribution{Author: p.Author(), Kind: p.Kind, Token: p.Token, Address: p.AddressOf(ctx)}, audit.Row{Code: "session.approved", Object: req.Code})
			}
			return changes, err
		})
	})
}

func (a *principalsAPI) ClaimLogin(ctx context.Context, req *apiv1.ClaimLoginRequest) (*apiv1.SignInResponse, error) {
	by, address := access.By{Now: time.Now(), Random: rand.Reader}, (&access.Principal{}).AddressOf(ctx)
	return a.openSession(ctx, address, req.Program, func(st *access.State) (changes []access.Change, session *apiv1.Session, token string, err error) {
		return st.ClaimLogin(by, req.Secret, address, req.Program)
	})
}

// openSession starts a session, and notes it with the way of the sign-in.
func (a *principalsAPI) openSession(ctx context.Context, address, way string, open func(*access.State) ([]access.Change, *apiv1.Session, string, error)) (*apiv1.SignInResponse, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.SignInResponse, error) {
		resp := &apiv1.SignInResponse{}
		return resp, l.ChangeAccess(func(st *access.State) ([]access.Change, error) {
			changes, session, token, err := open(st)
			if err == nil {
				by := &apiv1.Attribution{Author: session.Principal, Kind: access.KindUser, Token: session.Id, Address: address}
				l.Note(by, audit.Row{Code: "session.started", Object: session.Id, Message: way})
				resp.Session, resp.Token = session, token
			}
			return changes, err
		})
	})
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (a *principalsAPI) ListSessions(ctx context.Context, _ *apiv1.ListSessionsRequest) (*apiv1.ListSessionsResponse, error) {
	return seen(ctx, a.s, func(st *access.State, p *access.Principal, _ time.Time) *apiv1.ListSessionsResponse {
		return &apiv1.ListSessionsResponse{Sessions: st.Sessions(p)}
	})
}

func (a *principalsAPI) EndSession(ctx context.Context, req *apiv1.EndSessionRequest) (*apiv1.EndSessionResponse, error) {
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.EndSessionResponse, error) {
		changes, err := st.EndSession(by, req.Id)
		return changes, &apiv1.EndSessionResponse{}, err
	})
}

func (a *principalsAPI) UseSession(ctx context.Context, req *apiv1.UseSessionRequest) (*apiv1.UseSessionResponse, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.UseSessionResponse, error) {
		return &apiv1.UseSessionResponse{}, l.ChangeAccess(func(st *access.State) ([]access.Change, error) { return st.Used(req.Id, time.Now()), nil })
	})
}
