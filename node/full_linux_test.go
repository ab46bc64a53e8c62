package node_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// A file system that is really full: new work is refused in one sentence, reading
// continues, nothing is lost, and once there is room again, work continues.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=800m"); err != nil {
		testkit.Lacks(t, "no small disk: a tmpfs cannot be mounted (%v)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	cfg := node.DevConfig{Data: filepath.Join(dir, "data")}
	p := dev(t, cfg)
	conn, ctx := dial(t, p, p.Token)
	if err := push(t, ctx, conn, "greet", "1", greet.Module); err != nil {
		t.Fatal(err)
	}
	jobs, runs := apiv1.NewJobsClient(conn), apiv1.NewRunsClient(conn)
	if _, err := jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: greetJob()}); err != nil {
		t.Fatal(err)
	}
	trigger := func() (string, error) {
		r, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "hello"})
		return r.GetId(), err
	}
	var acked []string
	id, err := trigger()
	if err != nil {
		t.Fatal(err)
	}
	acked = append(acked, id)

	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	for err == nil { // triggers that are still accepted count
		if id, err = trigger(); err == nil {
			acked = append(acked, id)
			await(t, ctx, conn, id)
		}
	}
	if st := status.Convert(err); st.Code() != codes.ResourceExhausted || !strings.Contains(st.Message(), "disk is full") || strings.Contains(st.Message(), "\n") {
		t.Fatalf("a full disk: %v", err)
	}
	if _, err := runs.ListRuns(ctx, &apiv1.ListRunsRequest{}); err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}
	o, err := apiv1.NewClusterClient(conn).GetOverview(ctx, &apiv1.GetOverviewRequest{})
	if err != nil || o.Writable || o.NotWritableReason == "" {
		t.Errorf("overview of a full disk: %v, %v", o, err)
	}
	if err := node.Dev(context.Background(), node.DevConfig{Data: filepath.Join(dir, "other"), Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "are needed to start") {
		t.Errorf("a start on a full disk: %v", err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for { // the server notices the room by itself
		if id, err = trigger(); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("still refused with room again: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	acked = append(acked, id)
	if r := await(t, ctx, conn, id); r.State != "succeeded" {
		t.Fatalf("run with room again: %v", r)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = dev(t, cfg)
	conn, ctx = dial(t, p, p.Token)
	for _, id := range acked {
		if r := await(t, ctx, conn, id); r.State != "succeeded" {
			t.Errorf("acknowledged run %s after all that: %v", id, r)
		}
	}
}

// TestRestoreFullDisk: a restore without room leaves nothing, and works once there is room.
func TestRestoreFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=800m"); err != nil {
		testkit.Lacks(t, "no small disk: a tmpfs cannot be mounted (%v)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := newRecipient(t)
	p := serve(t, node.ServerConfig{Data: filepath.Join(t.TempDir(), "a"), BackupRecipients: []string{r.public}}, nil)
	var made bytes.Buffer
	if _, err := client(t, p, p.Token).Backup(within(t), &made, sdk.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	filler, to := filepath.Join(dir, "filler"), filepath.Join(dir, "to")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, filler)
	if _, err := archive.Restore(within(t), r.opened(t, &made), to, nil, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a restore to a full disk: %v", err)
	}
	if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if res, err := archive.Restore(within(t), r.opened(t, &made), to, nil, nil); err != nil || !res.Key {
		t.Errorf("with room again: %+v, %v", res, err)
	}
}

// fill writes a file until there is no space left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // full is what it shall be
	block := make([]byte, 1<<20)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
