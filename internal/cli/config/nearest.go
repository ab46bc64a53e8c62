package config

import (
	"fmt"
	"slices"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

// suggestion returns a question with the name that is nearest to a mistyped one; "" if none
// is near.
func suggestion(name string, names []string) string {
	slices.Sort(names)
	if near := spelling.Nearest(name, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}
