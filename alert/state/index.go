package state

import (
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/alert/rule"
)

// index finds the rules that select a job without trying all of them: an app may have a thousand
// rules for single jobs.
type index struct {
	named map[string][]*Rule // by the name of a job: rules with names and no patterns
	rest  []indexed
}

// indexed is a rule whose selection is tried if the name of the job begins with one of the prefixes.
type indexed struct {
	rule     *Rule
	prefixes []string // in front of the first special character of each pattern; none: any name
}

func indexOf(rules []*Rule) index {
	x := index{named: map[string][]*Rule{}}
	for _, r := range rules {
		prefixes, exact := prefixesOf(r.Select.Jobs)
		if !exact {
			x.rest = append(x.rest, indexed{r, prefixes})
			continue
		}
		slices.Sort(prefixes)
		for _, name := range slices.Compact(prefixes) {
			x.named[name] = append(x.named[name], r)
		}
	}
	return x
}

// prefixesOf returns what the names that the patterns match begin with. exact reports that the patterns are
// names.
func prefixesOf(patterns []string) (prefixes []string, exact bool) {
	exact = len(patterns) > 0
	for _, p := range patterns {
		at := strings.IndexAny(p, `*?[\\`)
		if at < 0 {
			at = len(p)
		} else {
			exact = false
		}
		prefixes = append(prefixes, p[:at])
	}
	return prefixes, exact
}

// Selecting returns the rules that select a job, in no order.
func (st *State) Selecting(x *rule.Subject) (all []*Rule) {
	for _, r := range st.index.named[x.Job] {
		if r.Selects(x) {
			all = append(all, r)
		}
	}
	for i := range st.index.rest {
		in := &st.index.rest[i]
		if len(in.prefixes) > 0 && !slices.ContainsFunc(in.prefixes, func(p string) bool { return strings.HasPrefix(x.Job, p) }) {
			continue
		}
		if in.rule.Selects(x) {
			all = append(all, in.rule)
		}
	}
	return all
}
