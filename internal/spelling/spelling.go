// Package spelling compares a word that a person mistyped with the words that exist.
package spelling

// Distance returns the number of bytes to insert, delete or replace, and of neighbours to
// swap, that turn a into b.
func Distance(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, above, row = above, row, before
		row[0] = i + 1
		for j := range len(b) {
			replaced := above[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, row[j]+1, above[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// Nearest returns the word that is most similar to a mistyped one, or "" if none is
// similar. A short word has to be more similar than a long one: one error in six bytes
// and fewer, two errors in more.
func Nearest(mistyped string, words []string) string {
	best, bestDistance := "", min(1+len(mistyped)/7, 2)+1
	for _, w := range words {
		if d := Distance(mistyped, w); d < bestDistance {
			best, bestDistance = w, d
		}
	}
	return best
}
