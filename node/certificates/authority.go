package certificates

import (
	"context"
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
	"github.com/wheelworkhq/wheelwork/internal/keyring"
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

// Shared is where the servers of a cluster have their authority, sealed with the keys of their secrets.
type Shared struct {
	Keys *keyring.Ring
	// First stores a text unless there is one, and returns the one that is there then.
	First func(ctx context.Context, value string) (string, error)
	// Replace stores another text.
	Replace func(ctx context.Context, value string) error
}

// Authority returns the authority of a cluster, whose servers all sign with it. The first server gives its own. It is
// written to the data directory, sealed. If another is set, an authority that no key opens is replaced.
func (s Shared) Authority(ctx context.Context, d *datadir.Dir, another bool) (*authority.Authority, error) {
	a, err := Local(d, s.Keys)
	if errors.Is(err, errSealed) { // the one in etcd may be sealed with a key that this server has
		a, err = nil, nil
	}
	if a == nil && err == nil {
		a, err = authority.New(time.Now())
	}
	if err != nil {
		return nil, err
	}
	stored, _, err := s.current(ctx, a)
	switch {
	case err == nil:
		a = stored
	case !errors.Is(err, errSealed) || !another:
		return nil, err
	default:
		if err := s.replace(ctx, a); err != nil {
			return nil, err
		}
	}
	return a, keepLocal(d, a, s.Keys)
}

// Local returns the authority in the data directory of a server; nil: there is none.
func Local(d *datadir.Dir, keys *keyring.Ring) (*authority.Authority, error) {
	sealed, err := os.ReadFile(d.Join(datadir.SealedAuthorityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return readAuthority(d)
	}
	if err != nil {
		return nil, fmt.Errorf("read the authority for certificates of machines: %w", err)
	}
	a, _, err := unseal(string(sealed), keys)
	return a, err
}

// First makes the authority of a new cluster, in the data directory of its first server.
func First(d *datadir.Dir, keys *keyring.Ring) (*authority.Authority, error) {
	a, err := authority.New(time.Now())
	if err != nil {
		return nil, err
	}
	return a, keepLocal(d, a, keys)
}

// keepLocal writes an authority to the data directory, unless it is there and sealed with the newest key.
func keepLocal(d *datadir.Dir, a *authority.Authority, keys *keyring.Ring) error {
	file := d.Join(datadir.SealedAuthorityFile)
	if had, err := os.ReadFile(file); err == nil {
		if same, newest, err := unseal(string(had), keys); err == nil && newest && same.Pin() == a.Pin() {
			return nil
		}
	}
	sealed, err := seal(a, keys)
	if err == nil {
		err = datadir.WriteFile(file, []byte(sealed), 0o600)
	}
	if err == nil {
		err = datadir.WriteFile(d.Join(datadir.AuthorityFile), a.PEM(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("keep the authority of the cluster: %w", err)
	}
	return nil
}

// current returns the authority that is stored, or stores a if there is none. newest reports whether it is sealed with
// the newest key, or cannot be yet.
func (s Shared) current(ctx context.Context, a *authority.Authority) (now *authority.Authority, newest bool, err error) {
	sealed, err := seal(a, s.Keys)
	if err == nil {
		sealed, err = s.First(ctx, sealed)
	}
	if err != nil {
		return nil, false, err
	}
	return unseal(sealed, s.Keys)
}

// resealEvery is how often a server looks whether the authority should be sealed with another key.
const resealEvery = time.Minute

// Run seals the authority with the newest key when all servers have that, in etcd and in the data directory, until ctx
// ends. So an older key can be removed from the servers.
func (s Shared) Run(ctx context.Context, d *datadir.Dir, a *authority.Authority, log *slog.Logger) error {
	for wait.For(ctx, resealEvery) {
		if err := errors.Join(s.reseal(ctx, a), keepLocal(d, a, s.Keys)); err != nil && ctx.Err() == nil {
			log.Error("the authority of the cluster is not sealed with the newest key", "error", err)
		}
	}
	return nil
}

func (s Shared) reseal(ctx context.Context, a *authority.Authority) error {
	now, newest, err := s.current(ctx, a)
	if err != nil || newest {
		return err
	}
	return s.replace(ctx, now)
}

func (s Shared) replace(ctx context.Context, a *authority.Authority) error {
	sealed, err := seal(a, s.Keys)
	if err != nil {
		return err
	}
	return s.Replace(ctx, sealed)
}

// errSealed means that the authority of the cluster cannot be opened.
var errSealed = errors.New("the authority of the cluster cannot be opened")

// authorityName binds the sealed authority to its place: no app is called "".
const authorityName = "authority of the cluster"

// storedAuthority is the authority as it is sealed. Its names do not change.
type storedAuthority struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func seal(a *authority.Authority, keys *keyring.Ring) (string, error) {
	cert, key, err := a.Encode()
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(storedAuthority{string(cert), string(key)})
	if err != nil {
		return "", err
	}
	sealed, err := keys.Seal("", authorityName, plain)
	return base64.StdEncoding.EncodeToString(sealed), err
}

// unseal returns the authority, and whether it was sealed with the key that seals now.
func unseal(text string, keys *keyring.Ring) (a *authority.Authority, newest bool, err error) {
	sealed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, false, fmt.Errorf("read the authority of the cluster: %w", err)
	}
	plain, err := keys.Open("", authorityName, sealed)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w; give all servers of the cluster the same --secret-key-file. If the key is lost, start one of them with --new-secret-key: it makes another authority, with which each host has to join again", errSealed, err)
	}
	var s storedAuthority
	if err := json.Unmarshal(plain, &s); err != nil {
		return nil, false, fmt.Errorf("read the authority of the cluster: %w", err)
	}
	id, lacking := keys.Newest()
	a, err = authority.Parse([]byte(s.Cert), []byte(s.Key))
	return a, keyring.SealedBy(sealed) == id || len(lacking) > 0, err
}

// untilRenewal waits until the certificate of a machine must be renewed. It reports false when ctx ended first.
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
