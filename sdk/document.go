package sdk

import (
	"errors"
	"fmt"
	"io"

	"github.com/wheelworkhq/wheelwork/document"
)

// ReadJobs reads job documents: YAML with any number of documents, JSON objects one after
// another, or lists of jobs in either format. Field names are those of [Job], as in the
// .proto file or in camel case. An unknown field is an error that names its position.
// Numbers, dates and booleans in a text field retain their spelling.
//
// The field inputFile names a file, relative to dir, whose bytes become the input. A job
// without an app stays without one; [Client.Apply] uses [DefaultApp] for it. ReadJobs
// ignores fields that the server sets, except for the etag: see [Client.Apply]. A job
// needs a name, and only one document may define it; the server validates the rest.
func ReadJobs(r io.Reader, dir string) ([]*Job, error) {
	documents, err := document.Parse(r, document.Options{Dir: dir, Only: true, AnyValue: true})
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", firstProblem(err))
	}
	var jobs []*Job
	lines := map[identity]int{}
	for _, d := range documents {
		key := identity{d.App, d.Name}
		switch line, twice := lines[key]; {
		case d.Name == "":
			return nil, fmt.Errorf("read jobs: document %d, line %d: name is missing", d.At.Document, d.At.Line)
		case twice:
			return nil, fmt.Errorf("read jobs: document %d, line %d: job %s is defined twice, first on line %d: keep one of the two", d.At.Document, d.At.Line, d.Name, line)
		}
		lines[key] = d.At.Line
		jobs = append(jobs, d.Spec.(*Job))
	}
	return jobs, nil
}

// firstProblem returns the first of the mistakes in a source, with its position there.
func firstProblem(err error) error {
	var problems document.Problems
	if !errors.As(err, &problems) {
		return err
	}
	first := problems[0]
	if first.At.Document == 0 { // of the source as a whole
		return errors.New(first.Text)
	}
	return fmt.Errorf("document %d, line %d: %s", first.At.Document, first.At.Line, first.Text)
}
