package bulk

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// OperationColumns returns the columns of an [OperationRecord].
func OperationColumns() []string {
	return []string{"id", "kind", "state", "examined", "changed", "skipped", "failed", "caller", "started at", "errors"}
}

// OperationRecord returns an operation for printing.
func OperationRecord(op *sdk.Operation) output.Record {
	return output.Message(op, func() []output.Cell {
		examined := fmt.Sprint(op.GetDone() + op.GetSkipped() + op.GetFailed())
		if op.Total != nil {
			examined += fmt.Sprintf(" of %d", op.GetTotal())
		}
		tint := map[string]output.Tint{"done": output.Green, "failed": output.Red}[op.GetState()]
		return []output.Cell{
			{Text: op.GetId()},
			{Text: op.GetKind()},
			{Text: op.GetState(), Tint: tint},
			{Text: examined},
			{Text: fmt.Sprint(op.GetDone())},
			{Text: fmt.Sprint(op.GetSkipped())},
			{Text: fmt.Sprint(op.GetFailed())},
			{Text: op.GetCaller()},
			{Text: output.Time(op.GetStartedAt())},
			{Text: cmp.Or(op.GetError(), strings.Join(op.GetErrors(), "\n")), Tint: output.Red},
		}
	})
}
