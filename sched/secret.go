package sched

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// The layout of a sealed secret, with sizes in bytes; see docs/formats/secrets.md:
//
//	| format version (1) | id of the key (8) | nonce (12) | AES-256-GCM of the value |
//
// The app and the name are authenticated with it, so that a sealed secret cannot be
// opened under another name.
const (
	sealForm  = 1
	keyBytes  = 32
	keyID     = 8
	nonceSize = 12
)

var (
	errNoKey    = errors.New("this server has no key for secrets")
	errOtherKey = errors.New("it was sealed with another key than the one in the server's data directory: bring that key back, or set the secret again")
)

// sealer seals and opens secrets. The zero value has no key and returns errNoKey.
type sealer struct {
	aead cipher.AEAD
	id   [keyID]byte
}

func newSealer(key []byte) (sealer, error) {
	if len(key) == 0 {
		return sealer{}, nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, err
	}
	s := sealer{}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		return sealer{}, err
	}
	sum := sha256.Sum256(append([]byte("wheelwork secret key\x00"), key...))
	copy(s.id[:], sum[:])
	return s, nil
}

// place returns the additional data that binds a sealed secret to its app and its name.
// It is unambiguous, because names contain no zero byte.
func place(app, name string) []byte { return []byte("wheelwork secret\x00" + app + "\x00" + name) }

func (s sealer) seal(app, name string, value []byte) ([]byte, error) {
	if s.aead == nil {
		return nil, errNoKey
	}
	sealed := make([]byte, 0, 1+keyID+nonceSize+len(value)+s.aead.Overhead())
	sealed = append(append(sealed, sealForm), s.id[:]...)
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) //nolint:errcheck // it never fails
	sealed = append(sealed, nonce[:]...)
	return s.aead.Seal(sealed, nonce[:], value, place(app, name)), nil
}

func (s sealer) open(app, name string, sealed []byte) ([]byte, error) {
	const head = 1 + keyID + nonceSize
	switch {
	case s.aead == nil:
		return nil, errNoKey
	case len(sealed) < head || sealed[0] != sealForm:
		return nil, errors.New("it is in a form that this version does not read")
	case subtle.ConstantTimeCompare(sealed[1:1+keyID], s.id[:]) != 1:
		return nil, errOtherKey
	}
	value, err := s.aead.Open(nil, sealed[1+keyID:head], sealed[head:], place(app, name))
	if err != nil {
		return nil, errors.New("it is damaged, or that of another name: set it again")
	}
	return value, nil
}

type secretsAPI struct {
	apiv1.UnimplementedSecretsServer
	s *Server
}

func secretMessage(app string, row *apiv1.SecretRow) *apiv1.Secret {
	return &apiv1.Secret{
		App: app, Name: row.Name, Version: row.Version,
		CreatedAt: timestamppb.New(time.UnixMilli(row.CreatedMs)), UpdatedAt: timestamppb.New(time.UnixMilli(row.UpdatedMs)),
	}
}

// SetSecret seals the value before it passes it to the loop.
func (a *secretsAPI) SetSecret(ctx context.Context, req *apiv1.SetSecretRequest) (*apiv1.Secret, error) {
	app := appOf(req.App)
	if err := errors.Join(naming.Check("app", app), naming.Check("name", req.Name)); err != nil {
		return nil, invalid(err)
	}
	value, err := oneValue("value", req.Value, req.ValueBytes)
	if err != nil {
		return nil, err
	}
	if len(value) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the value is empty: `wheelwork secret delete` removes a secret")
	}
	sealed, err := a.s.secrets.seal(app, req.Name, value)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.Secret, error)) {
		row, err := l.setSecret(app, req.Name, sealed)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(secretMessage(app, row), err) })
	})
}

