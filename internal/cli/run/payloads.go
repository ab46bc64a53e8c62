package run

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// payloads are the flags that select runs by their inputs and outputs.
type payloads struct {
	input, output             string
	inputValues, outputValues []string // as PATH=VALUE
}

func (p *payloads) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.input, "in-input", "", "only runs whose input contains this `text`; needs --since")
	flags.StringVar(&p.output, "in-output", "", "only runs whose output contains this `text`; needs --since")
	flags.StringArrayVar(&p.inputValues, "input-value", nil, "only runs whose input is JSON with this value, as `PATH=VALUE`; may be repeated, and then all must match; needs --since")
	flags.StringArrayVar(&p.outputValues, "output-value", nil, "only runs whose output is JSON with this value, as `PATH=VALUE`; may be repeated, and then all must match; needs --since")
}

// set adds the conditions to a query.
func (p *payloads) set(cmd *cobra.Command, q *sdk.RunQuery) (err error) {
	for _, name := range []string{"in-input", "in-output", "input-value", "output-value"} {
		if cmd.Flags().Changed(name) && !cmd.Flags().Changed("since") {
			return command.Usage(cmd, "--%s needs a time range: add --since, as in --since 24h", name)
		}
	}
	q.Input, q.Output = p.input, p.output
	if q.InputValues, err = valuesOf(cmd, "input-value", p.inputValues); err != nil {
		return err
	}
	q.OutputValues, err = valuesOf(cmd, "output-value", p.outputValues)
	return err
}

// valuesOf reads values by path from the texts of a flag.
func valuesOf(cmd *cobra.Command, flag string, texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	values := map[string]string{}
	for _, text := range texts {
		path, value, ok := strings.Cut(text, "=")
		if !ok || path == "" {
			return nil, command.Usage(cmd, "--%s %q: want PATH=VALUE, as data.country=DE", flag, text)
		}
		if _, again := values[path]; again {
			return nil, command.Usage(cmd, "--%s: there are two values for %s", flag, path)
		}
		values[path] = value
	}
	return values, nil
}
