// Package manifest parses the manifest of a module: its handlers, the capabilities it
// asks for, and how its instances are reused. The upload verifier, the hosts and the
// command share this parser. The package is pure.
//
// A manifest is JSON. Every field is optional. An unknown field is an error, because a
// misspelt capability must not silently become one that the module does not ask for.
//
//	{
//	  "abi": "wheelwork_v1.1",
//	  "kind": "reactor",
//	  "handlers": [{"name": "main", "timeout_ms": 30000, "memory_mib": 64, "idempotent": true, "batch": true}],
//	  "capabilities": {
//	    "http": ["api.example.com", {"host": "*.example.org", "methods": ["POST"], "paths": ["/v1/"]}],
//	    "kv": ["totals", {"name": "rates", "write": false}],
//	    "secrets": ["API_KEY"],
//	    "enqueue": ["settle"],
//	    "fs": [{"mount": "/tmp", "write": true, "bytes": 1048576}]
//	  },
//	  "reuse": "reset",
//	  "optional": ["map"]
//	}
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// Bounds of a manifest.
const (
	MaxBytes    = 256 << 10
	MaxHandlers = 100
	MaxName     = 128 // bytes of a handler's name and of any other name
	maxList     = 100 // entries of every other list
	maxSchema   = 64 << 10
	maxTimeout  = 366 * 24 * 3600 * 1000 // ms
	maxMemory   = 4096                   // MiB
)

// Reuse is the treatment of an instance after a task.
type Reuse string

// The values of Reuse.
const (
	ReuseDefault Reuse = ""       // reset for a reactor, fresh for a command
	ReuseReset   Reuse = "reset"  // restored to its state after _initialize
	ReuseFresh   Reuse = "fresh"  // discarded
	ReuseShared  Reuse = "shared" // reused without a reset: later tasks of the app see the state of earlier ones
)

// Manifest is the parsed manifest of a module.
type Manifest struct {
	ABI          string    // "wheelwork_v1.N": the oldest version it runs on; "": the imports decide
	Kind         string    // "command", "reactor" or "": the kind that the module must have
	Handlers     []Handler // the position of a handler is the index it is called with; empty: one handler, "main"
	Capabilities runtime.Grants
	Reuse        Reuse
	Optional     []string // functions of wheelwork_v1 that the module can do without
}

// Handler is one handler of a module.
type Handler struct {
	Name         string
	InputSchema  json.RawMessage // JSON Schema; nil: none
	OutputSchema json.RawMessage
	TimeoutMs    int64 // the host stops a longer task, even if its job allows more; 0: the timeout of the job
	MemoryMiB    int64 // linear memory; 0: the host's default
	Fuel         int64 // units of work, see docs/runtime.md; 0: unlimited
	Idempotent   bool  // a repeated execution does no harm
	Batch        bool  // the host may pass several of its tasks to one call of wheelwork_run
}

// The JSON of a manifest, field by field.
type (
	document struct {
		ABI          string          `json:"abi"`
		Kind         string          `json:"kind"`
		Handlers     []handler       `json:"handlers"`
		Capabilities capabilities    `json:"capabilities"`
		Reuse        Reuse           `json:"reuse"`
		Optional     []string        `json:"optional"`
		ConfigSchema json.RawMessage `json:"config_schema"`
	}
	handler struct {
		Name         string          `json:"name"`
		InputSchema  json.RawMessage `json:"input_schema"`
		OutputSchema json.RawMessage `json:"output_schema"`
		TimeoutMs    int64           `json:"timeout_ms"`
		MemoryMiB    int64           `json:"memory_mib"`
		Fuel         int64           `json:"fuel"`
		Idempotent   bool            `json:"idempotent"`
		Batch        bool            `json:"batch"`
	}
	capabilities struct {
		HTTP    []httpRequest `json:"http"`
		KV      []bucket      `json:"kv"`
		Secrets []string      `json:"secrets"`
		Enqueue []string      `json:"enqueue"`
		FS      []mount       `json:"fs"`
	}
	httpRequest struct {
		Host    string   `json:"host"`
		Methods []string `json:"methods,omitempty"`
		Paths   []string `json:"paths,omitempty"`
		Private bool     `json:"private,omitempty"`
	}
	bucket struct {
		Name  string `json:"name"`
		Write bool   `json:"write"`
	}
	mount struct {
		Mount string `json:"mount"`
		Dir   string `json:"dir,omitempty"`
		Write bool   `json:"write,omitempty"`
		Bytes int64  `json:"bytes,omitempty"`
	}
)

