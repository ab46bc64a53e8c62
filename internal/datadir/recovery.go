package datadir

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// recoveryFile has the digest of a token that makes its caller an administrator for a time.
const recoveryFile = "recovery"

// Recovery is a token of an administrator, which a person with access to the files of a stopped
// server has made.
type Recovery struct {
	Digest [32]byte // SHA-256 of the token
	Until  time.Time
}

// recoveryText is the form of the file.
type recoveryText struct {
	SHA256 string    `json:"sha256"`
	Until  time.Time `json:"until"`
}

// WriteRecovery stores a token, which replaces the one before.
func (d *Dir) WriteRecovery(r Recovery) error {
	text, err := json.Marshal(recoveryText{hex.EncodeToString(r.Digest[:]), r.Until})
	if err != nil {
		return err
	}
	path := d.Join(recoveryFile)
	if err := WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return giveToOwner(path, d.Path)
}

// Recovery returns the stored token; nil: there is none. It removes one that has ended.
func (d *Dir) Recovery(now time.Time) (*Recovery, error) {
	path := d.Join(recoveryFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var t recoveryText
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("the file %s is not what `wheelwork access recover` writes: remove it: %w", path, err)
	}
	r := &Recovery{Until: t.Until}
	if n, err := hex.Decode(r.Digest[:], []byte(t.SHA256)); err != nil || n != len(r.Digest) || len(t.SHA256) != 2*len(r.Digest) {
		return nil, fmt.Errorf("the file %s is not what `wheelwork access recover` writes: remove it", path)
	}
	if now.Before(r.Until) {
		return r, nil
	}
	return nil, os.Remove(path)
}
