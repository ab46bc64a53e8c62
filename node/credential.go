package node

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

// checkKeyFile is [checkPrivate] for a private key that another package reads; "" names
// no file.
func checkKeyFile(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", flag, err)
	}
	return checkPrivate(path, info)
}

// readPrivate returns the text of a credential file.
func readPrivate(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := checkPrivate(path, info); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken))
	return strings.TrimSpace(string(b)), err
}

// checkToken refuses a token so short that it can be guessed.
func checkToken(where, token string) error {
	if len(token) < minToken {
		return fmt.Errorf("the token in %s has %d characters, at least %d are needed: make a new one with `wheelwork token generate FILE`", where, len(token), minToken)
	}
	return nil
}

// fileToken reads the token from the file that a flag names; "" names none.
func fileToken(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	t, err := readPrivate(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", flag, err)
	}
	return t, checkToken(path, t)
}

// keptToken returns the token in a file. If there is none, it makes one.
func keptToken(path, prefix string) (string, error) {
	t, err := readPrivate(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if t != "" {
		return t, checkToken(path, t)
	}
	t = newToken(prefix)
	if err := writeFile(path, []byte(t+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the token: %w", err)
	}
	return t, nil
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

// processTokens are the tokens by which the processes of an installation know each other.
type processTokens struct {
	hosts   string // in --token-file; "": no host joins
	servers string // in --server-token-file; "": servers use hosts as well, on this machine only
}

// readProcessTokens reads the token files of a process that listens at an address.
func readProcessTokens(tokenFile, serverTokenFile, listen string, log *slog.Logger) (t processTokens, err error) {
	if t.hosts, err = fileToken("--token-file", tokenFile); err != nil {
		return t, err
	}
	if t.servers, err = fileToken("--server-token-file", serverTokenFile); err != nil {
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

// own is the token with which a server joins a nameserver.
func (t processTokens) own() string { return cmp.Or(t.servers, t.hosts) }

// allow registers the tokens with their roles.
func (t processTokens) allow(g *access.Guard) {
	if t.servers == "" {
		g.Allow(t.hosts, access.Member)
		return
	}
	g.Allow(t.hosts, access.Host)
	g.Allow(t.servers, access.Server)
}
