package credential

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

const (
	// minToken is the length of the shortest token that is accepted.
	minToken = 16
	// maxToken bounds how many bytes of a token file are read.
	maxToken = 4 << 10
	// othersMay are the permissions that a credential file must not give: write to its
	// group, read and write to all users.
	othersMay fs.FileMode = 0o026
)

// checkPrivate refuses a credential file that other users may read or write. Its group
// may read it. On Windows it accepts every file: a mode does not show access lists.
func checkPrivate(path string, info fs.FileInfo) error {
	if runtime.GOOS == "windows" || info.Mode().Perm()&othersMay == 0 {
		return nil
	}
	return fmt.Errorf("other users may read or write %s (mode %04o): make it private with `chmod 600 %[1]s`, and replace what is in it if they may have read it", path, info.Mode().Perm())
}

// CheckKeyFile is [checkPrivate] for a private key that another package reads; "" names
// no file.
func CheckKeyFile(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", flag, err)
	}
	return checkPrivate(path, info)
}

// OpenPrivate opens a file for reading, and refuses one that other users may read or write.
func OpenPrivate(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkPrivate(path, info)
	}
	if err != nil {
		f.Close() //nolint:errcheck // nothing was read
		return nil, err
	}
	return f, nil
}

// ReadPrivate returns the text of a credential file.
func ReadPrivate(path string) (string, error) {
	f, err := OpenPrivate(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxToken))
	return strings.TrimSpace(string(b)), err
}

// CheckToken refuses a token so short that it can be guessed.
func CheckToken(where, token string) error {
	if len(token) < minToken {
		return fmt.Errorf("the token in %s has %d characters, at least %d are needed: make a new one with `wheelwork token generate FILE`", where, len(token), minToken)
	}
	return nil
}

// FileToken reads the token from the file that a flag names; "" names none.
func FileToken(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	t, err := ReadPrivate(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", flag, err)
	}
	return t, CheckToken(path, t)
}

// KeepToken returns the token in a file. If there is none, it makes one.
func KeepToken(path, prefix string) (string, error) {
	t, err := ReadPrivate(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if t != "" {
		return t, CheckToken(path, t)
	}
	t = NewToken(prefix)
	if err := datadir.WriteFile(path, []byte(t+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the token: %w", err)
	}
	return t, nil
}

// KeptToken returns the token in a file that [KeepToken] has made.
func KeptToken(path string) (string, error) {
	t, err := ReadPrivate(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read the token: there is no file %s: write one with `wheelwork token generate %[1]s`", path)
	case err != nil:
		return "", fmt.Errorf("read the token: %w", err)
	}
	return t, CheckToken(path, t)
}

// GenerateToken writes a new token to a file that only its owner may read. It does not
// replace a file, because that would lock out the users of the token in it.
func GenerateToken(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the file %s exists: choose another name, or remove it if nothing uses what is in it", path)
	}
	if err != nil {
		return fmt.Errorf("make the token: %w", err)
	}
	_, err = io.WriteString(f, "wt_"+randomText()+"\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("make the token: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// randomText returns 160 random bits as 32 letters and digits.
func randomText() string { return strings.ToLower(rand.Text() + rand.Text())[:32] }

// Processes are the tokens by which the processes of an installation know each other.
type Processes struct {
	hosts   string // in --token-file; "": no host joins
	servers string // in --server-token-file; "": servers use hosts as well, on this machine only
}

// ReadProcesses reads the token files of a process that listens at an address.
func ReadProcesses(tokenFile, serverTokenFile, listen string, log *slog.Logger) (t Processes, err error) {
	if t.hosts, err = FileToken("--token-file", tokenFile); err != nil {
		return t, err
	}
	if t.servers, err = FileToken("--server-token-file", serverTokenFile); err != nil {
		return t, err
	}
	switch {
	case t.servers != "" && t.servers == t.hosts:
		return t, errors.New("--token-file and --server-token-file hold the same token, with which each host could act as a server: make one of them with `wheelwork token generate FILE`")
	case t.servers != "" || t.hosts == "":
		return t, nil
	case transport.CheckLoopback(listen) != nil:
		return t, fmt.Errorf("--server-token-file is missing, and --listen %s is not a loopback address: with --token-file alone each host could act as a server; make a token for the nameserver and the servers with `wheelwork token generate FILE`", listen)
	}
	log.Warn("there is no --server-token-file: each host could act as a server with the token in --token-file, which is accepted on this machine only; make a token for nameserver and servers with `wheelwork token generate FILE`", "token_file", filepath.Clean(tokenFile))
	return t, nil
}

// Own is the token with which a server joins a nameserver.
func (t Processes) Own() string { return cmp.Or(t.servers, t.hosts) }

// Tokens returns the tokens with their roles.
func (t Processes) Tokens() []access.Token {
	if t.servers == "" {
		return []access.Token{{Text: t.hosts, Role: access.Member}}
	}
	return []access.Token{{Text: t.hosts, Role: access.Host}, {Text: t.servers, Role: access.Server}}
}

// NewToken returns a new token that begins with prefix.
func NewToken(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
