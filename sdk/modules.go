package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Upload is one version of a module to be uploaded.
type Upload struct {
	App      string // default [DefaultApp]
	Name     string
	Version  string
	Code     []byte // the WebAssembly binary
	Manifest string // JSON; default: none

	// Signatures of the bytes as the server stores them, which includes the manifest if
	// there is one.
	Signatures []*Signature

	// DryRun checks the upload as if it were stored, and stores nothing. The result is [Checked].
	DryRun bool

	// Progress is called after each chunk with the bytes sent so far. Default: none.
	Progress func(sent, total int64)
}

// chunk is the number of module bytes in one message. The API allows 1 MiB; smaller
// chunks let a progress bar move.
const chunk = 256 << 10

// PushModule uploads a version of a module. Versions are immutable: pushing the same
// bytes again returns [Unchanged], and other bytes fail with [ErrConflict]. An
// interrupted upload begins again, for example when its app moves to another server. It
// also returns [Unchanged] when the interrupted upload had been completed.
func (c *Client) PushModule(ctx context.Context, u Upload) (*Module, Result, error) {
	op := "push module " + u.Name + "@" + u.Version
	var down time.Time // time of the first failure since the last complete upload
	pause := minPause
	for hops := 0; ; {
		m, result, err := c.pushModule(ctx, u)
		if err == nil {
			return m, result, nil
		}
		if hint(err) != nil && hops < maxHops { // the app is on another server
			hops++
			continue
		}
		if down.IsZero() {
			down = time.Now()
		}
		if !broken(err) && !moving(err) || time.Since(down) >= c.retryFor || sleep(ctx, pause) != nil {
			return nil, "", c.callError(ctx, op, err)
		}
		pause, hops = min(2*pause, maxPause), 0
	}
}

func (c *Client) pushModule(ctx context.Context, u Upload) (*Module, Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.modules.PushModule(forApp(ctx, u.App))
	if err != nil {
		return nil, "", err
	}
	err = stream.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: &apiv1.PushModuleRequest_Head{
		App: appOf(u.App), Name: u.Name, Version: u.Version, Manifest: u.Manifest, Signatures: u.Signatures, DryRun: u.DryRun,
	}}})
	for sent := 0; err == nil && sent < len(u.Code); {
		end := min(sent+chunk, len(u.Code))
		err = stream.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Chunk{Chunk: u.Code[sent:end]}})
		if sent = end; err == nil && u.Progress != nil {
			u.Progress(int64(sent), int64(len(u.Code)))
		}
	}
	// Send on a closed stream fails with EOF; the answer has the reason.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	answer, err := stream.CloseAndRecv()
	if err != nil {
		return nil, "", err
	}
	return answer.GetModule(), Result(answer.GetResult()), nil
}

// Trial is a call of a handler of a script that is not stored.
type Trial struct {
	App, Module string
	Code        []byte // the script, packed as for [Client.PushModule]
	Manifest    string // JSON; default: none, or that in the code
	Handler     string // default main
	Input       string
	Timeout     time.Duration // default 10 s, at most 30 s
}

// TryScript executes a handler of a script once in the sandbox of the server, and stores nothing. A
// handler that fails is a result and no error.
func (c *Client) TryScript(ctx context.Context, t Trial) (*Tried, error) {
	req := &apiv1.TryScriptRequest{App: appOf(t.App), Name: t.Module, Code: t.Code, Manifest: t.Manifest, Handler: t.Handler, Input: t.Input}
	if t.Timeout > 0 {
		req.Timeout = t.Timeout.String()
	}
	r, err := c.modules.TryScript(ctx, req)
	return r, c.callError(ctx, "try the script "+t.Module, err)
}

// Module returns one version of a module, named name@version.
func (c *Client) Module(ctx context.Context, app, ref string) (*Module, error) {
	name, version, err := SplitModule(ref)
	if err != nil {
		return nil, err
	}
	m, err := c.modules.GetModule(ctx, &apiv1.GetModuleRequest{App: appOf(app), Name: name, Version: version})
	return m, c.callError(ctx, "get module "+ref, err)
}

// Modules returns every version of every module of an app.
func (c *Client) Modules(ctx context.Context, app string) ([]*Module, error) {
	r, err := c.modules.ListModules(ctx, &apiv1.ListModulesRequest{App: appOf(app)})
	return r.GetModules(), c.callError(ctx, "list modules", err)
}

// SplitModule splits name@version.
func SplitModule(ref string) (name, version string, err error) {
	name, version, ok := strings.Cut(ref, "@")
	if !ok || name == "" || version == "" || strings.Contains(version, "@") {
		return "", "", fmt.Errorf("%q does not name a version of a module: want NAME@VERSION, for example totals@1", ref)
	}
	return name, version, nil
}
