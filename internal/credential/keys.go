package credential

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
)

// SecretKeys reads the keys that seal the secrets of apps from a file. If made is set, it makes
// a missing file with one key. A file that the operator has named must exist: a new key could not
// open the secrets that were sealed before.
func SecretKeys(path string, made bool) (keyring.Keys, error) {
	text, err := readKeyFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && made:
		text, _ = keyring.New()
		if err := datadir.WriteFile(path, []byte(text), 0o600); err != nil {
			return keyring.Keys{}, fmt.Errorf("write the key of the secrets: %w", err)
		}
	case errors.Is(err, fs.ErrNotExist):
		return keyring.Keys{}, fmt.Errorf("read the key of the secrets: there is no file %s: copy it from another server of the cluster, or make one for a new cluster with `wheelwork secret key add %[1]s`", path)
	case err != nil:
		return keyring.Keys{}, fmt.Errorf("read the key of the secrets: %w", err)
	}
	keys, err := keyring.Parse(text)
	if err != nil {
		return keys, fmt.Errorf("%s does not hold the keys of the secrets: %w; bring back the file that it was, or remove it and make a new one with `wheelwork secret key add %[1]s`, with which secrets have to be set again", path, err)
	}
	return keys, nil
}

func readKeyFile(path string) (string, error) {
	f, err := OpenPrivate(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, keyring.MaxFile+1))
	if err == nil && len(b) > keyring.MaxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, keyring.MaxFile)
	}
	return string(b), err
}

// AddSecretKey adds a new key to a key file, or makes the file.
func AddSecretKey(path string) (id string, err error) {
	text, err := readKeyFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text, id = keyring.New()
	case err != nil:
		return "", fmt.Errorf("add a key: %w", err)
	default:
		if text, id, err = keyring.Add(text); err != nil {
			return "", fmt.Errorf("add a key to %s: %w", path, err)
		}
	}
	return id, replaceKeyFile(path, text)
}

// RemoveSecretKey removes a key from a key file.
func RemoveSecretKey(path, id string) error {
	text, err := readKeyFile(path)
	if err != nil {
		return fmt.Errorf("remove a key: %w", err)
	}
	if text, err = keyring.Remove(text, id); err != nil {
		return fmt.Errorf("remove a key from %s: %w", path, err)
	}
	return replaceKeyFile(path, text)
}

// replaceKeyFile replaces a key file as a whole. A file that exists keeps its mode and its owner,
// which let the server read it.
func replaceKeyFile(path, text string) error {
	before, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := datadir.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("make the key file: %w", err)
		}
		return datadir.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	made := path + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(datadir.WriteFile(made, []byte(text), before.Mode().Perm()), keepOwner(made, before)); err != nil {
		return errors.Join(fmt.Errorf("replace %s, which stays as it was: %w", path, err), os.Remove(made))
	}
	if err := os.Rename(made, path); err != nil {
		return err
	}
	return datadir.SyncDir(filepath.Dir(path))
}
