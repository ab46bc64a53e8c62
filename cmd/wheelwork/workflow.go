package main

import (
	"fmt"
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

// nodesText lists the states of the nodes in a run of a workflow.
func nodesText(nodes []*sdk.NodeState) string {
	wide := 0
	for _, n := range nodes {
		wide = max(wide, len(n.GetName()))
	}
	var lines []string
	for _, n := range nodes {
		about := n.GetRun()
		if n.GetKept() {
			about += " (kept)"
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%-*s  %-9s  %s %s", wide, n.GetName(), n.GetState(), about, n.GetError())))
	}
	return strings.Join(lines, "\n")
}
