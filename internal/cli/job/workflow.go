package job

import (
	"strings"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// workflowText lists the nodes of a workflow with their jobs and conditions.
func workflowText(w *sdk.Workflow) string {
	var lines []string
	for _, n := range w.GetNodes() {
		line := n.GetName() + ": " + n.GetJob()
		if len(n.GetAfter()) > 0 {
			line += " after " + strings.Join(n.GetAfter(), ", ")
		}
		if n.GetWhen() != "" {
			line += " when " + n.GetWhen()
		}
		if n.GetOptional() {
			line += ", optional"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
