package fault

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// smallDisk mounts a small disk for the data of one server. It returns the reason when it
// cannot.
func smallDisk(t *testing.T, dir string) (missing string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=900m"); err != nil {
		return fmt.Sprintf("no small disk: a tmpfs cannot be mounted (%v)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return ""
}

// fillDisk fills the small disk for a while when its server owns a partition. If another
// server does, fillDisk first stops the other servers until the first one has taken over.
func fillDisk(c *cluster, rnd *rand.Rand) {
	p := c.servers[0]
	// mine reports whether the first server owns everything that has an owner.
	mine := func() bool {
		all := c.owners()
		return len(all) > 0 && !slices.ContainsFunc(all, func(o owner) bool { return o.server != 0 })
	}
	if !mine() {
		for _, s := range c.servers[1:] {
			s.end(syscall.SIGTERM)
		}
		until(c.t, "the server with the small disk to work", 30*time.Second, mine)
		for _, s := range c.servers[1:] {
			s.start()
		}
	}
	filler := filepath.Join(p.dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer f.Close() //nolint:errcheck // full is what it shall be
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		c.t.Error(err)
	}
	wait(awhile(rnd))
	if err := os.Remove(filler); err != nil {
		c.t.Error(err)
	}
}
