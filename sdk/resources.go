package sdk

import (
	"context"
	"iter"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// AnyVersion as an expected version matches every version, and a missing entry.
const AnyVersion = ^uint64(0)

// expected returns the version that a request replaces, in the form of the API.
func expected(version uint64) *uint64 {
	if version == AnyVersion {
		return nil
	}
	return &version
}

// Value returns an entry of a bucket. It fails with [ErrNotFound] when the entry does not
// exist.
func (c *Client) Value(ctx context.Context, app, bucket, key string) (*Value, error) {
	v, err := c.values.GetValue(forApp(ctx, app), &apiv1.GetValueRequest{App: appOf(app), Bucket: bucket, Key: key})
	return v, c.callError(ctx, "get value "+bucket+"/"+key, err)
}

// PutValue sets an entry of a bucket. expect is the version that it replaces, 0 for a new
// entry, or [AnyVersion]. If the entry has another version, PutValue fails with
// [ErrChanged]. It may also fail so when the answer to a successful write was lost.
func (c *Client) PutValue(ctx context.Context, app, bucket, key string, value []byte, expect uint64) (*Value, error) {
	v, err := c.values.PutValue(forApp(ctx, app), &apiv1.PutValueRequest{App: appOf(app), Bucket: bucket, Key: key, ValueBytes: value, ExpectVersion: expected(expect)})
	return v, c.callError(ctx, "put value "+bucket+"/"+key, err)
}

// DeleteValue removes an entry of a bucket; expect has the meaning of [Client.PutValue].
func (c *Client) DeleteValue(ctx context.Context, app, bucket, key string, expect uint64) error {
	_, err := c.values.DeleteValue(forApp(ctx, app), &apiv1.DeleteValueRequest{App: appOf(app), Bucket: bucket, Key: key, ExpectVersion: expected(expect)})
	return c.callError(ctx, "delete value "+bucket+"/"+key, err)
}

// Values iterates over the entries of a bucket whose key begins with prefix, sorted by
// key, without their values.
func (c *Client) Values(ctx context.Context, app, bucket, prefix string) iter.Seq2[*Value, error] {
	return func(yield func(*Value, error) bool) {
		req := &apiv1.ListValuesRequest{App: appOf(app), Bucket: bucket, Prefix: prefix, PageSize: 1000}
		for {
			page, err := c.values.ListValues(forApp(ctx, app), req)
			if err != nil {
				yield(nil, c.callError(ctx, "list values of "+bucket, err))
				return
			}
			for _, v := range page.GetValues() {
				if !yield(v, nil) {
					return
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// Buckets returns the buckets of an app, and their share of its quota.
func (c *Client) Buckets(ctx context.Context, app string) (*Buckets, error) {
	r, err := c.values.ListBuckets(forApp(ctx, app), &apiv1.ListBucketsRequest{App: appOf(app)})
	return r, c.callError(ctx, "list buckets", err)
}

// SetSecret creates or replaces a secret. No call reads it back.
func (c *Client) SetSecret(ctx context.Context, app, name string, value []byte) (*Secret, error) {
	s, err := c.secrets.SetSecret(forApp(ctx, app), &apiv1.SetSecretRequest{App: appOf(app), Name: name, ValueBytes: value})
	return s, c.callError(ctx, "set secret "+name, err)
}

// Secrets returns the names, versions and times of an app's secrets.
func (c *Client) Secrets(ctx context.Context, app string) ([]*Secret, error) {
	r, err := c.secrets.ListSecrets(forApp(ctx, app), &apiv1.ListSecretsRequest{App: appOf(app)})
	return r.GetSecrets(), c.callError(ctx, "list secrets", err)
}

// ResealSecrets seals the secrets of an app with the newest key of the server. Values,
// versions and times stay. The call can be repeated.
func (c *Client) ResealSecrets(ctx context.Context, app string) (*ResealedSecrets, error) {
	r, err := c.secrets.ResealSecrets(forApp(ctx, app), &apiv1.ResealSecretsRequest{App: appOf(app)})
	return r, c.callError(ctx, "reseal the secrets of app "+appOf(app), err)
}

// DeleteSecret removes a secret.
func (c *Client) DeleteSecret(ctx context.Context, app, name string) error {
	_, err := c.secrets.DeleteSecret(forApp(ctx, app), &apiv1.DeleteSecretRequest{App: appOf(app), Name: name})
	return c.callError(ctx, "delete secret "+name, err)
}

// PutGrants replaces the grants of a module; empty grants revoke all. A version gets only
// the capabilities that its manifest asks for too.
func (c *Client) PutGrants(ctx context.Context, g *ModuleGrants) (*ModuleGrants, error) {
	kept, err := c.access.PutGrants(forApp(ctx, g.GetApp()), &apiv1.PutGrantsRequest{Grants: g})
	return kept, c.callError(ctx, "grant to module "+g.GetModule(), err)
}

// Grants returns the grants of a module, and what each of its versions asks for and gets.
func (c *Client) Grants(ctx context.Context, app, module string) (*ModuleGrants, error) {
	g, err := c.access.GetGrants(forApp(ctx, app), &apiv1.GetGrantsRequest{App: appOf(app), Module: module})
	return g, c.callError(ctx, "get grants of module "+module, err)
}

// AllGrants returns the modules that have a grant or ask for one.
func (c *Client) AllGrants(ctx context.Context, app string) ([]*ModuleGrants, error) {
	r, err := c.access.ListGrants(forApp(ctx, app), &apiv1.ListGrantsRequest{App: appOf(app)})
	return r.GetGrants(), c.callError(ctx, "list grants", err)
}
