package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/document"
)

//go:generate cp ../api/v1/openapi.json assets/openapi.json

//go:embed assets
var embedded embed.FS

// assets holds the files that browsers fetch. It is immutable.
type assets struct {
	files   map[string]asset // by the name after /static/
	openAPI asset
	schemas map[string]asset // of documents, by the name of the kind in lower case
}

type asset struct {
	body        []byte
	zipped      func() []byte // the body with gzip, made at the first call; nil: it is no smaller
	contentType string
	version     string // a digest of the body, part of the address: a changed file has a new address
}

// contentType returns the content type of a file in assets/static. The types are listed
// here because mime.TypeByExtension depends on the machine.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/plain; charset=utf-8"
}

// openAPIVersion is where the generated document has the version of the program.
const openAPIVersion = `"version": "VERSION"`

func loadAssets(version string) (*assets, error) {
	a := &assets{files: map[string]asset{}}
	root, err := fs.Sub(embedded, "assets/static")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		a.files[name] = newAsset(body, contentType(name))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load assets: %w", err)
	}
	description, err := embedded.ReadFile("assets/openapi.json")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cmp.Or(version, "dev"))
	if err != nil {
		return nil, err
	}
	a.openAPI = newAsset(bytes.Replace(description, []byte(openAPIVersion), append([]byte(`"version": `), text...), 1), "application/json")
	a.schemas = map[string]asset{"document": newAsset(document.Schema(), schemaType)}
	for _, k := range document.Written() {
		a.schemas[strings.ToLower(k.Name)] = newAsset(k.Schema(), schemaType)
	}
	return a, nil
}

// schemaType is the media type of a JSON Schema.
const schemaType = "application/schema+json"

func newAsset(body []byte, contentType string) asset {
	sum := sha256.Sum256(body)
	return asset{
		body: body, contentType: contentType, version: hex.EncodeToString(sum[:6]),
		// Compressing all files takes 20 ms and 9 MB of garbage, which a start need not pay.
		zipped: sync.OnceValue(func() []byte {
			zipped := compressed(body, gzip.BestCompression)
			if len(body) < minCompressed || len(zipped) >= len(body) {
				return nil
			}
			return zipped
		}),
	}
}

// address returns the path of a file for a page. An unknown name is a template error,
// which the test that renders every page detects.
func (a *assets) address(name string) (string, error) {
	f, ok := a.files[name]
	if !ok {
		return "", fmt.Errorf("no embedded file %q", name)
	}
	return "/static/" + name + "?v=" + f.version, nil
}

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	a.write(w, r, strings.TrimPrefix(r.URL.Path, "/static/"))
}

func (a *assets) favicon(w http.ResponseWriter, r *http.Request) { a.write(w, r, "icon.svg") }

func (a *assets) write(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := a.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	f.write(w, r)
}

func (a *assets) openapi(w http.ResponseWriter, r *http.Request) { a.openAPI.write(w, r) }

// schema serves the JSON Schema of a kind of documents, as /schemas/job.json.
func (a *assets) schema(w http.ResponseWriter, r *http.Request) {
	name, isJSON := strings.CutSuffix(r.PathValue("file"), ".json")
	f, ok := a.schemas[strings.ToLower(name)]
	if !isJSON || !ok {
		http.Error(w, "there is no such schema: want /schemas/document.json, or /schemas/KIND.json with one of "+strings.Join(slices.Sorted(maps.Keys(a.schemas)), ", "), http.StatusNotFound)
		return
	}
	f.write(w, r)
}

// write sends the file, or that the browser has it already. An address with the file's
// version never needs another look.
func (f asset) write(w http.ResponseWriter, r *http.Request) {
	body, tag := f.body, `"`+f.version+`"`
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Add("Vary", "Accept-Encoding")
	if acceptsGzip(r) {
		if zipped := f.zipped(); zipped != nil {
			body, tag = zipped, `"`+f.version+`-gzip"`
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("ETag", tag)
	if r.URL.Query().Get("v") == f.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// attachment makes a browser save the body instead of showing it. A browser must never
// treat the output of users' code as a page of this origin.
func attachment(w http.ResponseWriter, filename, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": filename}))
}
