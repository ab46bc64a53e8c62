package document

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoFiles: a server that reads the document of a visitor reads no file for it.
func TestNoFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(path, []byte("a secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := "name: a\ninputFile: " + path + "\n"
	if all, err := Parse(strings.NewReader(source), Options{}); err != nil || len(all) != 1 {
		t.Fatalf("with files: %v, %v", all, err)
	}
	all, err := Parse(strings.NewReader(source), Options{NoFiles: true})
	if len(all) > 0 || err == nil || !strings.HasPrefix(err.Error(), "2:12: inputFile: no file can be read here") {
		t.Errorf("without files: %v, %v", all, err)
	}
}

// TestReadFiles reads a folder, a file and standard input together.
func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("jobs/b.yaml", "name: b\ninputFile: data.csv\n")
	write("jobs/a.json", `{"kind":"Calendar","name":"a"}`)
	write("jobs/data.csv", "x,1\n")
	write("jobs/README.md", "no document")
	write("jobs/more/e.yaml", "name: e\n")
	write("jobs/.hidden/f.yaml", "name: f\n")
	other := write("c.yml", "name: c\n---\nkind: App\nname: shop\n")
	documents, err := ReadFiles(strings.NewReader("name: d\n"), []string{filepath.Join(dir, "jobs"), other, "-"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range documents {
		if d.App == "" {
			d.SetApp("default")
		}
		got = append(got, d.String()+" of "+d.App+" at "+strings.TrimPrefix(d.At.String(), dir+"/"))
	}
	want := "calendar a of default at jobs/a.json:1:1, job b of default at jobs/b.yaml:1:1, job e of default at jobs/more/e.yaml:1:1, job c of default at c.yml:1:1, app shop of shop at c.yml:3:1, job d of default at 1:1"
	if strings.Join(got, ", ") != want {
		t.Errorf("read %s\nwant %s", strings.Join(got, ", "), want)
	}
	if err := CheckUnique(documents); err != nil {
		t.Error(err)
	}
	again := write("again.yaml", "name: c\n---\napp: other\nname: b\n")
	more, err := ReadFiles(nil, []string{again}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	more[0].SetApp("default")
	err = CheckUnique(append(documents, more...))
	if want := again + ":1:1: job c is defined twice, first at " + other + ":1:1: keep one of the two"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}

	one, two := write("one.yaml", "name: a\nnosuch: 1\n"), write("two.yaml", "name: [\n")
	_, err = ReadFiles(nil, []string{one, two}, Options{})
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 2 || problems[0].At.File != one || problems[1].At.File != two {
		t.Errorf("%v", err)
	}
	if _, err := ReadFiles(nil, []string{filepath.Join(dir, "nosuch.yaml")}, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestSetApp sets the app of each kind that has one.
func TestSetApp(t *testing.T) {
	for _, k := range Kinds() {
		documents, err := Parse(strings.NewReader(k.Sample()), Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := documents[0]
		d.SetApp("billing")
		want := "billing"
		if k == appKind {
			want = "shop" // it is an app, and in none
		}
		if app, name := k.Identity(d.Spec); d.App != want || app != want || name != d.Name {
			t.Errorf("%s: app %s and %s, name %s and %s", k.Name, d.App, app, d.Name, name)
		}
	}
}
