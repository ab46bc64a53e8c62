package house

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// retired are the words that no identifier has, with the term of the glossary that
// replaces each.
var retired = map[string]string{
	"apart":    "errIfCrossPartition, or split",
	"cargo":    "pendingAppend",
	"choosy":   "constrained",
	"crowd":    "HostDemand",
	"division": "host assignment",
	"handOn":   "flushMetrics",
	"linger":   "commit delay",
	"places":   "placement, index or arena",
	"poke":     "wake",
	"rack":     "free list or partition services",
	"rewind":   "rebuildTimers",
	"roster":   "candidates or cluster view",
	"seat":     "host capacity",
	"shelf":    "module entry or code cache",
	"shepherd": "slot mover",
	"stays":    "errIfMoving",
	"steward":  "balancer",
	"tallies":  "deferred statistics",
}

// plainRooms are the rooms without retired words, each with the rooms below it: all of them.
var plainRooms = []string{
	"access", "alert", "api", "backup", "bench", "cmd", "console", "examples", "host", "ingress", "internal", "job", "journal", "modules", "mq", "nameserver", "node", "runtime", "sched", "sdk", "store", "tools",
}

// TestRetiredNames keeps the retired words out of the names of packages, files, types,
// functions, methods, fields, parameters, constants and package variables in the plain
// rooms. A test's name is a sentence and may have any word.
func TestRetiredNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		room, ok := plainRoom(s.room())
		if !ok {
			continue
		}
		seen[room] = true
		check := func(n ast.Node, name string) {
			if word, ok := retiredIn(name); ok {
				t.Errorf("%s: the name %s has the retired word %s: see docs/glossary.md, and write %s", s.at(n), name, word, retired[word])
			}
		}
		check(s.file.Name, s.file.Name.Name)
		check(s.file.Name, strings.TrimSuffix(path.Base(s.path), ".go"))
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, name := range declared(n) {
				check(name, name.Name)
			}
			return true
		})
	}
	for _, room := range plainRooms {
		if !seen[room] {
			t.Errorf("plainRooms has %s, which has no Go file", room)
		}
	}
}

// TestRetiredIn keeps the rule from passing everything.
func TestRetiredIn(t *testing.T) {
	for name, want := range map[string]string{
		"shelf": "shelf", "Shelf": "shelf", "moduleShelf": "shelf", "shelfPath": "shelf", "handOn": "handOn", "HandOnAll": "handOn",
		"HTTPSeat": "seat", "placesOf": "places", "replaces": "", "track": "", "handOnly": "", "Seattle": "", "crowds": "", "": "",
	} {
		if word, _ := retiredIn(name); word != want {
			t.Errorf("%q has the retired word %q, want %q", name, word, want)
		}
	}
}

func plainRoom(room string) (string, bool) {
	i := slices.IndexFunc(plainRooms, func(plain string) bool { return room == plain || strings.HasPrefix(room, plain+"/") })
	if i < 0 {
		return "", false
	}
	return plainRooms[i], true
}

// declared returns the names that a declaration introduces: of types, functions, methods,
// fields, parameters, constants and package variables.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.FuncDecl:
		if n.Recv == nil && isTestName(n.Name.Name) {
			return nil
		}
		return []*ast.Ident{n.Name}
	case *ast.Field:
		return n.Names
	case *ast.ValueSpec:
		return n.Names
	}
	return nil
}

func isTestName(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// retiredIn returns the retired word in a name, in any case.
func retiredIn(name string) (string, bool) {
	words := "_" + strings.Join(wordsOf(name), "_") + "_"
	for word := range retired {
		if strings.Contains(words, "_"+strings.Join(wordsOf(word), "_")+"_") {
			return word, true
		}
	}
	return "", false
}

// wordsOf splits a name in mixed caps into its words, in lower case.
func wordsOf(name string) (words []string) {
	runes, from := []rune(name), 0
	for i, r := range runes {
		ends := i == len(runes)-1 || r == '_' || runes[i+1] == '_' ||
			unicode.IsUpper(runes[i+1]) && (!unicode.IsUpper(r) || i+2 < len(runes) && unicode.IsLower(runes[i+2]))
		if ends {
			if word := strings.ToLower(strings.Trim(string(runes[from:i+1]), "_")); word != "" {
				words = append(words, word)
			}
			from = i + 1
		}
	}
	return words
}
