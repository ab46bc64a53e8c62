package node_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestRecover makes an administrator with the files of a stopped server. The server accepts the token
// from its next start, and has its use and its changes in the audit log.
func TestRecover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := dev(t, node.DevConfig{Data: dir})
	if _, _, err := offline.Recover(dir, time.Now()); err == nil || !strings.Contains(err.Error(), "is in use by process") {
		t.Errorf("of a server that runs: %v", err)
	}
	p.stop()
	if _, _, err := offline.Recover(filepath.Join(t.TempDir(), "none"), time.Now()); err == nil || !strings.Contains(err.Error(), "is not the data directory of a server") {
		t.Errorf("of no server: %v", err)
	}
	first, _, err := offline.Recover(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token, until, err := offline.Recover(dir, time.Now())
	if err != nil || time.Until(until) > time.Hour || time.Until(until) < 50*time.Minute {
		t.Fatal(until, err)
	}
	p = dev(t, node.DevConfig{Data: dir})
	as := func(token string) *sdk.Client {
		c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
		return c
	}
	if _, err := as(first).WhoAmI(t.Context()); !errors.Is(err, sdk.ErrUnauthenticated) {
		t.Errorf("a token that another one replaced: %v", err)
	}
	c := as(token)
	who, err := c.WhoAmI(t.Context())
	if err != nil || len(who.Bindings) != 1 || who.Bindings[0].Role != "admin" || who.Principal != "access:recovery" {
		t.Fatal(who, err)
	}
	if _, err := c.CreateUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddBinding(t.Context(), "ada", "admin", sdk.ClusterScope, time.Time{}); err != nil {
		t.Fatal(err)
	}
	reaches(t, spread, "the recovery is in the audit log", func() bool {
		return len(auditOf(t, as(p.Token), sdk.AuditQuery{Code: "access.recovered"})) == 1
	})
	if all := auditOf(t, as(p.Token), sdk.AuditQuery{Actor: who.Principal}); len(all) < 2 {
		t.Errorf("%v", all)
	}
	p.stop()
	p = dev(t, node.DevConfig{Data: dir}) // it is valid for its time, however often the server starts
	if _, err := as(token).WhoAmI(t.Context()); err != nil {
		t.Error(err)
	}
}
