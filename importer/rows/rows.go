// Package rows holds rows of tables, wherever they were read.
package rows

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row is one row of a table: values by the name of their column in lower case. NULL is a
// missing value.
type Row map[string]string

// Tables are rows by the name of their table in lower case, without a schema.
type Tables map[string][]Row

// Has reports whether a table was found, possibly without rows.
func (t Tables) Has(table string) bool {
	_, ok := t[table]
	return ok
}

// Names returns the names of the tables, sorted.
func (t Tables) Names() []string { return slices.Sorted(maps.Keys(t)) }

// Has reports whether a column has a value other than NULL.
func (r Row) Has(column string) bool {
	_, ok := r[column]
	return ok
}

// Text returns a value as valid text without surrounding space; "" for NULL.
func (r Row) Text(column string) string { return strings.TrimSpace(r.Raw(column)) }

// Raw returns a value as valid text with its space; "" for NULL.
func (r Row) Raw(column string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(r[column], "\x00", ""), "\uFFFD")
}

// Int returns a whole number; 0 for NULL and for other text.
func (r Row) Int(column string) int64 {
	text := strings.TrimSpace(r[column])
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f > -1e18 && f < 1e18 {
		return int64(f)
	}
	return 0
}

// Truth reports whether a value means yes, in the forms of the databases: 1, true, t, y and
// the bit 1.
func (r Row) Truth(column string) bool {
	switch strings.ToLower(r[column]) {
	case "1", "true", "t", "y", "yes", "\x01":
		return true
	}
	return false
}

// Millis returns an instant that is stored as milliseconds since 1970; zero for NULL, 0 and
// less.
func (r Row) Millis(column string) time.Time {
	if ms := r.Int(column); ms > 0 && ms < 1<<48 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}
