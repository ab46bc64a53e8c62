package version

import "testing"

func TestLine(t *testing.T) {
	defer func(r, c, d string) { release, commit, date = r, c, d }(release, commit, date)
	release, commit, date = "v1.2.3", "0123abc", "2026-01-02T03:04:05Z"
	if got, want := Line(), "v1.2.3 0123abc 2026-01-02T03:04:05Z"; got != want {
		t.Errorf("a release says %q, want %q", got, want)
	}
	if v := Message(); v.GetVersion() != release || v.GetCommit() != commit || v.GetDate() != date || v.GetGo() == "" {
		t.Errorf("a release says %v", v)
	}
	release = ""
	if String() != "dev" {
		t.Errorf("what is no release says %q", String())
	}
}
