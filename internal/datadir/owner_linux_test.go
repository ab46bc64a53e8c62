package datadir

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestRecoveryOfAService writes a recovery as root into the directory of a service with a user of its own,
// which must be able to read it.
func TestRecoveryOfAService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes files of others")
	}
	d, err := Open(t.TempDir(), ServerForm)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // a test's
	const user, group = 61184, 61185
	if err := os.Chown(d.Path, user, group); err != nil {
		t.Skip("this file system has one owner: ", err)
	}
	if err := d.WriteRecovery(Recovery{Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.Join(recoveryFile))
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != user || st.Gid != group || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is of %d:%d with mode %v", st.Uid, st.Gid, info.Mode())
	}
}