// UnmarshalJSON also accepts a string, the host.
func (h *httpRequest) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		return json.Unmarshal(text, &h.Host)
	}
	type plain httpRequest
	return Decode(text, (*plain)(h))
}

// UnmarshalJSON also accepts a string, the name of a bucket to read and write.
func (b *bucket) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		b.Write = true
		return json.Unmarshal(text, &b.Name)
	}
	type plain bucket
	return Decode(text, (*plain)(b))
}

// Decode decodes JSON by a module: its manifest, or a request of its handler. It refuses
// unknown fields, and any text after the value.
func Decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the JSON value")
	}
	return nil
}

// Parse parses a manifest. The text of its errors is one sentence.
func Parse(text []byte) (Manifest, error) {
	if len(text) > MaxBytes {
		return Manifest{}, fmt.Errorf("the manifest has %d bytes, at most %d are read", len(text), MaxBytes)
	}
	var d document
	if err := Decode(text, &d); err != nil {
		return Manifest{}, fmt.Errorf("the manifest is not the JSON expected, such as {\"handlers\":[{\"name\":\"main\"}]}: %w", err)
	}
	m := Manifest{ABI: d.ABI, Kind: d.Kind, Reuse: d.Reuse, Optional: d.Optional}
	if d.ABI != "" {
		if _, err := Minor(d.ABI); err != nil {
			return Manifest{}, err
		}
	}
	if d.Kind != "" && d.Kind != "command" && d.Kind != "reactor" {
		return Manifest{}, fmt.Errorf("the manifest's kind is %.40q: want command or reactor", d.Kind)
	}
	if !slices.Contains([]Reuse{ReuseDefault, ReuseReset, ReuseFresh, ReuseShared}, d.Reuse) {
		return Manifest{}, fmt.Errorf("the manifest's reuse is %.40q: want reset, fresh or shared", d.Reuse)
	}
	if err := names("optional", d.Optional, func(string) bool { return true }); err != nil {
		return Manifest{}, err
	}
	var err error
	if m.Handlers, err = d.handlers(); err != nil {
		return Manifest{}, err
	}
	m.Capabilities, err = d.Capabilities.grants()
	return m, err
}

// Minor returns N of "wheelwork_v1.N".
func Minor(abi string) (int, error) {
	text, ok := strings.CutPrefix(abi, "wheelwork_v1.")
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 || strconv.Itoa(n) != text {
		return 0, fmt.Errorf("the manifest's abi is %.40q: want wheelwork_v1.0 or a later minor version", abi)
	}
	return n, nil
}

func (d *document) handlers() ([]Handler, error) {
	// An empty list is an error. A missing one means "main".
	if n := len(d.Handlers); n > MaxHandlers || d.Handlers != nil && n == 0 {
		return nil, fmt.Errorf("the manifest names %d handlers: name 1 to %d", n, MaxHandlers)
	}
	var out []Handler
	for _, h := range d.Handlers {
		switch {
		case !plainName(h.Name) || slices.ContainsFunc(out, func(o Handler) bool { return o.Name == h.Name }):
			return nil, fmt.Errorf("the manifest names the handler %.40q, which is empty, too long, not printable or listed twice: give each its own name", h.Name)
		case h.TimeoutMs < 0 || h.TimeoutMs > maxTimeout:
			return nil, fmt.Errorf("handler %.40q has the timeout_ms %d: want 1 to %d", h.Name, h.TimeoutMs, int64(maxTimeout))
		case h.Fuel < 0:
			return nil, fmt.Errorf("handler %.40q has the fuel %d: want 1 or more units, or leave it out", h.Name, h.Fuel)
		case h.MemoryMiB < 0 || h.MemoryMiB > maxMemory:
			return nil, fmt.Errorf("handler %.40q has the memory_mib %d: want 1 to %d", h.Name, h.MemoryMiB, maxMemory)
		}
		for _, s := range []json.RawMessage{h.InputSchema, h.OutputSchema} {
			if len(s) > maxSchema || len(s) > 0 && s[0] != '{' && s[0] != 't' && s[0] != 'f' {
				return nil, fmt.Errorf("handler %.40q has a schema that is too long or no JSON Schema: want an object of at most %d bytes", h.Name, maxSchema)
			}
		}
		out = append(out, Handler(h))
	}
	return out, nil
}

