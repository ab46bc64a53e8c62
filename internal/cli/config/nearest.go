package config

import "fmt"

// suggestion returns a question with the name that is nearest to a mistyped one; "" if none
// is near.
func suggestion(name string, names []string) string {
	best, least := "", max(len(name)/3, 1)+1
	for _, n := range names {
		if d := distance(name, n); d < least || d == least && n < best {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

// distance returns how many bytes have to be added, removed or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
