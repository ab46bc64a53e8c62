package interpreter

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime/script"
)

var code = []byte("\x00asm\x01\x00\x00\x00 an interpreter")

// sample is an interpreter that consists of these bytes only.
func sample() script.Interpreter {
	sum := sha256.Sum256(code)
	return script.Interpreter{
		Language: "javascript", Version: "1.2.3", Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(code)),
		Package: "@scope/name", File: "dist/x.wasm",
	}
}

// pkg packs files as npm does.
func pkg(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// registry serves one package with npm's protocol.
func registry(t *testing.T, document string, tarball []byte) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/npm/", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/npm/@scope%2Fname":
			fmt.Fprint(w, document)
		case "/npm/name.tgz":
			w.Write(tarball) //nolint:errcheck // the client sees it
		default:
			http.NotFound(w, r)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

const document = `{"versions":{"1.2.3":{"dist":{"tarball":"/npm/name.tgz"}},"1.2.4":{}}}`

func TestFetch(t *testing.T) {
	server := registry(t, document, pkg(t, "package/README.md", "hello", "package/dist/x.wasm", string(code)))
	var last int64
	f := Fetcher{Registry: server.URL + "/npm", Progress: func(n, _ int64) { last = n }}
	got, err := f.Fetch(t.Context(), sample())
	if err != nil || !bytes.Equal(got, code) {
		t.Errorf("Fetch = %q, %v", got, err)
	}
	if last == 0 {
		t.Error("nobody was told how much came")
	}
}

func TestFetchRefuses(t *testing.T) {
	good := pkg(t, "package/dist/x.wasm", string(code))
	for _, tt := range []struct {
		name, document string
		tarball        []byte
		want           string
	}{
		{"other bytes", document, pkg(t, "package/dist/x.wasm", "other"), "has the digest"},
		{"more bytes", document, pkg(t, "package/dist/x.wasm", string(code)+"x"), "has the digest"},
		{"no such file", document, pkg(t, "package/x.wasm", string(code)), "has no file"},
		{"a damaged package", document, good[:len(good)/2], "damaged"},
		{"no package", document, []byte("<html>"), "not a gzipped tar"},
		{"no such version", `{"versions":{}}`, good, "no version 1.2.3"},
		{"no JSON", `<html>`, good, "not the JSON expected"},
		{"a file of this machine", `{"versions":{"1.2.3":{"dist":{"tarball":"file:///etc/passwd"}}}}`, good, "which cannot be fetched"},
		{"a broken link", `{"versions":{"1.2.3":{"dist":{"tarball":"/npm/other.tgz"}}}}`, good, "404"},
	} {
		server := registry(t, tt.document, tt.tarball)
		f := Fetcher{Registry: server.URL + "/npm/"}
		if got, err := f.Fetch(t.Context(), sample()); err == nil || !strings.Contains(err.Error(), tt.want) || got != nil && !bytes.Equal(got, code) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "registry.example", "ftp://registry.example", "file:///tmp"} {
		f := Fetcher{Registry: bad}
		if _, err := f.Fetch(t.Context(), sample()); err == nil || !strings.Contains(err.Error(), "not the URL of a registry") {
			t.Errorf("registry %q: %v", bad, err)
		}
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	if _, err := Load(dir, sample()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "fetch-interpreter javascript") {
		t.Errorf("Load of nothing: %v", err)
	}
	if _, err := Save(dir, sample(), []byte("other")); err == nil {
		t.Error("Save took other bytes")
	}
	path, err := Save(dir, sample(), code)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir, sample())
	if err != nil || !bytes.Equal(got, code) {
		t.Errorf("Load = %q, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".fetching-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(path, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, sample()); err == nil || errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("Load of a changed file: %v", err)
	}
}

func TestDir(t *testing.T) {
	t.Setenv(DirVariable, "/somewhere")
	if dir, err := Dir(); err != nil || dir != "/somewhere" {
		t.Errorf("Dir = %s, %v", dir, err)
	}
}

func FuzzExtract(f *testing.F) {
	var t testing.T
	f.Add(pkg(&t, "package/dist/x.wasm", string(code)))
	f.Add(pkg(&t, "package/README.md", "x"))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Extract(bytes.NewReader(data), sample())
		if err == nil && !bytes.Equal(got, code) {
			t.Fatalf("other bytes passed: %q", got)
		}
	})
}
