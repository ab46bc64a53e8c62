package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/wheelworkhq/wheelwork/access/authority"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// The files of a machine that has joined, in its data directory.
const (
	machineKeyFile = "machine.key"
	machineFile    = "machine.crt"
)

// files are those in a data directory with the certificate of a machine, its key, and the authority.
type files struct {
	dir *datadir.Dir
}

// load returns the machine that has joined; nil: it has not.
func (f files) load() (*transport.Machine, error) {
	cert, err := os.ReadFile(f.dir.Join(machineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	root, rootErr := os.ReadFile(f.dir.Join(datadir.AuthorityFile))
	key, keyErr := f.key()
	if err := errors.Join(err, rootErr, keyErr); err != nil {
		return nil, fmt.Errorf("read the certificate of this machine: %w", err)
	}
	ca, err := authority.ParseCertificate(root)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.dir.Join(datadir.AuthorityFile), err)
	}
	m := transport.NewMachine(ca)
	if err := m.Set(cert, key); err != nil {
		return nil, fmt.Errorf("read %s: %w; remove the file and join again with --join-token", f.dir.Join(machineFile), err)
	}
	return m, nil
}

// key returns the key of the machine.
func (f files) key() (crypto.Signer, error) {
	text, err := credential.ReadPrivate(f.dir.Join(machineKeyFile))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, fmt.Errorf("%s has no key in PEM form", f.dir.Join(machineKeyFile))
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.dir.Join(machineKeyFile), err)
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s has a key of another kind than ECDSA", f.dir.Join(machineKeyFile))
	}
	return signer, nil
}

// keep returns the key of the machine, and makes it if there is none. It is stored before the machine joins, so
// that a join that is repeated after a crash is the same one.
func (f files) keep() (crypto.Signer, error) {
	key, err := f.key()
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = authority.NewKey(); err != nil {
		return nil, err
	}
	text, err := authority.EncodeKey(key)
	if err == nil {
		err = datadir.WriteFile(f.dir.Join(machineKeyFile), text, 0o600)
	}
	return key, err
}

// save stores the certificate, the authority first.
func (f files) save(m *transport.Machine, cert []byte) error {
	err := datadir.WriteFile(f.dir.Join(datadir.AuthorityFile), authority.EncodeCertificate(m.Root()), 0o644)
	if err == nil {
		err = datadir.WriteFile(f.dir.Join(machineFile), cert, 0o644)
	}
	if err != nil {
		return fmt.Errorf("store the certificate of this machine: %w", err)
	}
	return nil
}
