package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/job/trigger"
)

// mainHandler is the entry of a module that names none.
const mainHandler = "main"

// Validate fills in the defaults of a definition and returns an error if it is invalid.
// It changes d. The caller checks whether the module exists.
func Validate(d *apiv1.Job) error {
	if d == nil {
		return fmt.Errorf("the job is missing")
	}
	if d.App == "" {
		d.App = naming.DefaultApp
	}
	if err := naming.Check("app", d.App); err != nil {
		return err
	}
	if err := naming.Check("name", d.Name); err != nil {
		return err
	}
	for _, check := range []func(*apiv1.Job) error{checkHandler, checkInput, schedule.Check, schedule.CheckMisfire, checkTimeout, checkLimits, checkRetry, checkDependency, checkTrigger, checkPolicies, checkRouting, checkAlerts, checkTexts} {
		if err := check(d); err != nil {
			return fmt.Errorf("job %s: %w", d.Name, err)
		}
	}
	return nil
}

// checkHandler requires a handler or a workflow.
func checkHandler(d *apiv1.Job) error {
	if d.Workflow != nil {
		return checkWorkflow(d)
	}
	if d.GetHandler().GetModule() == "" && !IsExecutor(d.GetHandler().GetName()) {
		return fmt.Errorf("handler.module is missing: name a pushed module as name@version, or a handler that is in no module as native:NAME, plugin:NAME/HANDLER or builtin:NAME")
	}
	if err := checkEntry(d.Handler); err != nil {
		return err
	}
	size := 0
	for _, a := range d.Handler.Args {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("handler.args: an argument holds a zero byte")
		}
		size += len(a)
	}
	for k, v := range d.Handler.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("handler.env: %q is not the name of a variable", k)
		}
		size += len(k) + len(v)
	}
	if size > MaxInput {
		return fmt.Errorf("handler.args and handler.env are %d bytes together, the limit is %d", size, MaxInput)
	}
	return nil
}

// checkEntry checks the executor or the module of a handler, and replaces the name by the
// full one.
func checkEntry(h *apiv1.Handler) error {
	if h.Module == "" {
		e, err := ParseExecutor(h.Name)
		if err != nil {
			return fmt.Errorf("handler.name: %w", err)
		}
		h.Name = e.String()
		return checkBuiltin(h)
	}
	if err := checkBuiltin(h); err != nil {
		return err
	}
	if _, _, err := ParseModule(h.Module); err != nil {
		return fmt.Errorf("handler.module: %w", err)
	}
	if h.Name == "" {
		h.Name = mainHandler
	}
	return nil
}

func checkWorkflow(d *apiv1.Job) error {
	for _, f := range []struct {
		name string
		set  bool
	}{{"handler", d.Handler != nil}, {"retry", d.Retry != nil}, {"routing", d.Routing != nil}, {"fanout", d.Fanout != nil}, {"limits", d.Limits != nil}} {
		if f.set {
			return fmt.Errorf("%s is set, but the job is a workflow: set it in the jobs of its nodes", f.name)
		}
	}
	_, err := newGraph(d.Workflow)
	return err
}

// ParseModule splits "name@version" and checks both parts.
func ParseModule(ref string) (name, version string, err error) {
	name, version, ok := strings.Cut(ref, "@")
	if !ok || name == "" || version == "" {
		example := "totals"
		if naming.Check("module name", name) == nil {
			example = name
		}
		return "", "", fmt.Errorf("%q is not name@version: add a version or an alias of the module, for example %s@1", ref, example)
	}
	if err := naming.Check("module name", name); err != nil {
		return "", "", err
	}
	if err := naming.Check("module version", version); err != nil {
		return "", "", err
	}
	return name, version, nil
}

// CheckInput refuses an input over the limit.
func CheckInput(n int) error {
	if n > MaxInput {
		return fmt.Errorf("the input is %d bytes, the limit is %d (64 KiB): pass a reference to larger data instead", n, MaxInput)
	}
	return nil
}

func checkInput(d *apiv1.Job) error {
	if d.Input != "" && len(d.InputBytes) > 0 {
		return fmt.Errorf("input and input_bytes are both set: use one")
	}
	return CheckInput(len(d.Input) + len(d.InputBytes))
}

func checkTimeout(d *apiv1.Job) error {
	if d.Timeout == "" {
		return nil
	}
	v, err := time.ParseDuration(d.Timeout)
	switch {
	case err != nil:
		return fmt.Errorf("timeout: %q is not a duration: write it as 500ms, 30s, 5m or 1h30m", d.Timeout)
	case v < 0:
		return fmt.Errorf("timeout is negative")
	case v > 0 && v < time.Millisecond:
		return fmt.Errorf("timeout is %s, the shortest is 1ms", d.Timeout)
	case v > maxTimeout:
		return fmt.Errorf("timeout is %s, the longest is 30 days", d.Timeout)
	}
	return nil
}

