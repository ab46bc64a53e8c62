// Package version returns the version of this program and what it was built from.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// release is set by the linker for a release: -ldflags "-X …/version.release=v1.2.3".
var release = ""

// String returns the version for people: a release, or "dev".
func String() string { return cmp.Or(release, "dev") }

// Message returns the version with the build information of the toolchain.
func Message() *apiv1.Version {
	v := &apiv1.Version{Version: String(), Go: runtime.Version()}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
