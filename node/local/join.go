package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/node/certificates"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// This file lets the processes of a cluster with TLS join it. The first server begins the cluster and makes the
// authority. The others, and a process that has lost its directory, join with a token that is made for them.

const (
	joinAgain = 50 * time.Millisecond // between two attempts to get a join token
	joinTime  = 10 * time.Second      // of one attempt
)

// joinToken returns the token with which a process joins; "" if it needs none. It waits for a server that makes one,
// until ctx ends.
func (c *localCluster) joinToken(ctx context.Context, p *localProcess) (string, error) {
	if !c.plan.TLS || p.hasJoined() || p.first && !c.begunBefore.Load() {
		return "", nil
	}
	for p.after != nil && !p.after.hasJoined() { // etcd takes one new member at a time
		if !wait.For(ctx, joinAgain) {
			return "", ctx.Err()
		}
	}
	for {
		token, err := c.newJoinToken(ctx, p.kind)
		switch {
		case err == nil:
			return token, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, sdk.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return "", fmt.Errorf("make a join token: %w", err)
		}
		if !wait.For(ctx, joinAgain) {
			return "", ctx.Err()
		}
	}
}

// hasJoined reports whether the process has a certificate, and what it needs to start without a token.
func (p *localProcess) hasJoined() bool {
	if p.kind == "host" {
		return certificates.HasJoined(p.data)
	}
	_, err := os.Stat(filepath.Join(p.data, datadir.SealedAuthorityFile))
	return err == nil
}

// newJoinToken makes a token for one machine. The error is [fs.ErrNotExist] before the first server has made the
// authority.
func (c *localCluster) newJoinToken(ctx context.Context, kind string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	root, err := c.authority()
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	client, err := sdk.Dial(ctx, strings.Join(c.urls(), ","), sdk.Options{Token: c.admin, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}})
	if err != nil {
		return "", err
	}
	defer client.Close() //nolint:errcheck // the answer has come
	token, err := client.CreateJoinToken(ctx, sdk.NewJoinToken{Kind: kind})
	return token.GetToken(), err
}

// authority returns the certificate of the authority. The cluster's directory has a copy of it: the first server may
// lose its own.
func (c *localCluster) authority() ([]byte, error) {
	own := c.dir.Join(datadir.AuthorityFile)
	root, err := os.ReadFile(own)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if root, err = os.ReadFile(filepath.Join(c.dir.Join(serverName(0)), datadir.AuthorityFile)); err != nil {
		return nil, err
	}
	return root, datadir.WriteFile(own, root, 0o644)
}