// plainName reports whether a name contains no control characters and no line breaks.
// Characters beyond ASCII are allowed.
func plainName(s string) bool {
	return s != "" && len(s) <= MaxName && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0xfffd })
}

// names returns an error if the list is too long or if ok refuses one of its names.
func names(what string, list []string, ok func(string) bool) error {
	if len(list) > maxList {
		return fmt.Errorf("the manifest's %s has %d entries: want at most %d", what, len(list), maxList)
	}
	for i, name := range list {
		if !plainName(name) || !ok(name) || slices.Contains(list[:i], name) {
			return fmt.Errorf("the manifest's %s has the entry %.60q, which is empty, too long, malformed or listed twice", what, name)
		}
	}
	return nil
}

func (c capabilities) grants() (runtime.Grants, error) {
	g := runtime.Grants{Secrets: c.Secrets, Enqueue: c.Enqueue}
	for _, h := range c.HTTP {
		g.HTTP = append(g.HTTP, runtime.HTTPGrant{Host: strings.ToLower(h.Host), Methods: h.Methods, Paths: h.Paths, Private: h.Private})
	}
	for _, b := range c.KV {
		g.KV = append(g.KV, runtime.Bucket(b))
	}
	for _, f := range c.FS {
		g.Files = append(g.Files, runtime.FileGrant{Mount: f.Mount, Dir: f.Dir, Write: f.Write, Bytes: f.Bytes})
	}
	return g, Check(g)
}

// Grants parses the JSON of capabilities. The grants of an owner have the same form as
// the capabilities in a manifest.
func Grants(text []byte) (runtime.Grants, error) {
	if len(text) > MaxBytes {
		return runtime.Grants{}, fmt.Errorf("the grants have %d bytes, at most %d are read", len(text), MaxBytes)
	}
	var c capabilities
	if err := Decode(text, &c); err != nil {
		return runtime.Grants{}, fmt.Errorf("the grants are not the JSON expected, such as {\"kv\":[\"totals\"]}: %w", err)
	}
	return c.grants()
}

// Encode writes grants in the form that Grants parses, in the given order.
func Encode(g runtime.Grants) []byte {
	type out struct {
		HTTP    []httpRequest `json:"http,omitempty"`
		KV      []bucket      `json:"kv,omitempty"`
		Secrets []string      `json:"secrets,omitempty"`
		Enqueue []string      `json:"enqueue,omitempty"`
		FS      []mount       `json:"fs,omitempty"`
	}
	o := out{Secrets: g.Secrets, Enqueue: g.Enqueue}
	for _, h := range g.HTTP {
		o.HTTP = append(o.HTTP, httpRequest(h))
	}
	for _, b := range g.KV {
		o.KV = append(o.KV, bucket(b))
	}
	for _, f := range g.Files {
		o.FS = append(o.FS, mount(f))
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("manifest: strings, numbers and booleans do not encode: %v", err))
	}
	return text
}

// Check returns an error if the grants are not valid. It is for grants of every origin.
func Check(g runtime.Grants) error {
	if len(g.HTTP) > maxList || len(g.KV) > maxList || len(g.Files) > maxList {
		return fmt.Errorf("a list of capabilities has more than %d entries", maxList)
	}
	for _, h := range g.HTTP {
		if err := checkHTTP(h); err != nil {
			return err
		}
	}
	for i, b := range g.KV {
		if !plainName(b.Name) || slices.ContainsFunc(g.KV[:i], func(o runtime.Bucket) bool { return o.Name == b.Name }) {
			return fmt.Errorf("kv has the bucket %.60q, which is empty, too long, malformed or listed twice", b.Name)
		}
	}
	if err := names("secrets", g.Secrets, func(string) bool { return true }); err != nil {
		return err
	}
	if err := names("enqueue", g.Enqueue, validTarget); err != nil {
		return err
	}
	for i, f := range g.Files {
		if err := checkFiles(f, g.Files[:i]); err != nil {
			return err
		}
	}
	return nil
}

