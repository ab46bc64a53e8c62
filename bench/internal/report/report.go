package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Report is what one benchmark prints.
type Report struct {
	Bench   string  `json:"bench"`
	Machine Machine `json:"machine"`
	Rows    []Row   `json:"rows"`
}

// Row is one measured number. A row is judged by its goal: by its ratio to an
// anchor measured in the same run, or, without an anchor, by the value itself.
// Without a goal the row only informs.
type Row struct {
	Name        string   `json:"name"`
	Value       float64  `json:"value"`
	Unit        string   `json:"unit"`
	Anchor      *string  `json:"anchor"`
	AnchorValue *float64 `json:"anchor_value"`
	Ratio       *float64 `json:"ratio"`
	Goal        *Goal    `json:"goal"`
	Met         *bool    `json:"met"`
}

// Goal is a bound, itself included.
type Goal struct {
	least bool
	bound float64
}

// AtLeast is the goal of a number that should be large.
func AtLeast(bound float64) *Goal { return &Goal{least: true, bound: bound} }

// AtMost is the goal of a number that should be small.
func AtMost(bound float64) *Goal { return &Goal{bound: bound} }

// Met reports whether a value reaches the goal.
func (g Goal) Met(value float64) bool {
	if g.least {
		return value >= g.bound
	}
	return value <= g.bound
}

func (g Goal) String() string {
	sign := "<="
	if g.least {
		sign = ">="
	}
	return sign + strconv.FormatFloat(g.bound, 'f', -1, 64)
}

// MarshalText is the form in JSON: ">=20000".
func (g Goal) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// Add appends a row without an anchor. A nil goal makes it informational.
func (r *Report) Add(name string, value float64, unit string, goal *Goal) {
	row := Row{Name: name, Value: value, Unit: unit, Goal: goal}
	if goal != nil {
		met := goal.Met(value)
		row.Met = &met
	}
	r.Rows = append(r.Rows, row)
}

// WriteJSON writes the report as one object on one line.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // goals stay readable
	return e.Encode(r)
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s on %d × %s, %.1f GiB, Linux %s, %s, %s\n\n",
		r.Bench, m.CPUs, m.CPUModel, float64(m.Memory)/(1<<30), m.Kernel, m.Go, m.DiskFS)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tVALUE\tUNIT\tGOAL\tMET")
	for _, row := range r.Rows {
		goal, met := "", ""
		if row.Goal != nil {
			goal, met = row.Goal.String(), "no"
			if *row.Met {
				met = "yes"
			}
		}
		fmt.Fprintf(t, "%s\t%.4g\t%s\t%s\t%s\n", row.Name, row.Value, row.Unit, goal, met)
	}
	return t.Flush()
}
