package certificates

import (
	"context"
	"crypto"
	"errors"
	"fmt"
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

// joining is how a machine joins.
type joining struct {
	files
	kind    string // of the machine, see [authority.Machine]
	id      string
	name    string // for people
	address string // of servers, several with commas
	log     *slog.Logger
}

// Host is the certificate of a host and its key, in a data directory.
type Host struct {
	joining
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
	h := &Host{joining: joining{files{d}, authority.Host, id, name, address, log}}
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
	m, resp, err := h.join(ctx, token)
	if err != nil {
		return nil, err
	}
	return m, h.save(m, []byte(resp.Certificate))
}

// join repeats a join until a server answers it, or ctx ends. It returns the answer, whose certificate the caller
// saves when everything else in the answer is stored: until then the machine joins again with the same token.
func (h *joining) join(ctx context.Context, token string) (*transport.Machine, *apiv1.CertificateResponse, error) {
	pin, err := access.ParseJoinToken(token)
	if err != nil {
		return nil, nil, err
	}
	key, err := h.keep()
	if err != nil {
		return nil, nil, fmt.Errorf("the key of this machine: %w", err)
	}
	told := time.Time{}
	for {
		m, resp, err := h.attempt(ctx, token, pin, key)
		if err == nil {
			h.log.Info("this machine has joined", "id", h.id, "certificate_until", m.Leaf().NotAfter)
			return m, resp, nil
		}
		if code := status.Code(err); ctx.Err() != nil || code != codes.Unavailable && code != codes.DeadlineExceeded {
			return nil, nil, fmt.Errorf("join the installation: %w", withoutCode(err))
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			h.log.Warn("this machine cannot join yet, and tries again", "address", h.address, "error", err)
		}
		if !wait.For(ctx, joinAgain) {
			return nil, nil, ctx.Err()
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

func (h *joining) attempt(ctx context.Context, token string, pin authority.Pin, key crypto.Signer) (*transport.Machine, *apiv1.CertificateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	return transport.Join(ctx, h.address, pin, key, &apiv1.JoinRequest{Token: token, Kind: h.kind, Id: h.id, Name: h.name})
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