// validTarget accepts "job", "app/job" and "*".
func validTarget(t string) bool {
	app, job, both := strings.Cut(t, "/")
	return t == "*" || !strings.Contains(t, "*") && app != "" && (!both || job != "" && !strings.Contains(job, "/"))
}

func checkHTTP(h runtime.HTTPGrant) error {
	u, err := url.Parse("http://" + h.Host)
	if err != nil || u.Host != h.Host || u.Port() == "" && strings.HasSuffix(h.Host, ":") || !hostName(u.Hostname()) {
		return fmt.Errorf("http has the host %.80q: want a name such as api.example.com, *.example.com or api.example.com:8443, without scheme and path", h.Host)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("http has the host %.80q, whose port is not 1 to 65535", h.Host)
		}
	}
	if len(h.Methods) > 20 || len(h.Paths) > maxList {
		return fmt.Errorf("http has too many methods or paths for the host %.80q", h.Host)
	}
	for _, m := range h.Methods {
		if m == "" || len(m) > 20 || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return fmt.Errorf("http has the method %.40q for the host %.80q: want GET, POST and so on, in capitals", m, h.Host)
		}
	}
	for _, p := range h.Paths {
		if !strings.HasPrefix(p, "/") || len(p) > 1000 || strings.ContainsAny(p, "?#*%\\") || path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/" {
			return fmt.Errorf("http has the path %.80q for the host %.80q: want a plain prefix such as /v1/", p, h.Host)
		}
	}
	return nil
}

// hostName accepts ASCII names, which may begin with "*.", and IP addresses.
func hostName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return !strings.Contains(name, "%")
	}
	name = strings.TrimPrefix(name, "*.")
	if name == "" || len(name) > 253 {
		return false
	}
	for _, label := range strings.Split(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// CheckMount refuses a path at which a guest cannot have a directory. A mount is the root, "/";
// the working directory, "."; or a path from one of them, such as /tmp or data/in.
func CheckMount(mount string) error {
	clean := mount != "" && path.Clean(mount) == mount && len(mount) <= 200 && mount != ".." && !strings.HasPrefix(mount, "../")
	if clean && (mount == "/" || mount == "." || plainName(path.Base(mount))) {
		return nil
	}
	return errors.New("want /, . or a path such as /tmp or data/in, without .. and without a slash at its end")
}

// mountKey returns equal texts for mounts that the engine cannot tell apart: a program's working
// directory is the root.
func mountKey(mount string) string {
	if mount == "." {
		return ""
	}
	return strings.TrimPrefix(mount, "/")
}

func checkFiles(f runtime.FileGrant, before []runtime.FileGrant) error {
	if err := CheckMount(f.Mount); err != nil {
		return fmt.Errorf("fs has the mount %.80q: %w", f.Mount, err)
	}
	for _, o := range before {
		mine, other := mountKey(f.Mount), mountKey(o.Mount)
		switch {
		case mine == other:
			return fmt.Errorf("fs has the mounts %.80q and %.80q, which are the same directory for a program", o.Mount, f.Mount)
		case mine != "" && other != "" && (strings.HasPrefix(other, mine+"/") || strings.HasPrefix(mine, other+"/")):
			return fmt.Errorf("fs has the mounts %.80q and %.80q, one of which is in the other", o.Mount, f.Mount)
		}
	}
	if f.Dir != "" && !plainName(f.Dir) || strings.ContainsAny(f.Dir, "/\\") {
		return fmt.Errorf("fs has the dir %.80q for %.80q: want the name of a directory that hosts were given, not a path", f.Dir, f.Mount)
	}
	if f.Bytes < 0 || f.Bytes > 1<<40 {
		return fmt.Errorf("fs has %d bytes for %.80q: want 0 to %d", f.Bytes, f.Mount, int64(1)<<40)
	}
	return nil
}
