// Package oci moves modules to and from OCI image layouts and registries.
//
// It follows the CNCF's Wasm OCI artifact layout: an image manifest with a config of the
// type application/vnd.wasm.config.v0+json and one layer of the type application/wasm.
// The digest of the layer is that of the module. The manifest of Wheelwork is a section
// of the module and needs no layer; signatures are an annotation.
//
// Artifacts are untrusted input: every size is bounded and every digest is checked.
package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	layout "oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/wheelworkhq/wheelwork/modules"
)

// Media types and the annotation of an artifact.
const (
	ConfigType = "application/vnd.wasm.config.v0+json"
	LayerType  = "application/wasm"
	// SignaturesAnnotation is the annotation of the manifest that holds signatures, as a
	// JSON array of {"key":"ed25519:…","signature":"base64"}.
	SignaturesAnnotation = "io.wheelwork.signatures"
)

// oldLayerType is the media type of layers by tools that are older than the CNCF's
// layout.
const oldLayerType = "application/vnd.wasm.content.layer.v1+wasm"

// maxManifest bounds a manifest and a config, in bytes.
const maxManifest = 1 << 20

// Artifact is a module with its name and its signatures.
type Artifact struct {
	Code       []byte
	Signatures []modules.Signature
	Name       string // for display; "" when unknown
	Version    string
}

