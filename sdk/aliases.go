package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// DownloadModule returns the bytes of a version, named name@version or name@alias. The
// server is trusted: a caller that does not trust it compares the digest of the bytes.
func (c *Client) DownloadModule(ctx context.Context, app, ref string) ([]byte, error) {
	name, version, err := SplitModule(ref)
	if err != nil {
		return nil, err
	}
	op := "download module " + ref
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.modules.DownloadModule(ctx, &apiv1.DownloadModuleRequest{App: appOf(app), Name: name, Version: version})
	if err != nil {
		return nil, c.callError(ctx, op, err)
	}
	var code bytes.Buffer
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return code.Bytes(), nil
		}
		if err != nil {
			return nil, c.callError(ctx, op, err)
		}
		code.Write(part.GetData())
	}
}

// SignModule adds a signature to a version.
func (c *Client) SignModule(ctx context.Context, app, ref string, s *Signature) (*Module, error) {
	name, version, err := SplitModule(ref)
	if err != nil {
		return nil, err
	}
	m, err := c.modules.SignModule(ctx, &apiv1.SignModuleRequest{App: appOf(app), Name: name, Version: version, Signature: s})
	return m, c.callError(ctx, "sign module "+ref, err)
}

// AliasChange is a change of an alias. A field with its zero value leaves that part of
// the alias unchanged.
type AliasChange struct {
	Version   string  // the new target; ends the canary unless Canary is set again
	Canary    *Canary // version that receives a share of the runs on trial
	EndCanary bool
	WhenReady bool              // refuses the change while a host does not have the version ready
	Labels    map[string]string // the new labels
}

// SetAlias creates or changes an alias, named name@alias.
func (c *Client) SetAlias(ctx context.Context, app, ref string, change AliasChange) (*Alias, error) {
	module, name, err := SplitModule(ref)
	if err != nil {
		return nil, err
	}
	x, err := c.modules.SetAlias(ctx, &apiv1.SetAliasRequest{
		App: appOf(app), Module: module, Name: name,
		Version: change.Version, Canary: change.Canary, EndCanary: change.EndCanary, WhenReady: change.WhenReady, Labels: change.Labels,
	})
	return x, c.callError(ctx, "set alias "+ref, err)
}

// Alias returns an alias, named name@alias.
func (c *Client) Alias(ctx context.Context, app, ref string) (*Alias, error) {
	module, name, err := SplitModule(ref)
	if err != nil {
		return nil, err
	}
	x, err := c.modules.GetAlias(ctx, &apiv1.GetAliasRequest{App: appOf(app), Module: module, Name: name})
	return x, c.callError(ctx, "get alias "+ref, err)
}

// Aliases returns the aliases of an app, or only those of one module.
func (c *Client) Aliases(ctx context.Context, app, module string) ([]*Alias, error) {
	r, err := c.modules.ListAliases(ctx, &apiv1.ListAliasesRequest{App: appOf(app), Module: module})
	return r.GetAliases(), c.callError(ctx, "list aliases", err)
}

// DeleteAlias removes an alias. If jobs name it, DeleteAlias fails with [ErrPrecondition]
// and returns the names of these jobs.
func (c *Client) DeleteAlias(ctx context.Context, app, ref string) error {
	return c.deleteAlias(ctx, app, ref, false)
}

// ForceDeleteAlias removes an alias like [Client.DeleteAlias], even if jobs name it.
// Their runs fail until the alias is set again.
func (c *Client) ForceDeleteAlias(ctx context.Context, app, ref string) error {
	return c.deleteAlias(ctx, app, ref, true)
}

func (c *Client) deleteAlias(ctx context.Context, app, ref string, force bool) error {
	module, name, err := SplitModule(ref)
	if err != nil {
		return err
	}
	_, err = c.modules.DeleteAlias(ctx, &apiv1.DeleteAliasRequest{App: appOf(app), Module: module, Name: name, Force: force})
	return c.callError(ctx, "delete alias "+ref, err)
}

// DeleteModule deletes the bytes of a version, named name@version, and returns how many
// bytes became free. Pushing the same bytes again restores the version. If a job, an
// alias, a script or a live run names the version, DeleteModule fails with
// [ErrPrecondition] and returns their names.
func (c *Client) DeleteModule(ctx context.Context, app, ref string) (int64, error) {
	return c.deleteModule(ctx, app, ref, false)
}

// ForceDeleteModule deletes a version like [Client.DeleteModule], even if something names
// it. Runs that need it fail on hosts that have not loaded it.
func (c *Client) ForceDeleteModule(ctx context.Context, app, ref string) (int64, error) {
	return c.deleteModule(ctx, app, ref, true)
}

func (c *Client) deleteModule(ctx context.Context, app, ref string, force bool) (int64, error) {
	name, version, err := SplitModule(ref)
	if err != nil {
		return 0, err
	}
	r, err := c.modules.DeleteModule(ctx, &apiv1.DeleteModuleRequest{App: appOf(app), Name: name, Version: version, Force: force})
	return r.GetBytes(), c.callError(ctx, "delete module "+ref, err)
}

// Rollout reports which hosts have a version ready, named name@version, name@alias or
// name@latest.
func (c *Client) Rollout(ctx context.Context, app, ref string) (*Rollout, error) {
	name, version, err := SplitModule(ref)
	if err != nil {
		return nil, err
	}
	r, err := c.modules.GetRollout(ctx, &apiv1.GetRolloutRequest{App: appOf(app), Name: name, Version: version})
	return r, c.callError(ctx, "get the roll-out of "+ref, err)
}

// CollectModules deletes the bytes of versions that nothing refers to and that were
// pushed longer ago than olderThan; 0 means the server's default.
func (c *Client) CollectModules(ctx context.Context, app string, olderThan time.Duration, dryRun bool) (*Collection, error) {
	req := &apiv1.CollectModulesRequest{App: appOf(app), DryRun: dryRun}
	if olderThan > 0 {
		req.OlderThan = fmt.Sprint(olderThan)
	}
	r, err := c.modules.CollectModules(ctx, req)
	return r, c.callError(ctx, "collect modules", err)
}
