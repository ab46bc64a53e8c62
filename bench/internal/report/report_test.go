package report

import (
	"bytes"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	r := Report{Bench: "core", Machine: Machine{CPUs: 2, CPUModel: "x", Memory: 1 << 30, Kernel: "6.1", Go: "go1.26", DiskFS: "ext4"}}
	r.Add("throughput", 1234.5, "runs/s", AtLeast(20000))
	r.Add("latency", 2, "ms", AtMost(2))
	r.Add("other", 1, "s", nil)
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	const want = `{"bench":"core","machine":{"cpus":2,"cpu_model":"x","memory":1073741824,"kernel":"6.1","go":"go1.26","disk_fs":"ext4"},"rows":[` +
		`{"name":"throughput","value":1234.5,"unit":"runs/s","anchor":null,"anchor_value":null,"ratio":null,"goal":">=20000","met":false},` +
		`{"name":"latency","value":2,"unit":"ms","anchor":null,"anchor_value":null,"ratio":null,"goal":"<=2","met":true},` +
		`{"name":"other","value":1,"unit":"s","anchor":null,"anchor_value":null,"ratio":null,"goal":null,"met":null}]}`
	if got := strings.TrimSpace(b.String()); got != want {
		t.Errorf("JSON\n%s\nwant\n%s", got, want)
	}
	b.Reset()
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"throughput  1234   runs/s  >=20000  no", "latency     2      ms      <=2      yes"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestAnchoredJSON(t *testing.T) {
	r := Report{Bench: "mq"}
	r.AddRatio("append/256", 30, "msg/s", "raw", 40, AtLeast(0.75))
	r.AddRatio("append/1", 3, "msg/s", "raw", 4, AtLeast(0.8))
	r.Note("as it is")
	r.Skip("append/256/vs-redis", "msg/s", "no redis", AtLeast(4))
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	const want = `"rows":[` +
		`{"name":"append/256","value":30,"unit":"msg/s","anchor":"raw","anchor_value":40,"ratio":0.75,"goal":">=0.75","met":true},` +
		`{"name":"append/1","value":3,"unit":"msg/s","anchor":"raw","anchor_value":4,"ratio":0.75,"goal":">=0.8","met":false,"note":"as it is"},` +
		`{"name":"append/256/vs-redis","value":0,"unit":"msg/s","anchor":null,"anchor_value":null,"ratio":null,"goal":">=4","met":null,"skipped":"no redis"}]}`
	if got := strings.TrimSpace(b.String()); !strings.HasSuffix(got, want) {
		t.Errorf("JSON\n%s\nwant at its end\n%s", got, want)
	}
	b.Reset()
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"yes  0.75   raw 40", "no   0.75   raw 4 (as it is)", "skipped: no redis"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestFileSystem(t *testing.T) {
	const mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/data xfs rw 0 0\nx /tmp btrfs rw 0 0\n"
	for dir, want := range map[string]string{
		"/":            "ext4",
		"/tmpfile":     "ext4",
		"/tmp":         "btrfs",
		"/tmp/data":    "xfs",
		"/tmp/data/x":  "xfs",
		"/tmp/data2/x": "btrfs",
	} {
		if got := fileSystem([]byte(mounts), dir); got != want {
			t.Errorf("fileSystem(%q) = %q, want %q", dir, got, want)
		}
	}
}

func TestKilobytes(t *testing.T) {
	const status = "Name:\tx\nVmRSS:\t   12 kB\n"
	if got := Kilobytes([]byte(status), "VmRSS"); got != 12<<10 {
		t.Errorf("VmRSS = %d, want %d", got, 12<<10)
	}
	if got := Kilobytes([]byte(status), "VmHWM"); got != 0 {
		t.Errorf("VmHWM = %d, want 0", got)
	}
}

func TestReadMachine(t *testing.T) {
	m, err := ReadMachine(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m.CPUs < 1 || m.Memory < 1<<20 || m.Kernel == "" || m.CPUModel == "" || m.DiskFS == "unknown" {
		t.Errorf("the machine is %+v, want every field", m)
	}
}
