package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Report is the output of one benchmark.
type Report struct {
	Bench   string  `json:"bench"`
	Machine Machine `json:"machine"`
	Rows    []Row   `json:"rows"`
}

// Row is one measured number. With an anchor measured in the same run, the goal applies
// to the ratio of the value to the anchor. Without an anchor it applies to the value. A
// row without a goal is informational. A skipped row has no numbers.
type Row struct {
	Name        string   `json:"name"`
	Value       float64  `json:"value"`
	Unit        string   `json:"unit"`
	Anchor      *string  `json:"anchor"`
	AnchorValue *float64 `json:"anchor_value"`
	Ratio       *float64 `json:"ratio"`
	Goal        *Goal    `json:"goal"`
	Met         *bool    `json:"met"`
	Skipped     string   `json:"skipped,omitempty"` // why there are no numbers
	Note        string   `json:"note,omitempty"`    // information needed to read the numbers
}

// Goal is an inclusive bound.
type Goal struct {
	least bool
	bound float64
}

// AtLeast returns the goal of a number that should be large.
func AtLeast(bound float64) *Goal { return &Goal{least: true, bound: bound} }

// AtMost returns the goal of a number that should be small.
func AtMost(bound float64) *Goal { return &Goal{bound: bound} }

// Met reports whether a value meets the goal.
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

// MarshalText returns the form of the goal in JSON, for example ">=20000".
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

// AddRatio appends a row whose goal applies to the ratio of its value to the anchor's.
func (r *Report) AddRatio(name string, value float64, unit, anchor string, anchorValue float64, goal *Goal) {
	ratio := value / anchorValue
	row := Row{Name: name, Value: value, Unit: unit, Anchor: &anchor, AnchorValue: &anchorValue, Ratio: &ratio, Goal: goal}
	if goal != nil {
		met := goal.Met(ratio)
		row.Met = &met
	}
	r.Rows = append(r.Rows, row)
}

// Skip appends a row that could not be measured. Its goal is not applied.
func (r *Report) Skip(name, unit, why string, goal *Goal) {
	r.Rows = append(r.Rows, Row{Name: name, Unit: unit, Goal: goal, Skipped: why})
}

// Note sets the note of the row that was added last.
func (r *Report) Note(text string) { r.Rows[len(r.Rows)-1].Note = text }

// WriteJSON writes the report as one object on one line.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // so that goals stay readable
	return e.Encode(r)
}

// WriteTable writes the report as a table for people.
func (r *Report) WriteTable(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s on %d × %s, %.1f GiB, Linux %s, %s, %s\n\n",
		r.Bench, m.CPUs, m.CPUModel, float64(m.Memory)/(1<<30), m.Kernel, m.Go, m.DiskFS)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tVALUE\tUNIT\tGOAL\tMET\tRATIO\tANCHOR")
	for _, row := range r.Rows {
		value := strconv.FormatFloat(row.Value, 'g', 4, 64)
		if row.Skipped != "" {
			value = "-"
		}
		goal, met := "", ""
		if row.Goal != nil {
			goal = row.Goal.String()
		}
		if row.Met != nil {
			met = "no"
			if *row.Met {
				met = "yes"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", row.Name, value, row.Unit, goal, met, row.remark())
	}
	return t.Flush()
}

// remark returns the text after the last column of a row: the ratio and anchor or the
// reason for a skip, and the note.
func (row *Row) remark() string {
	text := "\t"
	switch {
	case row.Skipped != "":
		text += "skipped: " + row.Skipped
	case row.Anchor != nil:
		text = fmt.Sprintf("%.3g\t%s %.4g", *row.Ratio, *row.Anchor, *row.AnchorValue)
	}
	if row.Note != "" {
		text += " (" + row.Note + ")"
	}
	return text
}
