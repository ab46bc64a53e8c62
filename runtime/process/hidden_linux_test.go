package process

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHideMemory inspects another process of this test binary that has hidden its memory.
func TestHideMemory(t *testing.T) {
	const again = "WHEELWORK_TEST_HIDES_ITS_MEMORY"
	if os.Getenv(again) != "" {
		if err := HideMemory(); err != nil {
			t.Fatal(err)
		}
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		if err != nil || dumpable != 0 {
			t.Errorf("dumpable: %d, %v", dumpable, err)
		}
		var core unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil || core.Cur != 0 || core.Max != 0 {
			t.Errorf("core dumps of up to %d, %d bytes, %v", core.Cur, core.Max, err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestHideMemory$", "-test.v")
	cmd.Env = append(os.Environ(), again+"=1")
	if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), "--- PASS: TestHideMemory") {
		t.Errorf("%v\n%s", err, said)
	}
}
