package runview

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// Viewer shows runs to the user of a command.
type Viewer struct {
	*output.Printer
	*connect.Server
}

// Print prints a run.
func (v Viewer) Print(run *sdk.Run) error {
	columns := []string{
		"id", "app", "job", "state", "trigger", "triggered by", "cause", "node", "part of", "parts", "covers", "planned at", "started at", "finished at", "purged at", "took", "attempt", "next attempt",
		"host", "alias", "module", "handler", "digest", "progress", "error", "code", "trace", "attempts", "nodes", "input", "output",
	}
	return v.PrintOne(columns, output.Message(run, func() []output.Cell {
		tint := output.StateTint(run.GetState())
		return []output.Cell{
			{Text: run.GetId()},
			{Text: run.GetApp()},
			{Text: run.GetJob()},
			{Text: run.GetState(), Tint: tint},
			{Text: run.GetTrigger()},
			{Text: run.GetTriggeredBy()},
			{Text: run.GetCause()},
			{Text: run.GetNode()},
			{Text: partText(run)},
			{Text: partsText(run)},
			{Text: coversText(run.GetCovers())},
			{Text: output.Time(run.GetPlannedAt())},
			{Text: output.Time(run.GetStartedAt())},
			{Text: output.Time(run.GetFinishedAt())},
			{Text: output.Time(run.GetPayloadDeletedAt())},
			{Text: Took(run)},
			{Text: Attempt(run)},
			{Text: output.Time(run.GetNextAttemptAt())},
			{Text: run.GetHost()},
			{Text: run.GetAlias()},
			{Text: run.GetModule()},
			{Text: run.GetHandler()},
			{Text: run.GetDigest()},
			{Text: progressText(run.GetProgress())},
			{Text: run.GetError(), Tint: output.Red},
			{Text: run.GetCode()},
			{Text: run.GetTrace()},
			{Text: attemptsText(run.GetAttempts())},
			{Text: nodesText(run.GetNodes())},
			{Text: output.Payload(run.GetInput(), run.GetInputBytes())},
			{Text: output.Payload(run.GetOutput(), run.GetOutputBytes())},
		}
	}))
}

// Took returns the time from the first start to the end; empty until the end.
func Took(run *sdk.Run) string {
	if run.GetStartedAt() == nil || run.GetFinishedAt() == nil {
		return ""
	}
	return run.GetFinishedAt().AsTime().Sub(run.GetStartedAt().AsTime()).Round(time.Millisecond).String()
}

// Attempt returns the number of the attempt and the maximum. It is empty without an
// attempt, as for workflows and fan-outs, whose nodes and parts have the attempts.
func Attempt(run *sdk.Run) string {
	switch {
	case run.GetAttempt() == 0:
		return ""
	case run.GetMaxAttempts() == 0:
		return fmt.Sprint(run.GetAttempt())
	}
	return fmt.Sprintf("%d/%d", run.GetAttempt(), run.GetMaxAttempts())
}

// partText names the run of which this run is a part.
func partText(run *sdk.Run) string {
	if run.GetParent() == "" {
		return ""
	}
	return fmt.Sprintf("%s, number %d of 0 to %d", run.GetParent(), run.GetPart(), run.GetParts()-1)
}

// partsText summarizes the states of a run's parts.
func partsText(run *sdk.Run) string {
	if run.GetParts() == 0 || run.GetParent() != "" {
		return ""
	}
	return fmt.Sprintf("%d: %d succeeded, %d did not, %d are live", run.GetParts(), run.GetPartsSucceeded(), run.GetPartsFailed(),
		run.GetParts()-run.GetPartsSucceeded()-run.GetPartsFailed())
}

func coversText(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d more planned times that passed", n)
}

func progressText(p *sdk.Progress) string {
	switch {
	case p == nil:
		return ""
	case p.GetTotal() > 0:
		return strings.TrimSpace(fmt.Sprintf("%d of %d %s", p.GetDone(), p.GetTotal(), p.GetMessage()))
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", p.GetDone(), p.GetMessage()))
}

// attemptsText lists the attempts if there was more than one.
func attemptsText(attempts []*sdk.Attempt) string {
	if len(attempts) < 2 {
		return ""
	}
	var lines []string
	for _, a := range attempts {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d %s on %s %s", a.GetNumber(), cmp.Or(a.GetOutcome(), "running"), a.GetHost(), a.GetError())))
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
