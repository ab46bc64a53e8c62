package certificates

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/wait"
)

// Server is the certificate of a server. The server signs it itself as soon as it has the authority; before that, a
// server that has joined has the one that it got then.
type Server struct {
	files
	id    string
	names []string // under which browsers and programs reach the server
	to    *transport.Machine
	log   *slog.Logger
	key   crypto.Signer
	// authority signs; nil before Sign.
	authority *authority.Authority
}

// OpenServer returns the certificate of the server with an id, which to shows. It has none before the first
// call of JoinCluster, LoadStored or Sign.
func OpenServer(d *datadir.Dir, id string, names []string, to *transport.Machine, log *slog.Logger) (*Server, error) {
	s := &Server{files: files{d}, id: id, names: names, to: to, log: log}
	var err error
	if s.key, err = s.keep(); err != nil {
		return nil, fmt.Errorf("the key of this server: %w", err)
	}
	return s, nil
}

// HasJoined reports whether a server of a cluster has reached etcd, and so has the authority.
func (s *Server) HasJoined() bool {
	_, err := os.Stat(s.dir.Join(datadir.SealedAuthorityFile))
	return err == nil
}

// JoinCluster joins a cluster at the address of one of its servers, several with commas, with a join token, which may be
// "@" and the name of a file with it. It repeats that until a server answers, or ctx ends. It returns what the server
// needs to take part. The keys of the secrets are written to keys, unless that file exists.
func (s *Server) JoinCluster(ctx context.Context, name, address, token, keys string) (*apiv1.ServerGrant, error) {
	if _, err := os.Stat(s.dir.Join(datadir.AuthorityKeyFile)); err == nil {
		return nil, fmt.Errorf("the data directory %s has an authority of its own (%s), which is that of another installation: choose another directory with --data", s.dir.Path, datadir.AuthorityKeyFile)
	}
	token, err := readToken(token)
	if err != nil {
		return nil, fmt.Errorf("read --join-token: %w", err)
	}
	j := &joining{s.files, authority.Server, s.id, name, address, s.log}
	m, resp, err := j.join(ctx, token)
	if err != nil {
		return nil, err
	}
	if resp.Server == nil {
		return nil, errors.New("join the installation: the server has answered without what a server of a cluster needs")
	}
	if err := keepSecretKeys(keys, resp.Server.SecretKeys); err != nil {
		return nil, err
	}
	if err := s.save(m, []byte(resp.Certificate)); err != nil {
		return nil, err
	}
	s.to.Trust(m.Root())
	return resp.Server, s.to.Set([]byte(resp.Certificate), s.key)
}

// LoadStored puts the stored certificate in effect, with which a server that has joined reaches etcd. It reports false if
// there is none that is valid.
func (s *Server) LoadStored() (bool, error) {
	m, err := s.load()
	if m == nil || err != nil || !time.Now().Before(m.Leaf().NotAfter) {
		return false, err
	}
	s.to.Trust(m.Root())
	return true, s.to.Set(authority.EncodeCertificate(m.Leaf()), s.key)
}

// Sign puts a certificate in effect that an authority signs now, and stores it for etcd. Run renews it with the same
// authority.
func (s *Server) Sign(a *authority.Authority) error {
	s.authority = a
	s.to.Trust(a.Certificate())
	return s.sign(time.Now())
}

func (s *Server) sign(now time.Time) error {
	cert, err := s.authority.Issue(s.key.Public(), authority.Machine{Kind: authority.Server, ID: s.id}, s.names, now)
	if err == nil {
		err = s.save(s.to, cert)
	}
	if err != nil {
		return fmt.Errorf("sign the certificate of this server: %w", err)
	}
	return s.to.Set(cert, s.key)
}

// Files returns the files with the certificate, its key and the authority. The certificate is replaced as a whole.
func (s *Server) Files() (cert, key, ca string) {
	return s.dir.Join(machineFile), s.dir.Join(machineKeyFile), s.dir.Join(datadir.AuthorityFile)
}

// ErrRevoked means that an operator has revoked a server.
var ErrRevoked = errors.New("this server was revoked (wheelwork server revoke): stop it, or let it join again with a new --data and --join-token")

// Run tells the installation of the certificate with enroll, and renews it, until ctx ends. It returns [ErrRevoked] if
// the server is no longer one of the installation.
func (s *Server) Run(ctx context.Context, enroll func(ctx context.Context, certificate string) error) error {
	for {
		if err := s.enroll(ctx, enroll); err != nil {
			return err
		}
		if !untilRenewal(ctx, s.to) {
			return nil
		}
		if err := s.sign(time.Now()); err != nil {
			s.log.Error("the certificate of this server is not renewed", "error", err)
			wait.For(ctx, time.Minute)
		}
	}
}

// enroll repeats a call of enroll until it succeeds, or ctx ends.
func (s *Server) enroll(ctx context.Context, enroll func(ctx context.Context, certificate string) error) error {
	text := string(authority.EncodeCertificate(s.to.Leaf()))
	for first := true; ; first = false {
		attempt, cancel := context.WithTimeout(ctx, joinTime)
		err := enroll(attempt, text)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case status.Code(err) == codes.PermissionDenied:
			return fmt.Errorf("%w; the answer was: %w", ErrRevoked, withoutCode(err))
		case !first: // the first partition may have no owner yet
			s.log.Warn("the installation has not taken the certificate of this server, which tries again", "error", err)
		}
		if !wait.For(ctx, joinAgain) {
			return nil
		}
	}
}

// keepSecretKeys writes the keys of the secrets that a server got when it joined, unless the file exists.
func keepSecretKeys(file, text string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := datadir.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the keys of the secrets: %w", err)
	}
	return nil
}
