// Package naming defines which names of apps, jobs, modules and buckets are valid.
package naming

import "fmt"

// DefaultApp is the app of a definition that names none.
const DefaultApp = "default"

// MaxName bounds a name, in bytes.
const MaxName = 128

// Valid reports whether s consists of letters, digits, '.', '_' and '-', and begins with
// a letter or a digit. It runs for each command.
func Valid(s string) bool {
	if s == "" || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// Check refuses an invalid name of an app, a job or a module. The message begins with
// what, the kind of name.
func Check(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is missing", what)
	case !Valid(name):
		return fmt.Errorf("%s %q is not a name: use letters, digits, '.', '_' and '-', at most 128, and begin with a letter or a digit", what, name)
	}
	return nil
}
