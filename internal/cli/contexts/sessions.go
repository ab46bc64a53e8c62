package contexts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

// SessionFile returns the path of the file with the token of the session at a server, which `wheelwork
// login` writes and `wheelwork logout` removes.
func SessionFile(getenv func(string) string, url string) (string, error) {
	config, err := Path(getenv)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(url))
	return filepath.Join(filepath.Dir(config), "sessions", hex.EncodeToString(sum[:12])), nil
}

// HasSession reports whether there is a session at a server.
func HasSession(getenv func(string) string, url string) (path string, ok bool) {
	path, err := SessionFile(getenv, url)
	if err != nil {
		return "", false
	}
	_, err = os.Stat(path)
	return path, err == nil
}

// SaveSession stores the token of a session.
func SaveSession(path, token string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("store the session: %w", err)
	}
	if err := datadir.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return fmt.Errorf("store the session: %w", err)
	}
	return nil
}

// RemoveSession removes the token of a session, if there is one.
func RemoveSession(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the session: %w", err)
	}
	return nil
}
