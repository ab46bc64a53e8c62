package mq

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindLogs(t *testing.T) {
	root := t.TempDir()
	put := func(names ...string) string {
		t.Helper()
		for _, name := range names {
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	put("a [b]/journal/1.seg", "a [b]/ingress/log/1.seg", "host/spool/1.seg", "half/REPAIR", "empty/x")
	for dir, want := range map[string]string{
		"a [b]":             "map[ingress:a [b]/ingress/log journal:a [b]/journal]",
		"a [b]/journal":     "map[journal:a [b]/journal]",
		"a [b]/ingress":     "map[ingress:a [b]/ingress/log]",
		"a [b]/ingress/log": "map[log:a [b]/ingress/log]",
		"host":              "map[spool:host/spool]",
		"half":              "map[half:half]",
		"empty":             "",
		"nothing":           "",
	} {
		p, err := findLogs(filepath.Join(root, dir))
		got := strings.ReplaceAll(fmt.Sprint(p.all()), root+"/", "")
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %s, want %s (%v)", dir, got, want, err)
		}
	}
}