// config is the JSON of the artifact's config.
type config struct {
	Created      string          `json:"created,omitempty"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	LayerDigests []digest.Digest `json:"layerDigests"`
	Component    json.RawMessage `json:"component,omitempty"`
}

// epoch is the creation time in every artifact. A constant makes the manifest depend only
// on the module.
const epoch = "1970-01-01T00:00:00Z"

// kind is the kind of a Place.
type kind int

const (
	directory kind = iota
	archive
	remoteRegistry
)

// Place refers to an artifact in a layout directory, in a tar file of a layout, or in a
// registry.
type Place struct {
	kind kind
	path string // of the directory or the archive
	tag  string
	ref  registry.Reference
}

// Parse parses the text form of a Place:
//
//	oci:DIR[:TAG]           an OCI image layout in a directory; so is a path that begins with / or .
//	FILE.tar[:TAG]          a tar file of a layout
//	HOST[:PORT]/REPO[:TAG]  a registry; HOST has a dot, a port, or is localhost
//
// The default tag is latest. For a registry, @sha256:… may replace the tag.
func Parse(text string) (Place, error) {
	path, isLayout := strings.CutPrefix(text, "oci:")
	host, _, _ := strings.Cut(text, "/")
	switch {
	case path == "":
		return Place{}, errors.New("the name of a directory, a .tar file or a registry is missing")
	case isLayout, filepath.IsAbs(text), strings.HasPrefix(text, "."), !strings.ContainsAny(host, ".:") && host != "localhost", host == text:
		p := Place{path: path, tag: "latest"}
		if i := strings.LastIndexByte(path, ':'); i > 0 && !strings.ContainsRune(path[i:], '/') {
			p.path, p.tag = path[:i], path[i+1:]
		}
		if strings.HasSuffix(p.path, ".tar") {
			p.kind = archive
		}
		if err := (registry.Reference{Registry: "localhost", Repository: "x", Reference: p.tag}).ValidateReferenceAsTag(); err != nil {
			return Place{}, fmt.Errorf("%q is not a tag: use letters, digits, '.', '_' and '-'", p.tag)
		}
		return p, nil
	}
	ref, err := registry.ParseReference(text)
	if err != nil {
		return Place{}, fmt.Errorf("%q is neither HOST/REPOSITORY:TAG nor a path: write a directory as oci:DIR: %w", text, err)
	}
	if ref.Reference == "" {
		ref.Reference = "latest"
	}
	return Place{kind: remoteRegistry, ref: ref, tag: ref.Reference}, nil
}

// String returns the full text form, with the tag.
func (p Place) String() string {
	if p.kind == remoteRegistry {
		return p.ref.String()
	}
	prefix := ""
	if p.kind == directory {
		prefix = "oci:"
	}
	return prefix + p.path + ":" + p.tag
}

// Push packs a module and writes it to a place. It returns the digest of the artifact's
// manifest, which differs from the digest of the module.
func Push(ctx context.Context, to Place, a Artifact) (manifest string, err error) {
	if len(a.Code) == 0 || len(a.Code) > modules.MaxBytes {
		return "", fmt.Errorf("the module is %d bytes, it must be 1 to %d", len(a.Code), modules.MaxBytes)
	}
	switch to.kind {
	case directory:
		target, err := layout.NewWithContext(ctx, to.path)
		if err != nil {
			return "", fmt.Errorf("open the OCI layout %s: %w", to.path, err)
		}
		return pack(ctx, target, to.tag, a)
	case archive:
		return pushArchive(ctx, to, a)
	}
	repo, err := repository(to.ref)
	if err != nil {
		return "", err
	}
	return pack(ctx, repo, to.tag, a)
}

// pack writes the artifact to a store and tags it.
func pack(ctx context.Context, target oras.Target, tag string, a Artifact) (string, error) {
	layer := content.NewDescriptorFromBytes(LayerType, a.Code)
	cfg, err := json.Marshal(config{Created: epoch, Architecture: "wasm", OS: "wasip1", LayerDigests: []digest.Digest{layer.Digest}})
	if err != nil {
		return "", err
	}
	m := v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: content.NewDescriptorFromBytes(ConfigType, cfg), Layers: []v1.Descriptor{layer},
		Annotations: map[string]string{v1.AnnotationCreated: epoch},
	}
	for key, value := range map[string]string{v1.AnnotationTitle: a.Name, v1.AnnotationVersion: a.Version} {
		if value != "" {
			m.Annotations[key] = value
		}
	}
	if len(a.Signatures) > 0 {
		text, err := json.Marshal(writeSignatures(a.Signatures))
		if err != nil {
			return "", err
		}
		m.Annotations[SignaturesAnnotation] = string(text)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	desc := content.NewDescriptorFromBytes(v1.MediaTypeImageManifest, text)
	for _, part := range []struct {
		desc v1.Descriptor
		data []byte
	}{{layer, a.Code}, {m.Config, cfg}, {desc, text}} {
		have, err := target.Exists(ctx, part.desc)
		if err == nil && !have {
			err = target.Push(ctx, part.desc, bytes.NewReader(part.data))
		}
		if err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
			return "", fmt.Errorf("push %s: %w", part.desc.Digest, err)
		}
	}
	if err := target.Tag(ctx, desc, tag); err != nil {
		return "", fmt.Errorf("tag %s: %w", tag, err)
	}
	return desc.Digest.String(), nil
}

// signature is one signature in the annotation.
type signature struct {
	Key       string `json:"key"`
	Signature []byte `json:"signature"`
}

func writeSignatures(all []modules.Signature) []signature {
	out := make([]signature, len(all))
	for i, s := range all {
		out[i] = signature(s)
	}
	return out
}

// Pull reads a module from a place. It returns an error unless the bytes match the digest
// in the manifest.
func Pull(ctx context.Context, from Place) (Artifact, error) {
	var source oras.ReadOnlyTarget
	var err error
	switch from.kind {
	case directory:
		if _, err = os.Stat(filepath.Join(from.path, v1.ImageLayoutFile)); errors.Is(err, fs.ErrNotExist) {
			return Artifact{}, fmt.Errorf("%s is not an OCI layout: it has no file %s", from.path, v1.ImageLayoutFile)
		}
		source, err = layout.NewFromFS(ctx, os.DirFS(from.path))
	case archive:
		source, err = layout.NewFromTar(ctx, from.path)
	default:
		source, err = repository(from.ref)
	}
	if err != nil {
		return Artifact{}, fmt.Errorf("open %s: %w", from, err)
	}
	a, err := unpack(ctx, source, from.tag)
	if err != nil {
		return Artifact{}, fmt.Errorf("pull %s: %w", from, err)
	}
	return a, nil
}

func unpack(ctx context.Context, source oras.ReadOnlyTarget, tag string) (Artifact, error) {
	desc, err := source.Resolve(ctx, tag)
	if err != nil {
		return Artifact{}, err
	}
	text, err := fetch(ctx, source, desc, maxManifest)
	if err != nil {
		return Artifact{}, fmt.Errorf("manifest: %w", err)
	}
	m, layer, err := readManifest(text)
	if err != nil {
		return Artifact{}, err
	}
	if m.Config.MediaType == ConfigType {
		text, err := fetch(ctx, source, m.Config, maxManifest)
		if err != nil {
			return Artifact{}, fmt.Errorf("config: %w", err)
		}
		if err := checkConfig(text, layer); err != nil {
			return Artifact{}, err
		}
	}
	a := Artifact{Name: m.Annotations[v1.AnnotationTitle], Version: m.Annotations[v1.AnnotationVersion]}
	if a.Code, err = fetch(ctx, source, layer, modules.MaxBytes); err != nil {
		return Artifact{}, fmt.Errorf("module: %w", err)
	}
	a.Signatures, err = readSignatures(m.Annotations[SignaturesAnnotation], modules.Digest(a.Code))
	return a, err
}

// fetch reads the blob of a descriptor and checks its size and digest.
func fetch(ctx context.Context, source content.Fetcher, desc v1.Descriptor, limit int64) ([]byte, error) {
	switch {
	case desc.Size < 0 || desc.Size > limit:
		return nil, fmt.Errorf("%s has %d bytes according to its manifest, the limit is %d", desc.Digest, desc.Size, limit)
	case desc.Digest.Validate() != nil || desc.Digest.Algorithm() != digest.SHA256:
		return nil, fmt.Errorf("%.100q is not a digest that is accepted: want sha256", desc.Digest)
	}
	return content.FetchAll(ctx, source, desc)
}

// readManifest parses a manifest and finds the layer of the module.
func readManifest(text []byte) (m v1.Manifest, layer v1.Descriptor, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, layer, fmt.Errorf("the manifest is not JSON: %w", err)
	}
	if m.MediaType != "" && m.MediaType != v1.MediaTypeImageManifest {
		return m, layer, fmt.Errorf("it is %.100q and no image manifest: name the manifest of one module", m.MediaType)
	}
	i := slices.IndexFunc(m.Layers, isModule)
	if i < 0 || slices.ContainsFunc(m.Layers[i+1:], isModule) {
		return m, layer, fmt.Errorf("it has %d layers, and none of them is of the type %s: it is not an artifact of a WebAssembly module", len(m.Layers), LayerType)
	}
	return m, m.Layers[i], nil
}

func isModule(d v1.Descriptor) bool { return d.MediaType == LayerType || d.MediaType == oldLayerType }

func checkConfig(text []byte, layer v1.Descriptor) error {
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("the config is not JSON: %w", err)
	}
	switch {
	case c.OS == "wasip2" || len(c.Component) > 0 && string(c.Component) != "null":
		return errors.New("it is a component, which is not served: publish a wasm32-wasip1 core module")
	case len(c.LayerDigests) > 0 && !slices.Contains(c.LayerDigests, layer.Digest):
		return fmt.Errorf("its config names other layers than its manifest, %s among them", c.LayerDigests[0])
	}
	return nil
}

// readSignatures parses the annotation and verifies each signature.
func readSignatures(text, moduleDigest string) ([]modules.Signature, error) {
	if text == "" {
		return nil, nil
	}
	var list []signature
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("the annotation %s cannot be read: %w", SignaturesAnnotation, err)
	}
	if len(list) > modules.MaxSignatures {
		return nil, fmt.Errorf("it has %d signatures, the limit is %d", len(list), modules.MaxSignatures)
	}
	var all []modules.Signature
	for _, s := range list {
		if err := modules.Signature(s).Verify(moduleDigest); err != nil {
			return nil, err
		}
		all = append(all, modules.Signature(s))
	}
	return all, nil
}

// repository returns a client for a repository of a registry. It uses the credentials
// that `docker login` and compatible tools store. It uses TLS unless the registry is on
// this machine.
func repository(ref registry.Reference) (*remote.Repository, error) {
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the registry credentials: %w", err)
	}
	return &remote.Repository{
		Reference: ref, PlainHTTP: isLoopback(ref.Host()),
		Client: &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(), Credential: credentials.Credential(store)},
		// The client refuses to read a larger manifest.
		MaxMetadataBytes: maxManifest,
	}, nil
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// pushArchive writes a layout to a temporary directory beside the file and packs it. It
// replaces an existing archive atomically.
func pushArchive(ctx context.Context, to Place, a Artifact) (_ string, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(to.path), ".oci-*")
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", to.path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := layout.NewWithContext(ctx, filepath.Join(dir, "layout"))
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", to.path, err)
	}
	manifest, err := pack(ctx, store, to.tag, a)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "archive")
	if err := writeTar(file, filepath.Join(dir, "layout")); err != nil {
		return "", fmt.Errorf("pack %s: %w", to.path, err)
	}
	if err := os.Rename(file, to.path); err != nil {
		return "", fmt.Errorf("pack %s: %w", to.path, err)
	}
	return manifest, nil
}

// writeTar packs the files of a directory. The entries have only names, sizes and
// contents, so the archive does not depend on the machine.
func writeTar(file, dir string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()
	w := tar.NewWriter(f)
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: path, Size: info.Size(), Mode: 0o644, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		in, err := root.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		return errors.Join(err, in.Close())
	})
	return errors.Join(err, w.Close())
}
