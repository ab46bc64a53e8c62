package console

import (
	"slices"
	"strings"
)

const (
	// maxCompared bounds the work of a comparison of two texts: the product of the numbers of the
	// lines that differ. Above it these lines count as replaced.
	maxCompared = 1_000_000
	// maxDiff bounds the lines that a comparison shows of one file.
	maxDiff = 1000
	// around is the number of equal lines that are shown before and after a change.
	around = 3
)

// textChanges are the lines of one file in which two versions of a script differ.
type textChanges struct {
	File  string
	Lines []textChange // at most maxDiff
	Cut   bool         // there are more
}

// textChange is one line of a comparison.
type textChange struct {
	Kind string // del, ins or same; gap replaces equal lines that the page omits
	Text string
}

// compareTexts compares two sets of files. Files that are equal are left out.
func compareTexts(old, next map[string]string) []textChanges {
	names := map[string]bool{}
	for name := range old {
		names[name] = true
	}
	for name := range next {
		names[name] = true
	}
	var all []textChanges
	for name := range names {
		_, was := old[name]
		_, is := next[name]
		if was && is && old[name] == next[name] {
			continue
		}
		lines := withGaps(compareLines(linesOf(old[name]), linesOf(next[name])))
		c := textChanges{File: name, Lines: lines[:min(len(lines), maxDiff)]}
		c.Cut = len(lines) > maxDiff
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b textChanges) int { return strings.Compare(a.File, b.File) })
	return all
}

// linesOf returns the lines of a text; an empty text has none.
func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compareLines returns the shortest way from one list of lines to another, deletions first.
func compareLines(old, next []string) []textChange {
	head := 0
	for head < len(old) && head < len(next) && old[head] == next[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(next)-head && old[len(old)-1-tail] == next[len(next)-1-tail] {
		tail++
	}
	out := marked("same", old[:head])
	out = append(out, compareMiddle(old[head:len(old)-tail], next[head:len(next)-tail])...)
	return append(out, marked("same", old[len(old)-tail:])...)
}

// compareMiddle compares lines by their longest common subsequence.
func compareMiddle(old, next []string) []textChange {
	if len(old)*len(next) > maxCompared {
		return append(marked("del", old), marked("ins", next)...)
	}
	width := len(next) + 1
	common := make([]int32, (len(old)+1)*width) // length of the common subsequence of the rests of both
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(next) - 1; j >= 0; j-- {
			if old[i] == next[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	var out []textChange
	i, j := 0, 0
	for i < len(old) && j < len(next) {
		switch {
		case old[i] == next[j]:
			out = append(out, textChange{"same", old[i]})
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			out = append(out, textChange{"del", old[i]})
			i++
		default:
			out = append(out, textChange{"ins", next[j]})
			j++
		}
	}
	return append(append(out, marked("del", old[i:])...), marked("ins", next[j:])...)
}

func marked(kind string, lines []string) []textChange {
	out := make([]textChange, len(lines))
	for i, line := range lines {
		out[i] = textChange{kind, line}
	}
	return out
}

// withGaps leaves out equal lines that are further than around lines from a change.
func withGaps(all []textChange) []textChange {
	near := make([]bool, len(all))
	for i, c := range all {
		if c.Kind == "same" {
			continue
		}
		for k := max(0, i-around); k < min(len(all), i+around+1); k++ {
			near[k] = true
		}
	}
	var out []textChange
	for i, c := range all {
		switch {
		case near[i]:
			out = append(out, c)
		case i == 0 || near[i-1]:
			out = append(out, textChange{Kind: "gap"})
		}
	}
	return out
}