func (l *loop) setSecret(app, name string, sealed []byte) (*apiv1.SecretRow, error) {
	s := l.app(app).slots[job.ModuleSlot]
	old := s.Secret(name)
	if old == nil && s.Secrets(func(*apiv1.SecretRow) {}) >= job.MaxSecrets {
		return nil, status.Errorf(codes.ResourceExhausted, "app %s has %d secrets, which is the limit", app, job.MaxSecrets)
	}
	if err := l.refuse(); err != nil {
		return nil, err
	}
	row := &apiv1.SecretRow{Name: name, Version: old.GetVersion() + 1, CreatedMs: old.GetCreatedMs(), UpdatedMs: l.nowMs, Sealed: sealed}
	if old == nil {
		row.CreatedMs = l.nowMs
	}
	l.record(s, &apiv1.Record{Kind: &apiv1.Record_SecretPut{SecretPut: &apiv1.SecretPut{Secret: row}}})
	return row, nil
}

// secret returns the row of a secret, with the sealed value; nil: there is none.
func (l *loop) secret(app, name string) *apiv1.SecretRow {
	if a := l.apps[app]; a != nil {
		return a.slots[job.ModuleSlot].Secret(name)
	}
	return nil
}

func noSecret(app, name string) error {
	return status.Errorf(codes.NotFound, "there is no secret %q in app %q: `wheelwork secret list` shows what there is", name, app)
}

func (a *secretsAPI) ListSecrets(ctx context.Context, req *apiv1.ListSecretsRequest) (*apiv1.ListSecretsResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListSecretsResponse, error) {
		resp := &apiv1.ListSecretsResponse{}
		if a := l.apps[appOf(req.App)]; a != nil {
			a.slots[job.ModuleSlot].Secrets(func(row *apiv1.SecretRow) { resp.Secrets = append(resp.Secrets, secretMessage(a.name, row)) })
		}
		slices.SortFunc(resp.Secrets, func(a, b *apiv1.Secret) int { return strings.Compare(a.Name, b.Name) })
		return resp, nil
	})
}

func (a *secretsAPI) DeleteSecret(ctx context.Context, req *apiv1.DeleteSecretRequest) (*apiv1.DeleteSecretResponse, error) {
	app := appOf(req.App)
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.DeleteSecretResponse, error)) {
		if l.secret(app, req.Name) == nil {
			answer(nil, noSecret(app, req.Name))
			return
		}
		if err := l.refuseChange(); err != nil {
			answer(nil, err)
			return
		}
		l.record(l.apps[app].slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_SecretDelete{SecretDelete: &apiv1.SecretDelete{Name: req.Name}}})
		l.onDurable(func(err error) { answer(&apiv1.DeleteSecretResponse{}, err) })
	})
}

// openSecret returns the value of a secret for a handler. The caller has checked that the
// handler may use it.
func (s *Server) openSecret(app string, row *apiv1.SecretRow) ([]byte, error) {
	value, err := s.secrets.open(app, row.Name, row.Sealed)
	if err != nil {
		s.cfg.Logger.Error("a secret cannot be opened", "app", app, "secret", row.Name, "error", err)
		return nil, status.Error(codes.DataLoss, fmt.Sprintf("secret %s: %v", row.Name, err))
	}
	return value, nil
}

// CheckSecrets returns an error if the server's key does not open one of its secrets. It
// is called before Run, and not concurrently with it.
func (s *Server) CheckSecrets() error {
	var other int
	var first string
	for _, a := range s.loop.apps {
		a.slots[job.ModuleSlot].Secrets(func(row *apiv1.SecretRow) {
			if _, err := s.secrets.open(a.name, row.Name, row.Sealed); err == nil {
				return
			}
			if name := fmt.Sprintf("%s of app %s", row.Name, a.name); other == 0 || name < first {
				first = name
			}
			other++
		})
	}
	if other == 0 {
		return nil
	}
	return fmt.Errorf("the server's key does not open %d of the secrets that are kept, among them %s: they were sealed with another key", other, first)
}
