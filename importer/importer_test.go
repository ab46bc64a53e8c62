package importer_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/importer"
	"github.com/wheelworkhq/wheelwork/importer/dump"
	"github.com/wheelworkhq/wheelwork/job"
)

var update = flag.Bool("update", false, "write the golden files")

func options(t *testing.T) importer.Options {
	t.Helper()
	in, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	return importer.Options{
		Zone: in, Now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC),
		MailServer: "smtp://mail.example.com", MailFrom: "wheelwork@example.com",
	}
}

func source(t *testing.T, name string) importer.Source {
	t.Helper()
	for _, s := range importer.Sources() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no source %s", name)
	return importer.Source{}
}

// fromDump imports a dump of testdata.
func fromDump(t *testing.T, s importer.Source, file string, o importer.Options) *importer.Result {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := dump.Read(bytes.NewReader(text), s.Wants)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Import(tables, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// text returns a result as one text.
func text(t *testing.T, r *importer.Result) string {
	t.Helper()
	documents, err := document.Marshal(r.Documents...)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.Write(documents)
	b.WriteString("=== report\n")
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "%s | %s | %s | %s\n", l.Object, l.Field, l.Outcome, l.Text)
	}
	b.WriteString("=== times\n")
	for _, x := range r.Fires {
		line, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	for _, f := range r.Files {
		fmt.Fprintf(&b, "=== file %s\n%s", f.Name, f.Text)
	}
	return b.String()
}

// check compares a result with a golden file, and its documents with the rules of the server.
func check(t *testing.T, name string, r *importer.Result) {
	t.Helper()
	got, golden := text(t, r), filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("it differs from %s: go test ./importer -update writes it", golden)
	}
	valid(t, r)
}

// valid reads the documents back and checks them as the server does.
func valid(t *testing.T, r *importer.Result) {
	t.Helper()
	written, err := document.Marshal(r.Documents...)
	if err != nil {
		t.Fatal(err)
	}
	read, err := document.Parse(bytes.NewReader(written), document.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(read) != len(r.Documents) {
		t.Errorf("%d documents are read back of %d", len(read), len(r.Documents))
	}
	again, err := document.Marshal(read...)
	if err != nil || !bytes.Equal(again, written) {
		t.Errorf("the documents change when they are read back: %v", err)
	}
	for _, d := range read {
		switch spec := d.Spec.(type) {
		case *apiv1.Job:
			if !spec.GetPaused() {
				t.Errorf("%s is not paused", d)
			}
			err = job.Validate(spec)
		case *apiv1.AlertChannel:
			_, err = definition.ReadChannel(spec)
		case *apiv1.AlertRule:
			_, _, err = definition.ReadRule(spec)
		}
		if err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// wrong returns the jobs whose times are not equal.
func wrong(r *importer.Result) (names []string) {
	for _, x := range r.Fires {
		if !x.Equal {
			names = append(names, x.Object+": "+x.Text)
		}
	}
	return names
}

func TestXXLJob(t *testing.T) {
	s := source(t, "xxl-job")
	r := fromDump(t, s, "xxl-job.sql", options(t))
	check(t, "xxl-job", r)
	if names := wrong(r); len(names) != 1 || !strings.Contains(names[0], "check --zone") {
		t.Errorf("other times than in the source: %q, want only the job whose stored time is none of its line", names)
	}
	check(t, "xxl-job-2.2", fromDump(t, s, "xxl-job-2.2.sql", options(t)))
	check(t, "xxl-job-postgres", fromDump(t, s, "xxl-job-postgres.sql", options(t)))
}

// TestWithoutOptions checks what an import without a zone and a mail server says.
func TestWithoutOptions(t *testing.T) {
	r := fromDump(t, source(t, "xxl-job"), "xxl-job.sql", importer.Options{Now: options(t).Now, App: "shop"})
	valid(t, r)
	got := text(t, r)
	for _, want := range []string{"xxl-job | zone | to do | ", "import again with --mail-server", "app: shop\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(got, "kind: Alert") {
		t.Error("there are alerts without a mail server")
	}
}

// fromFile imports a file of testdata.
func fromFile(t *testing.T, file string, o importer.Options, convert func([]byte, importer.Options) (*importer.Result, error)) *importer.Result {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := convert(text, o)
	if err != nil {
		t.Fatal(err)
	}
	if names := wrong(r); len(names) > 0 {
		t.Errorf("other times than in the source: %q", names)
	}
	return r
}

func TestCrontab(t *testing.T) {
	o := options(t)
	check(t, "crontab", fromFile(t, "crontab", o, importer.Crontab))
	o.UserColumn = true
	check(t, "crontab.system", fromFile(t, "crontab.system", o, importer.Crontab))
}

func TestKubernetes(t *testing.T) {
	check(t, "kubernetes", fromFile(t, "kubernetes.yaml", options(t), importer.Kubernetes))
}

func TestPowerJob(t *testing.T) {
	for _, name := range []string{"powerjob", "k-job"} {
		r := fromDump(t, source(t, name), name+".sql", options(t))
		check(t, name, r)
		if names := wrong(r); len(names) > 0 {
			t.Errorf("%s: other times than in the source: %q", name, names)
		}
	}
}