// Bounds, in bytes, of the memory limit of a job: a WebAssembly page, and the WebAssembly
// address space.
const (
	minMemory = 64 << 10
	maxMemory = 4 << 30
)

func checkLimits(d *apiv1.Job) error {
	l := d.Limits
	switch {
	case l == nil:
	case d.GetHandler().GetModule() == "":
		return fmt.Errorf("limits apply to a handler in a module only: a timeout bounds other handlers, and so does the operator of the host")
	case l.MemoryBytes != 0 && (l.MemoryBytes < minMemory || l.MemoryBytes > maxMemory):
		return fmt.Errorf("limits.memory_bytes is %d, it must be %d (64 KiB) to %d (4 GiB)", l.MemoryBytes, minMemory, int64(maxMemory))
	case l.Fuel < 0:
		return fmt.Errorf("limits.fuel is negative")
	}
	return nil
}

func checkRetry(d *apiv1.Job) error {
	r := d.Retry
	if r == nil {
		return nil
	}
	switch {
	case r.Max < 0 || r.Max > maxRetries:
		return fmt.Errorf("retry.max is %d, it must be 0 to %d", r.Max, maxRetries)
	case r.Backoff != "" && r.Backoff != "exponential" && r.Backoff != "fixed":
		return fmt.Errorf("retry.backoff: %q is neither exponential nor fixed", r.Backoff)
	}
	for _, f := range []struct{ name, value string }{{"retry.first", r.First}, {"retry.limit", r.Limit}} {
		if f.value == "" {
			continue
		}
		v, err := time.ParseDuration(f.value)
		if err != nil || v <= 0 || v > schedule.MaxInterval {
			return fmt.Errorf("%s: %q is not a duration above zero: write it as 500ms, 30s, 5m or 1h30m", f.name, f.value)
		}
	}
	if p := policyOf(d); p.First > p.Limit {
		return fmt.Errorf("retry.first (%s) is longer than retry.limit (%s)", p.First, p.Limit)
	}
	return nil
}

func checkTrigger(d *apiv1.Job) error { return trigger.Check(d.Trigger) }

// maxAlerts bounds the alerts of a job.
const maxAlerts = 8

func checkAlerts(d *apiv1.Job) error {
	if len(d.Alerts) > maxAlerts {
		return fmt.Errorf("alerts has %d entries, want at most %d: one alert can list several events and channels", len(d.Alerts), maxAlerts)
	}
	return nil
}

func checkTexts(d *apiv1.Job) error {
	if len(d.Description) > 4096 {
		return fmt.Errorf("description is longer than 4096 bytes")
	}
	if err := checkOwner(d.Owner); err != nil {
		return err
	}
	if err := CheckLabels(d.Labels); err != nil {
		return err
	}
	return nil
}

// maxOwner bounds the owner of a job, in bytes.
const maxOwner = 128

// checkOwner checks the owner of a job: the name of a user or a group of any directory, so it may have
// all characters that show.
func checkOwner(owner string) error {
	if len(owner) > maxOwner {
		return fmt.Errorf("owner: %d bytes, the limit is %d", len(owner), maxOwner)
	}
	if strings.ContainsFunc(owner, func(r rune) bool { return !unicode.IsGraphic(r) }) || strings.TrimSpace(owner) != owner {
		return fmt.Errorf("owner %q: want a name without control characters, and without space around it", owner)
	}
	return nil
}

// CheckLabels checks the labels of a definition.
func CheckLabels(labels map[string]string) error {
	if len(labels) > 64 {
		return fmt.Errorf("more than 64 labels")
	}
	for k, v := range labels {
		if k == "" || len(k) > 128 || len(v) > 256 || !utf8.ValidString(v) {
			return fmt.Errorf("label %q: a key has 1 to 128 bytes and a value at most 256", k)
		}
	}
	return nil
}

// Definition returns a copy of d with only the fields that its owner sets. The fields
// that the server sets are cleared.
func Definition(d *apiv1.Job) *apiv1.Job {
	c := proto.CloneOf(d)
	c.Revision, c.Etag, c.CreatedAt, c.UpdatedAt, c.NextAt, c.Digest, c.Stats, c.Needs, c.NextWhy, c.CreatedBy, c.ChangedBy, c.Pause = 0, "", nil, nil, nil, "", nil, nil, "", "", "", nil
	return c
}

// Etag returns a fingerprint of a definition. Equal definitions have equal etags. d must
// not have fields that the server sets: see [Definition].
func Etag(d *apiv1.Job) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err != nil { // only invalid UTF-8 fails, and the server refuses it on receipt
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Input returns the input of a definition; empty if it has none.
func Input(d *apiv1.Job) []byte {
	if len(d.GetInputBytes()) > 0 {
		return d.InputBytes
	}
	return []byte(d.GetInput())
}
