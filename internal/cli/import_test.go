package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImport imports a crontab and a dump, and checks the streams, the scripts and the exit
// codes.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	run := func(in string, args ...string) (int, string, string) {
		var out, errOut strings.Builder
		code := execute(t.Context(), append([]string{"import"}, args...), strings.NewReader(in), &out, &errOut, func(string) string { return "" })
		return code, out.String(), errOut.String()
	}
	code, out, report := run("0 2 * * * backup --all\n", "crontab", "-", "--app", "shop", "--scripts", filepath.Join(dir, "scripts"))
	if code != exitOK || !strings.HasPrefix(out, "app: shop\nname: backup\n") || !strings.Contains(report, "import again with --zone") {
		t.Errorf("exit code %d\n%s\n%s", code, out, report)
	}
	script, err := os.ReadFile(filepath.Join(dir, "scripts", "backup.sh"))
	if err != nil || string(script) != "#!/bin/sh\nbackup --all\n" {
		t.Errorf("%q, %v", script, err)
	}
	if code, _, said := run("0 2 * * * backup\n", "crontab", "-", "--scripts", filepath.Join(dir, "scripts")); code != exitFail || !strings.Contains(said, "is not empty") {
		t.Errorf("scripts into a folder with files: %d, %s", code, said)
	}
	code, out, report = run("CREATE TABLE xxl_job_info (id int, name text);\nINSERT INTO xxl_job_info VALUES (1, 'totals');\n", "xxl-job", "-", "--zone", "UTC", "-o", "json")
	var read struct {
		Lines []struct{ Outcome string }
		Fires []any
	}
	if err := json.Unmarshal([]byte(report), &read); code != exitOK || err != nil || len(read.Lines) == 0 || read.Fires == nil || !strings.HasPrefix(out, "name: totals\n") {
		t.Errorf("exit code %d: %v\n%s\n%s", code, err, out, report)
	}
	for _, x := range []struct {
		code int
		want string
		args []string
	}{
		{exitFail, "not the tables of PowerJob", []string{"powerjob", "-"}},
		{exitFail, "no CronJob", []string{"kubernetes", "-"}},
		{exitFail, "no such file", []string{"k-job", filepath.Join(dir, "none")}},
		{exitFail, "the address of the database cannot be read", []string{"k-job", "oracle://a:b@127.0.0.1/x"}},
		{exitUsage, "there is no such zone", []string{"xxl-job", "-", "--zone", "Mars"}},
		{exitUsage, "go together", []string{"xxl-job", "-", "--mail-from", "a@example.com"}},
	} {
		if code, out, said := run("", x.args...); code != x.code || out != "" || !strings.Contains(said, x.want) {
			t.Errorf("%q: exit code %d, %s, want %d, %s", x.args, code, said, x.code, x.want)
		}
	}
}
