package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeignDirectory opens directories with files that were there before.
func TestForeignDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		files   []string
		refused bool
	}{
		"new":                    {nil, false},
		"credentials beforehand": {[]string{"token", "host-token", "secret.key", "tls.pem", "tls.crt", ".keep"}, false},
		"of a mount":             {[]string{"lost+found/x"}, false},
		"of an older version":    {[]string{"journal/0001", "notes.txt"}, false},
		"of a cluster":           {[]string{"clustered"}, false},
		"of another program":     {[]string{"package.json", "token"}, true},
		"of a user":              {[]string{"Documents/a.txt"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.files {
				path := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d, err := Open(dir, ServerForm)
			if c.refused {
				entries, readErr := os.ReadDir(dir)
				if err == nil || !strings.Contains(err.Error(), "holds files of another program, for example "+filepath.Dir(c.files[0] + "/x")[:4]) {
					t.Errorf("got %v, want a refusal that names a file", err)
				}
				if readErr != nil || len(entries) != len(c.files) {
					t.Errorf("the refusal left %v, %v", entries, readErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if d, err = Open(dir, ServerForm); err != nil { // with what the first start wrote
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
