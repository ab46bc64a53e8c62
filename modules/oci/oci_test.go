package oci

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"

	"github.com/wheelworkhq/wheelwork/modules"
)

// testRegistry is a registry in memory with the part of the OCI distribution protocol
// that clients need.
type testRegistry struct {
	mu        sync.Mutex
	blobs     map[string][]byte                             // by digest
	manifests map[string][]byte                             // by repository:tag and repository@digest
	corrupt   bool                                          // serves blobs with one byte changed
	flood     func(w http.ResponseWriter, kind string) bool // answers every GET of a blob or a manifest; nil: off
}

var (
	uploadPath = regexp.MustCompile(`^/v2/(.+)/blobs/uploads/`)
	blobPath   = regexp.MustCompile(`^/v2/(.+)/blobs/(sha256:[0-9a-f]{64})$`)
	namedPath  = regexp.MustCompile(`^/v2/(.+)/manifests/(.+)$`)
)

func (g *testRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	send := func(data []byte, kind string) {
		if r.Method == http.MethodGet && g.flood != nil && g.flood(w, kind) {
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	}
	switch {
	case uploadPath.MatchString(r.URL.Path) && r.Method == http.MethodPost:
		w.Header().Set("Location", r.URL.Path+"1")
		w.WriteHeader(http.StatusAccepted)
	case uploadPath.MatchString(r.URL.Path) && r.Method == http.MethodPut:
		d := r.URL.Query().Get("digest")
		if digest.FromBytes(body).String() != d {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		g.blobs[d] = body
		w.WriteHeader(http.StatusCreated)
	case blobPath.MatchString(r.URL.Path):
		data, ok := g.blobs[blobPath.FindStringSubmatch(r.URL.Path)[2]]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if g.corrupt {
			data = append(bytes.Clone(data[:len(data)-1]), data[len(data)-1]^1)
		}
		send(data, "application/octet-stream")
	case namedPath.MatchString(r.URL.Path):
		m := namedPath.FindStringSubmatch(r.URL.Path)
		if r.Method == http.MethodPut {
			g.manifests[m[1]+"/"+m[2]] = body
			g.manifests[m[1]+"/"+digest.FromBytes(body).String()] = body
			w.WriteHeader(http.StatusCreated)
			return
		}
		data, ok := g.manifests[m[1]+"/"+m[2]]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		send(data, v1.MediaTypeImageManifest)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func startRegistry(t *testing.T) (*testRegistry, string) {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // without credentials of the user
	g := &testRegistry{blobs: map[string][]byte{}, manifests: map[string][]byte{}}
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	return g, strings.TrimPrefix(s.URL, "http://")
}

func artifact(t *testing.T) Artifact {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := Artifact{Code: []byte("\x00asm\x01\x00\x00\x00"), Name: "totals", Version: "7"}
	s, err := modules.Sign(key, modules.Digest(a.Code))
	if err != nil {
		t.Fatal(err)
	}
	a.Signatures = []modules.Signature{s}
	return a
}

func parse(t *testing.T, text string) Place {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRoundTrip moves a module through each kind of place, and from one kind to another.
func TestRoundTrip(t *testing.T) {
	_, host := startRegistry(t)
	dir := t.TempDir()
	a := artifact(t)
	var manifest string
	for _, place := range []string{
		"oci:" + filepath.Join(dir, "layout"), filepath.Join(dir, "layout") + ":v7", filepath.Join(dir, "m.tar"), filepath.Join(dir, "m.tar") + ":v7",
		host + "/team/totals", host + "/team/totals:v7",
	} {
		p := parse(t, place)
		for range 2 { // a second push changes nothing
			got, err := Push(t.Context(), p, a)
			if err != nil {
				t.Fatalf("push to %s: %v", place, err)
			}
			if manifest == "" {
				manifest = got
			}
			if got != manifest {
				t.Errorf("%s: the manifest is %s, elsewhere %s", place, got, manifest)
			}
		}
		back, err := Pull(t.Context(), p)
		if err != nil {
			t.Fatalf("pull from %s: %v", place, err)
		}
		if !bytes.Equal(back.Code, a.Code) || back.Name != "totals" || back.Version != "7" || len(back.Signatures) != 1 || back.Signatures[0].Key != a.Signatures[0].Key {
			t.Errorf("%s: %+v", place, back)
		}
	}
	if _, err := Pull(t.Context(), parse(t, host+"/team/totals@"+manifest)); err != nil {
		t.Errorf("by digest: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestLayout checks the artifact against the CNCF's layout, which other tools read.
func TestLayout(t *testing.T) {
	store := memory.New()
	a := Artifact{Code: []byte("code")}
	manifest, err := pack(t.Context(), store, "latest", a)
	if err != nil {
		t.Fatal(err)
	}
	desc, err := store.Resolve(t.Context(), "latest")
	if err != nil || desc.Digest.String() != manifest {
		t.Fatal(err, desc)
	}
	text, err := content.FetchAll(t.Context(), store, desc)
	if err != nil {
		t.Fatal(err)
	}
	code := digest.FromBytes(a.Code)
	cfg := fmt.Sprintf(`{"created":"1970-01-01T00:00:00Z","architecture":"wasm","os":"wasip1","layerDigests":["%s"]}`, code)
	want := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
		`"config":{"mediaType":"application/vnd.wasm.config.v0+json","digest":"%s","size":%d},`+
		`"layers":[{"mediaType":"application/wasm","digest":"%s","size":4}],"annotations":{"org.opencontainers.image.created":"1970-01-01T00:00:00Z"}}`,
		digest.FromString(cfg), len(cfg), code)
	if string(text) != want {
		t.Errorf("the manifest is\n%s, want\n%s", text, want)
	}
	if code.String() != modules.Digest(a.Code) {
		t.Error("the layer's digest is not the module's")
	}
}

// TestHostileArtifacts pulls artifacts that are malformed or inconsistent and expects an
// error for each.
func TestHostileArtifacts(t *testing.T) {
	code := []byte("code")
	layer := content.NewDescriptorFromBytes(LayerType, code)
	good, err := json.Marshal(writeSignatures(artifact(t).Signatures)) // valid signatures of another module
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(m *v1.Manifest)
		cfg    string
		want   string
	}{
		{"as it should be", func(*v1.Manifest) {}, `{}`, ""},
		{"an older tool's", func(m *v1.Manifest) { m.Layers[0].MediaType = oldLayerType; m.Config.MediaType = "application/x" }, `{}`, ""},
		{"no layer", func(m *v1.Manifest) { m.Layers = nil }, `{}`, "0 layers"},
		{"two modules", func(m *v1.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, `{}`, "2 layers"},
		{"an index", func(m *v1.Manifest) { m.MediaType = v1.MediaTypeImageIndex }, `{}`, "no image manifest"},
		{"a component", func(*v1.Manifest) {}, `{"os":"wasip2"}`, "is a component"},
		{"a component by its world", func(*v1.Manifest) {}, `{"os":"wasip1","component":{"exports":[]}}`, "is a component"},
		{"a config of another module", func(*v1.Manifest) {}, `{"layerDigests":["` + digest.FromString("x").String() + `"]}`, "names other layers"},
		{"a config that is none", func(*v1.Manifest) {}, `[`, "config is not JSON"},
		{"a size that is not true", func(m *v1.Manifest) { m.Layers[0].Size++ }, `{}`, "module: "},
		{"a negative size", func(m *v1.Manifest) { m.Layers[0].Size = -1 }, `{}`, "has -1 bytes according to its manifest"},
		{"an endless module", func(m *v1.Manifest) { m.Layers[0].Size = 1 << 40 }, `{}`, "the limit is 268435456"},
		{"a digest that leads elsewhere", func(m *v1.Manifest) { m.Layers[0].Digest = "sha256:../../../etc/passwd" }, `{}`, "is not a digest"},
		{"a weak digest", func(m *v1.Manifest) { m.Layers[0].Digest = "md5:900150983cd24fb0d6963f7d28e17f72" }, `{}`, "is not a digest"},
		{"a signature of another module", func(m *v1.Manifest) { m.Annotations = map[string]string{SignaturesAnnotation: string(good)} }, `{}`, "not one of these bytes"},
		{"signatures that are none", func(m *v1.Manifest) { m.Annotations = map[string]string{SignaturesAnnotation: "x"} }, `{}`, "cannot be read"},
		{"too many signatures", func(m *v1.Manifest) {
			m.Annotations = map[string]string{SignaturesAnnotation: "[" + strings.Repeat(`{},`, 16) + "{}]"}
		}, `{}`, "the limit is 16"},
	} {
		store := memory.New()
		push := func(d v1.Descriptor, data []byte) {
			t.Helper()
			if err := store.Push(t.Context(), d, bytes.NewReader(data)); err != nil {
				t.Fatal(tt.name, err)
			}
		}
		cfg := content.NewDescriptorFromBytes(ConfigType, []byte(tt.cfg))
		push(layer, code)
		push(content.NewDescriptorFromBytes(oldLayerType, code), code)
		push(cfg, []byte(tt.cfg))
		m := v1.Manifest{MediaType: v1.MediaTypeImageManifest, Config: cfg, Layers: []v1.Descriptor{layer}}
		tt.change(&m)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		desc := content.NewDescriptorFromBytes("application/octet-stream", text) // a type that the store does not parse
		push(desc, text)
		if err := store.Tag(t.Context(), desc, "latest"); err != nil {
			t.Fatal(err)
		}
		a, err := unpack(t.Context(), store, "latest")
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.name, err, tt.want)
		}
		if err == nil && !bytes.Equal(a.Code, code) {
			t.Errorf("%s: other bytes came", tt.name)
		}
	}
}

func TestRegistryThatLies(t *testing.T) {
	g, host := startRegistry(t)
	p := parse(t, host+"/totals")
	if _, err := Push(t.Context(), p, artifact(t)); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.corrupt = true
	g.mu.Unlock()
	if _, err := Pull(t.Context(), p); err == nil {
		t.Error("changed bytes were taken")
	}
	if _, err := Pull(t.Context(), parse(t, host+"/nothing")); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("what is not there: %v", err)
	}
}

// TestRegistryThatFloods serves endless or extremely compressible bodies as the module
// and as the manifest. The client must read only a small part of them.
func TestRegistryThatFloods(t *testing.T) {
	g, host := startRegistry(t)
	p := parse(t, host+"/totals")
	if _, err := Push(t.Context(), p, artifact(t)); err != nil {
		t.Fatal(err)
	}
	const much = 1 << 30
	zeros := make([]byte, 1<<20)
	for name, flood := range map[string]func(w http.ResponseWriter){
		"without a length": func(w http.ResponseWriter) {
			w.Header().Del("Content-Length")
			for range much / len(zeros) {
				if _, err := w.Write(zeros); err != nil {
					return
				}
			}
		},
		"packed": func(w http.ResponseWriter) {
			w.Header().Del("Content-Length")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range much / len(zeros) {
				if _, err := z.Write(zeros); err != nil {
					return
				}
			}
			_ = z.Close() // the client may be gone
		},
	} {
		for what, kind := range map[string]string{"blobs": "application/octet-stream", "manifests": v1.MediaTypeImageManifest} {
			g.mu.Lock()
			g.flood = func(w http.ResponseWriter, of string) bool {
				if of == kind {
					flood(w)
				}
				return of == kind
			}
			g.mu.Unlock()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Pull(t.Context(), p)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%s %s: it was taken", what, name)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
				t.Errorf("%s %s: %d MiB were taken to find out", what, name, took>>20)
			}
			g.mu.Lock()
			g.flood = nil
			g.mu.Unlock()
		}
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"oci:dir":                    "oci:dir:latest",
		"oci:dir:v1":                 "oci:dir:v1",
		"oci:example.com/x":          "oci:example.com/x:latest",
		"/abs/dir":                   "oci:/abs/dir:latest",
		"./dir:v1":                   "oci:./dir:v1",
		"dir":                        "oci:dir:latest",
		"dir/sub":                    "oci:dir/sub:latest",
		"m.tar":                      "m.tar:latest",
		"m.tar:v1":                   "m.tar:v1",
		"a/m.tar":                    "a/m.tar:latest",
		"example.com/team/totals":    "example.com/team/totals:latest",
		"example.com/team/totals:v1": "example.com/team/totals:v1",
		"localhost/totals":           "localhost/totals:latest",
		"127.0.0.1:5000/totals:v1":   "127.0.0.1:5000/totals:v1",
		"r.io/x@sha256:" + fmt.Sprintf("%064d", 0): "r.io/x@sha256:" + fmt.Sprintf("%064d", 0),
	} {
		if p, err := Parse(in); err != nil || p.String() != want {
			t.Errorf("%s: %v, %v, want %s", in, p, err, want)
		}
	}
	for _, in := range []string{"", "oci:", "oci:dir:a b", "example.com/UPPER", "dir:../x y"} {
		if p, err := Parse(in); err == nil {
			t.Errorf("%q is read as %v", in, p)
		}
	}
	for host, want := range map[string]bool{"localhost": true, "localhost:5000": true, "127.0.0.1:5000": true, "[::1]:5000": true, "example.com": false, "10.0.0.1:5000": false, "localhost.example.com": false} {
		if isLoopback(host) != want {
			t.Errorf("isLoopback(%s) = %v", host, !want)
		}
	}
}

func TestPullFromWhatIsNoLayout(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.tar")
	if err := os.WriteFile(file, bytes.Repeat([]byte("no tar "), 500), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{dir, file, filepath.Join(dir, "missing"), filepath.Join(dir, "missing.tar")} {
		if _, err := Pull(t.Context(), parse(t, place)); err == nil {
			t.Errorf("%s was pulled", place)
		}
	}
	if _, err := Push(t.Context(), parse(t, "oci:"+dir), Artifact{}); err == nil {
		t.Error("nothing was pushed")
	}
}

// FuzzManifest checks that any manifest, config and annotation is parsed or refused
// without a panic.
func FuzzManifest(f *testing.F) {
	layer := content.NewDescriptorFromBytes(LayerType, []byte("code"))
	f.Add([]byte(`{"layers":[{"mediaType":"application/wasm","digest":"`+layer.Digest.String()+`","size":4}]}`), []byte(`{"os":"wasip1"}`), `[{"key":"ed25519:AAAA","signature":"AAAA"}]`)
	f.Add([]byte(`{"layers":[null]}`), []byte(`{"layerDigests":[null]}`), `[null]`)
	f.Fuzz(func(t *testing.T, manifest, cfg []byte, signatures string) {
		if m, layer, err := readManifest(manifest); err == nil {
			if !isModule(layer) || len(m.Layers) == 0 {
				t.Errorf("took %+v", layer)
			}
		}
		_ = checkConfig(cfg, layer)
		if all, err := readSignatures(signatures, modules.Digest([]byte("code"))); err == nil {
			for _, s := range all {
				if s.Verify(modules.Digest([]byte("code"))) != nil {
					t.Errorf("took %+v", s)
				}
			}
		}
	})
}
