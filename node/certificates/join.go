package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/wait"
)

// The files of a machine that has joined, in its data directory.
const (
	machineKeyFile = "machine.key"
	machineFile    = "machine.crt"
)

// HasJoined reports whether a data directory is that of a host that has joined with a join token.
func HasJoined(data string) bool {
	_, err := os.Stat(filepath.Join(data, machineFile))
	return err == nil
}

const (
	joinTime   = 20 * time.Second // of one attempt
	joinAgain  = time.Second      // between two attempts
	renewAgain = 10 * time.Second
)

// Host is the certificate of a host and its key, in a data directory.
type Host struct {
	dir     *datadir.Dir
	id      string
	name    string // for people
	address string // of servers, several with commas
	log     *slog.Logger
	machine *transport.Machine // set by open
}

// OpenHost returns the certificate of the host with an id. If the host has not joined, it joins the servers at an
// address with a join token, which may be "@" and the name of a file with it; it repeats that until one answers,
// or ctx ends. name is the host's name for people.
func OpenHost(ctx context.Context, d *datadir.Dir, id, name, address, token string, log *slog.Logger) (*Host, error) {
	token, err := readToken(token)
	if err != nil {
		return nil, fmt.Errorf("read --join-token: %w", err)
	}
	h := &Host{dir: d, id: id, name: name, address: address, log: log}
	h.machine, err = h.open(ctx, token)
	return h, err
}

// readToken returns the join token of a flag.
func readToken(text string) (string, error) {
	file, ok := strings.CutPrefix(text, "@")
	if !ok {
		return text, nil
	}
	text, err := credential.ReadPrivate(file)
	if err == nil && text == "" {
		err = fmt.Errorf("the file %s is empty", file)
	}
	return text, err
}

// Identity returns how the host calls its servers.
func (h *Host) Identity() *transport.Identity { return h.machine.Identity() }

// open returns the machine of a data directory. If it has not joined, it joins with the token.
func (h *Host) open(ctx context.Context, token string) (*transport.Machine, error) {
	m, err := h.load()
	switch {
	case err != nil:
		return nil, err
	case m != nil && time.Now().Before(m.Leaf().NotAfter.Add(authority.Late)):
		if token != "" {
			h.log.Info("this machine has joined before: the join token is not used", "certificate_until", m.Leaf().NotAfter)
		}
		return m, nil
	case token == "" && m != nil:
		return nil, fmt.Errorf("the certificate in %s ended at %s, too long ago to be renewed: join again with --join-token", h.dir.Path, m.Leaf().NotAfter.UTC().Format(time.RFC3339))
	case token == "":
		return nil, fmt.Errorf("this host has no credential: give --join-token (from `wheelwork join-token create`) or --token-file, or the --data with which it has joined, instead of %s", h.dir.Path)
	}
	return h.join(ctx, token)
}

// load returns the machine that has joined; nil: it has not.
func (h *Host) load() (*transport.Machine, error) {
	cert, err := os.ReadFile(h.dir.Join(machineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	root, rootErr := os.ReadFile(h.dir.Join(datadir.AuthorityFile))
	key, keyErr := h.key()
	if err := errors.Join(err, rootErr, keyErr); err != nil {
		return nil, fmt.Errorf("read the certificate of this machine: %w", err)
	}
	ca, err := authority.ParseCertificate(root)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", h.dir.Join(datadir.AuthorityFile), err)
	}
	m := transport.NewMachine(ca)
	if err := m.Set(cert, key); err != nil {
		return nil, fmt.Errorf("read %s: %w; remove the file and join again with --join-token", h.dir.Join(machineFile), err)
	}
	return m, nil
}

// key returns the key of the machine.
func (h *Host) key() (crypto.Signer, error) {
	text, err := credential.ReadPrivate(h.dir.Join(machineKeyFile))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, fmt.Errorf("%s has no key in PEM form", h.dir.Join(machineKeyFile))
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.dir.Join(machineKeyFile), err)
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s has a key of another kind than ECDSA", h.dir.Join(machineKeyFile))
	}
	return signer, nil
}

// keep returns the key of the machine, and makes it if there is none. It is stored before the machine joins, so
// that a join that is repeated after a crash is the same one.
func (h *Host) keep() (crypto.Signer, error) {
	key, err := h.key()
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = authority.NewKey(); err != nil {
		return nil, err
	}
	text, err := authority.EncodeKey(key)
	if err == nil {
		err = datadir.WriteFile(h.dir.Join(machineKeyFile), text, 0o600)
	}
	return key, err
}

// join repeats a join until a server answers it, or ctx ends.
func (h *Host) join(ctx context.Context, token string) (*transport.Machine, error) {
	pin, err := access.ParseJoinToken(token)
	if err != nil {
		return nil, err
	}
	key, err := h.keep()
	if err != nil {
		return nil, fmt.Errorf("the key of this machine: %w", err)
	}
	told := time.Time{}
	for {
		m, cert, err := h.attempt(ctx, token, pin, key)
		if err == nil {
			if err := h.save(m, cert); err != nil {
				return nil, err
			}
			h.log.Info("this machine has joined", "id", h.id, "certificate_until", m.Leaf().NotAfter)
			return m, nil
		}
		if code := status.Code(err); ctx.Err() != nil || code != codes.Unavailable && code != codes.DeadlineExceeded {
			return nil, fmt.Errorf("join the installation: %w", withoutCode(err))
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			h.log.Warn("this machine cannot join yet, and tries again", "address", h.address, "error", err)
		}
		if !wait.For(ctx, joinAgain) {
			return nil, ctx.Err()
		}
	}
}

// withoutCode returns the text of a status as an error.
func withoutCode(err error) error {
	if s, ok := status.FromError(err); ok {
		return errors.New(s.Message())
	}
	return err
}

func (h *Host) attempt(ctx context.Context, token string, pin authority.Pin, key crypto.Signer) (*transport.Machine, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	return transport.Join(ctx, h.address, pin, key, &apiv1.JoinRequest{Token: token, Id: h.id, Name: h.name})
}

// save stores the certificate, the authority first.
func (h *Host) save(m *transport.Machine, cert []byte) error {
	err := datadir.WriteFile(h.dir.Join(datadir.AuthorityFile), authority.EncodeCertificate(m.Root()), 0o644)
	if err == nil {
		err = datadir.WriteFile(h.dir.Join(machineFile), cert, 0o644)
	}
	if err != nil {
		return fmt.Errorf("store the certificate of this machine: %w", err)
	}
	return nil
}

// Run renews the certificate until ctx ends.
func (h *Host) Run(ctx context.Context) error {
	for untilRenewal(ctx, h.machine) {
		if err := h.renew(ctx, h.machine); err != nil {
			if ctx.Err() == nil {
				h.log.Error("the certificate of this machine is not renewed", "until", h.machine.Leaf().NotAfter, "error", withoutCode(err))
			}
			wait.For(ctx, renewAgain)
		}
	}
	return nil
}

func (h *Host) renew(ctx context.Context, m *transport.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	cert, err := m.Renew(ctx, h.address)
	if err != nil {
		return err
	}
	key, err := h.key()
	if err == nil {
		err = m.Set(cert, key)
	}
	if err != nil {
		return err
	}
	return h.save(m, cert)
}
