package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadFiles reads the documents of files, in their order. A name may be that of a folder,
// whose files that end in .yaml, .yml or .json, also in folders in it, are read in the order
// of their paths, or "-" for in. Files and folders whose names begin with a dot are skipped.
// inputFile starts from the folder of each file. The error is of type [Problems] with the
// mistakes of all files, unless a file cannot be read.
func ReadFiles(in io.Reader, names []string, opts Options) ([]*Document, error) {
	files, err := expand(names)
	if err != nil {
		return nil, err
	}
	var documents []*Document
	var problems Problems
	for _, file := range files {
		read, err := readFile(in, file, opts)
		var found Problems
		switch {
		case errors.As(err, &found):
			problems = append(problems, found...)
		case err != nil:
			return nil, err
		}
		documents = append(documents, read...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return documents, nil
}

// expand replaces each folder by its files with documents.
func expand(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		if info, err := os.Stat(name); name == "-" || err != nil || !info.IsDir() { // readFile reports the error
			files = append(files, name)
			continue
		}
		err := filepath.WalkDir(name, func(path string, e fs.DirEntry, err error) error {
			switch hidden := path != name && strings.HasPrefix(e.Name(), "."); {
			case err != nil:
				return err
			case hidden && e.IsDir():
				return fs.SkipDir
			case !hidden && !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

func readFile(in io.Reader, name string, opts Options) ([]*Document, error) {
	opts.File, opts.Dir = "", ""
	if name == "-" {
		return Parse(in, opts)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	opts.File, opts.Dir = name, filepath.Dir(name)
	documents, err := Parse(f, opts)
	var found Problems
	if err != nil && !errors.As(err, &found) {
		err = fmt.Errorf("read %s: %w", name, err)
	}
	return documents, err
}

// CheckUnique returns [Problems] with each document whose kind, app and name an earlier one
// has. Documents without an app have been given theirs before, see [Document.SetApp].
func CheckUnique(documents []*Document) error {
	type identity struct {
		kind      *Kind
		app, name string
	}
	first := map[identity]*Document{}
	var problems Problems
	for _, d := range documents {
		key := identity{d.Kind, d.App, d.Name}
		if before, twice := first[key]; twice {
			problems = append(problems, Problem{At: d.At, Text: fmt.Sprintf("%s is defined twice, first at %s: keep one of the two", d, before.At)})
			continue
		}
		first[key] = d
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}
