package job

import "strings"

// Usage is what an app has of what its limits bound: the slots of an app share one.
type Usage struct {
	Jobs  int64
	Bytes int64 // of the definitions of jobs and the inputs of live runs
}

// names has the names of callers, so that live runs retain neither messages nor copies of their own.
type names map[string]string

// maxNames bounds the names of a slot.
const maxNames = 1024

// shared returns the shared copy of a name.
func (n *names) shared(of string) string {
	if of == "" {
		return ""
	}
	if shared, ok := (*n)[of]; ok {
		return shared
	}
	if *n == nil || len(*n) >= maxNames {
		*n = names{}
	}
	of = strings.Clone(of)
	(*n)[of] = of
	return of
}
