package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type secretsAPI struct {
	apiv1.UnimplementedSecretsServer
	s *Services
}

func secretMessage(app string, row *apiv1.SecretRow) *apiv1.Secret {
	return &apiv1.Secret{
		App: app, Name: row.Name, Version: row.Version,
		CreatedAt: timestamppb.New(time.UnixMilli(row.CreatedMs)), UpdatedAt: timestamppb.New(time.UnixMilli(row.UpdatedMs)),
	}
}

// SetSecret seals the value before it passes it to the loop.
func (a *secretsAPI) SetSecret(ctx context.Context, req *apiv1.SetSecretRequest) (*apiv1.Secret, error) {
	app := core.AppOf(req.App)
	if err := errors.Join(naming.Check("app", app), naming.Check("name", req.Name)); err != nil {
		return nil, core.Invalid(err)
	}
	value, err := oneValue("value", req.Value, req.ValueBytes)
	if err != nil {
		return nil, err
	}
	if len(value) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the value is empty: `wheelwork secret delete` removes a secret")
	}
	sealed, err := a.s.cfg.Keys.Seal(app, req.Name, value)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Secret, error) {
		row, err := l.Guests.SetSecret(app, req.Name, sealed)
		if err != nil {
			return nil, err
		}
		return secretMessage(app, row), nil
	})
}

func (a *secretsAPI) ListSecrets(ctx context.Context, req *apiv1.ListSecretsRequest) (*apiv1.ListSecretsResponse, error) {
	app := core.AppOf(req.App)
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListSecretsResponse, error) {
		resp := &apiv1.ListSecretsResponse{}
		for _, row := range l.Guests.Secrets(app) {
			resp.Secrets = append(resp.Secrets, secretMessage(app, row))
		}
		return resp, nil
	})
}

func (a *secretsAPI) DeleteSecret(ctx context.Context, req *apiv1.DeleteSecretRequest) (*apiv1.DeleteSecretResponse, error) {
	app := core.AppOf(req.App)
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.DeleteSecretResponse, error) {
		return &apiv1.DeleteSecretResponse{}, l.Guests.DeleteSecret(app, req.Name)
	})
}

// ResealSecrets opens and seals outside of the loop, and replaces a secret only if it did not
// change meanwhile.
func (a *secretsAPI) ResealSecrets(ctx context.Context, req *apiv1.ResealSecretsRequest) (*apiv1.ResealSecretsResponse, error) {
	app := core.AppOf(req.App)
	if err := naming.Check("app", app); err != nil {
		return nil, core.Invalid(err)
	}
	keys := a.s.cfg.Keys
	newest, lacking := keys.Newest()
	switch {
	case newest == "":
		return nil, status.Error(codes.FailedPrecondition, "this server has no key for secrets")
	case len(lacking) > 0:
		return nil, status.Errorf(codes.FailedPrecondition, "servers do not have the newest key %s: %s; give them the same key file, and reload them", newest, strings.Join(lacking, ", "))
	}
	rows, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) ([]*apiv1.SecretRow, error) { return l.Guests.Secrets(app), nil })
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ResealSecretsResponse{Key: newest, Secrets: int32(len(rows))}
	for _, row := range rows {
		changed := false
		for row != nil && keyring.SealedBy(row.Sealed) != newest {
			value, err := keys.Open(app, row.Name, row.Sealed)
			if err != nil {
				resp.Unreadable = append(resp.Unreadable, row.Name)
				break
			}
			sealed, err := keys.Seal(app, row.Name, value)
			if err != nil {
				return nil, status.Error(codes.FailedPrecondition, err.Error())
			}
			if by := keyring.SealedBy(sealed); by != newest { // the key file was replaced meanwhile
				return nil, status.Errorf(codes.Aborted, "the keys of the server changed from %s to %s: repeat the call", newest, by)
			}
			row, err = core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.SecretRow, error) {
				return l.Guests.ResealSecret(app, row.Name, row.Sealed, sealed)
			})
			if err != nil {
				return nil, err
			}
			changed = true
		}
		if changed {
			resp.Resealed++
		}
	}
	return resp, nil
}

// OpenSecret returns the value of a secret for a handler. The caller has checked that the
// handler may use it.
func (s *Services) OpenSecret(app string, row *apiv1.SecretRow) ([]byte, error) {
	value, err := s.cfg.Keys.Open(app, row.Name, row.Sealed)
	if err != nil {
		s.cfg.Logger.Error("a secret cannot be opened", "app", app, "secret", row.Name, "error", err)
		return nil, status.Error(codes.DataLoss, fmt.Sprintf("secret %s: %v", row.Name, err))
	}
	return value, nil
}

// UnreadableSecrets returns the secrets that the server's key does not open, as NAME of app
// APP. It is called before Run, and not concurrently with it.
func (s *Services) UnreadableSecrets() (names []string) {
	for _, app := range s.loop.AppNames() {
		for _, row := range s.loop.Guests.Secrets(app) {
			if _, err := s.cfg.Keys.Open(app, row.Name, row.Sealed); err != nil {
				names = append(names, fmt.Sprintf("%s of app %s", row.Name, app))
			}
		}
	}
	return names
}

// SealedWith counts the secrets of the partition by the id of the key that sealed them.
func (s *Services) SealedWith(ctx context.Context) (map[string]int, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) (map[string]int, error) {
		n := map[string]int{}
		for _, app := range l.AppNames() {
			for _, row := range l.Guests.Secrets(app) {
				n[keyring.SealedBy(row.Sealed)]++
			}
		}
		return n, nil
	})
}
