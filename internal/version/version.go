// Package version returns the version of this program and what it was built from.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The linker sets these for a release, see `task release`: -ldflags "-X …/version.release=v1.2.3".
var (
	release = ""
	commit  = "" // the revision of the sources
	date    = "" // the time of that revision, as RFC 3339 in UTC
)

// String returns the version for people: a release, or "dev".
func String() string { return cmp.Or(release, "dev") }

// Line returns the version with the commit and its date, as far as they are known, on one line.
func Line() string {
	v := Message()
	line := v.GetVersion()
	if v.GetCommit() != "" {
		line += " " + v.GetCommit()
	}
	if v.GetDate() != "" {
		line += " " + v.GetDate()
	}
	return line
}

// Message returns the version with the build information of the toolchain.
func Message() *apiv1.Version {
	v := &apiv1.Version{Version: String(), Go: runtime.Version(), Commit: commit, Date: date}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = cmp.Or(v.Commit, s.Value)
			case "vcs.time":
				v.Date = cmp.Or(v.Date, s.Value)
			}
		}
	}
	return v
}
