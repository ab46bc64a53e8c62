package output

// Tint is the number of an ANSI colour; None leaves the text unchanged.
type Tint string

// Tints.
const (
	None   Tint = ""
	Faint  Tint = "2"
	Red    Tint = "31"
	Green  Tint = "32"
	Yellow Tint = "33"
	Cyan   Tint = "36"
)

// StateTint returns the colour of the state of a run, host, server or partition.
func StateTint(state string) Tint {
	switch state {
	case "succeeded", "up":
		return Green
	case "failed", "timed_out", "missed", "lost":
		return Red
	case "dispatched", "running", "sleeping":
		return Cyan
	case "waiting", "stopped", "cancelled", "cordoned", "draining":
		return Yellow
	}
	return None
}
