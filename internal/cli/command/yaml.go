package command

import (
	"errors"
	"regexp"
	"strings"
)

// unknownField matches the text of package yaml about a field that a document may not
// have.
var unknownField = regexp.MustCompile(`field (\S+) not found in type .*`)

// YAMLError rewrites an error of package yaml for people: on one line, without the name of
// a Go type.
func YAMLError(err error) error {
	text := unknownField.ReplaceAllString(err.Error(), "there is no field $1")
	return errors.New(strings.Join(strings.Fields(text), " "))
}
