package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestRuleset checks that an earlier version of Landlock is asked only for what it knows: it
// would refuse the rest, and the program would not start.
func TestRuleset(t *testing.T) {
	for version := 1; version <= 8; version++ {
		a := (&Box{}).ruleset(version)
		if refer := a.Handled_access_fs&unix.LANDLOCK_ACCESS_FS_REFER != 0; refer != (version >= 2) {
			t.Errorf("version %d: refer %v", version, refer)
		}
		if truncate := a.Handled_access_fs&unix.LANDLOCK_ACCESS_FS_TRUNCATE != 0; truncate != (version >= 3) {
			t.Errorf("version %d: truncate %v", version, truncate)
		}
		if net := a.Handled_access_net == allTCP; net != (version >= 4) {
			t.Errorf("version %d: network %v", version, net)
		}
		if scoped := a.Scoped != 0; scoped != (version >= 6) {
			t.Errorf("version %d: scoped %v", version, scoped)
		}
		if a := (&Box{Network: true}).ruleset(version); a.Handled_access_net != 0 {
			t.Errorf("version %d: the whole network is limited", version)
		}
	}
}
