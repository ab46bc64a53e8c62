package certificates

import (
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/wheelworkhq/wheelwork/access/authority"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/wait"
)

// readAuthority returns the authority in a data directory; nil: there is none.
func readAuthority(d *datadir.Dir) (*authority.Authority, error) {
	cert, err := os.ReadFile(d.Join(datadir.AuthorityFile))
	var key string
	if err == nil {
		key, err = credential.ReadPrivate(d.Join(datadir.AuthorityKeyFile))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the authority for certificates of machines: %w", err)
	}
	a, err := authority.Parse(cert, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("read the authority for certificates of machines in %s and %s: %w", d.Join(datadir.AuthorityFile), d.Join(datadir.AuthorityKeyFile), err)
	}
	return a, nil
}

// OpenAuthority returns the authority in a data directory. If there is none, it makes one. An operator may put
// an authority of its own there.
func OpenAuthority(d *datadir.Dir) (*authority.Authority, error) {
	a, err := readAuthority(d)
	if a != nil || err != nil {
		return a, err
	}
	if _, err := os.Stat(d.Join(datadir.AuthorityFile)); err == nil {
		return nil, fmt.Errorf("the authority for certificates of machines has no key: bring %s back from a backup, or remove %s to make another authority, with which each host has to join again", d.Join(datadir.AuthorityKeyFile), d.Join(datadir.AuthorityFile))
	}
	if a, err = authority.New(time.Now()); err != nil {
		return nil, err
	}
	cert, key, err := a.Encode()
	if err == nil {
		err = datadir.WriteFile(d.Join(datadir.AuthorityKeyFile), key, 0o600)
	}
	if err == nil { // the certificate last: an authority is whole once it is there
		err = datadir.WriteFile(d.Join(datadir.AuthorityFile), cert, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("write the authority for certificates of machines: %w", err)
	}
	return a, nil
}

// SharedAuthority returns the authority of a cluster, whose servers all sign with it. The first server gives its
// own, and writes the certificate to the data directory. first stores a text unless the cluster has one, and
// returns the one that it has then. The text is sealed with the key of the secrets, which the servers share.
func SharedAuthority(ctx context.Context, d *datadir.Dir, first func(ctx context.Context, value string) (string, error), secretKey []byte) (*authority.Authority, error) {
	a, err := readAuthority(d)
	if a == nil && err == nil {
		a, err = authority.New(time.Now())
	}
	if err != nil {
		return nil, err
	}
	sealed, err := sealAuthority(a, secretKey)
	if err != nil {
		return nil, err
	}
	if sealed, err = first(ctx, sealed); err != nil {
		return nil, err
	}
	if a, err = unsealAuthority(sealed, secretKey); err != nil {
		return nil, err
	}
	if err := datadir.WriteFile(d.Join(datadir.AuthorityFile), a.PEM(), 0o644); err != nil {
		return nil, fmt.Errorf("write the certificate of the authority: %w", err)
	}
	return a, nil
}

// sealing is the cipher for the authority in etcd, with a key of its own.
func sealing(secretKey []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secretKey, nil, "wheelwork authority of machines", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// storedAuthority is the authority as it is sealed. Its names do not change.
type storedAuthority struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func sealAuthority(a *authority.Authority, secretKey []byte) (string, error) {
	cert, key, err := a.Encode()
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(storedAuthority{string(cert), string(key)})
	if err != nil {
		return "", err
	}
	aead, err := sealing(secretKey)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(aead.Seal(nil, nil, plain, nil)), nil
}

func unsealAuthority(sealed string, secretKey []byte) (*authority.Authority, error) {
	b, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, fmt.Errorf("read the authority of the cluster: %w", err)
	}
	aead, err := sealing(secretKey)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, b, nil)
	if err != nil {
		return nil, errors.New("the authority of the cluster was sealed with another key than the one of this server: give all servers of the cluster the same --secret-key-file")
	}
	var s storedAuthority
	if err := json.Unmarshal(plain, &s); err != nil {
		return nil, fmt.Errorf("read the authority of the cluster: %w", err)
	}
	return authority.Parse([]byte(s.Cert), []byte(s.Key))
}

// Server signs the certificate that a server shows, and renews it. Its key is new at each start, and never
// stored.
type Server struct {
	authority *authority.Authority
	id        string
	names     []string
	to        *transport.Machine
	log       *slog.Logger
	key       crypto.Signer
}

// NewServer gives a machine the certificate of the server with an id. names are those under which browsers and
// programs reach it.
func NewServer(a *authority.Authority, id string, names []string, to *transport.Machine, log *slog.Logger) (*Server, error) {
	key, err := authority.NewKey()
	if err != nil {
		return nil, err
	}
	s := &Server{a, id, names, to, log, key}
	to.Trust(a.Certificate())
	return s, s.sign(time.Now())
}

// sign puts a new certificate in effect.
func (o *Server) sign(now time.Time) error {
	cert, err := o.authority.Issue(o.key.Public(), authority.Machine{Kind: authority.Server, ID: o.id}, o.names, now)
	if err != nil {
		return fmt.Errorf("sign the certificate of this server: %w", err)
	}
	return o.to.Set(cert, o.key)
}

// Run renews the certificate until ctx ends.
func (o *Server) Run(ctx context.Context) error {
	for untilRenewal(ctx, o.to) {
		if err := o.sign(time.Now()); err != nil {
			o.log.Error("the certificate of this server is not renewed", "error", err)
			wait.For(ctx, time.Minute)
		}
	}
	return nil
}

// untilRenewal waits until the certificate of a machine is to be renewed. It reports false when ctx ended first.
// It looks at the clock again and again, because a machine may sleep, and its clock may be set.
func untilRenewal(ctx context.Context, m *transport.Machine) bool {
	for ctx.Err() == nil {
		left := time.Until(transport.RenewAt(m.Leaf()))
		if left <= 0 {
			return true
		}
		wait.For(ctx, min(left, time.Minute))
	}
	return false
}
