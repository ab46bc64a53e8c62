package importer

import (
	"strings"
	"unicode"

	"github.com/wheelworkhq/wheelwork/job/naming"
)

// longestName leaves room for a suffix.
const longestName = 100

// slug makes a name of a text: other characters than those of names become one dash. A text
// of which less than half or no letter would be left is no name, because its rest misleads.
func slug(text string) string {
	var b strings.Builder
	kept, all := 0, 0
	dash := false
	for _, r := range strings.TrimSpace(text) {
		all++
		plain := r < 0x80 && naming.Valid("a"+string(r))
		switch {
		case plain && (b.Len() > 0 || naming.Valid(string(r))):
			if dash && b.Len() > 0 && r != '-' {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			dash = false
			kept++
		case r == ' ' || r == '/' || r == ':' || r == '_':
			kept++
			dash = true
		default:
			dash = true
		}
	}
	name := strings.TrimRight(b.String(), "-._")
	if kept*2 < all || !strings.ContainsFunc(name, unicode.IsLetter) {
		return ""
	}
	if len(name) > longestName {
		name = strings.TrimRight(name[:longestName], "-._")
	}
	return name
}

// name returns an unused name of a job from the first usable candidate.
func (c *conversion) name(id string, candidates ...string) string {
	base := ""
	for _, text := range candidates {
		if base = slug(text); base != "" {
			break
		}
	}
	if base == "" {
		base = c.source
	} else if !c.used[base] {
		c.used[base] = true
		return base
	}
	return c.unused(base, slug(id))
}

func (c *conversion) unused(base, id string) string {
	name := base
	if id != "" {
		name = base + "-" + id
	}
	for n := 2; c.used[name] || name == base; n++ {
		name = base + "-" + number(n)
	}
	c.used[name] = true
	return name
}
