package node

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
)

// secretKey reads the key that seals the secrets of apps. If made is set, it makes a
// missing key. A key whose file the operator has named must exist: a new one could not
// open the secrets that were sealed before.
func secretKey(path string, made bool) ([]byte, error) {
	const size = 32
	text, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) && made {
		key := make([]byte, size)
		rand.Read(key) //nolint:errcheck // it never fails
		if err := writeFile(path, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("write the key of the secrets: %w", err)
		}
		return key, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the key of the secrets: there is no file %s: copy it from another server of the cluster, or make one for a new cluster with `(umask 077; openssl rand -base64 %d > %s)`", path, size, path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of the secrets: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != size {
		return nil, fmt.Errorf("%s does not hold a key of the secrets: bring back the file that it was, or make a new one with `openssl rand -base64 %d`, with which secrets have to be set again", path, size)
	}
	return key, nil
}
