package cron

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// commands are the commands about cron expressions.
type commands struct {
	*output.Printer
}

// Command returns the command "cron".
func Command(printer *output.Printer) *cobra.Command {
	c := &commands{printer}
	return command.Group("cron", "Show what a cron expression means, without a server", c.next(), c.explain(), c.lint())
}

// expression holds the flags about an expression that all cron commands share.
type expression struct {
	zone, dialect, gap, fold, overlap, seed, from string
}

func (f *expression) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.zone, "zone", "UTC", "IANA time `zone`, as Asia/Shanghai")
	flags.StringVar(&f.dialect, "dialect", string(cron.DialectAuto), "auto (5 fields are Unix, 6 or 7 Quartz), unix, quartz")
	flags.StringVar(&f.gap, "gap", string(cron.GapShift), "times that do not exist when clocks go forward: shift, skip")
	flags.StringVar(&f.fold, "fold", string(cron.FoldFirst), "times that exist twice when clocks go back: first, second, both")
	flags.StringVar(&f.overlap, "overlap", "", "the former name of --fold: first, last, both")
	if err := flags.MarkDeprecated("overlap", "it is --fold now, and last is second"); err != nil {
		panic(err) // the flag is missing in this program
	}
	flags.StringVar(&f.seed, "seed", "", "text that H is hashed from: APP/JOB for the schedule of a job")
	command.Complete(cmd, "dialect", "auto", "unix", "quartz")
	command.Complete(cmd, "gap", "shift", "skip")
	command.Complete(cmd, "fold", "first", "second", "both")
}

func (f *expression) addFrom(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.from, "from", "", "begin after this `time`, RFC 3339 (default now)")
}

func (f *expression) parse(expr string) (*cron.Schedule, error) {
	loc, err := cron.LoadZone(f.zone)
	if err != nil {
		return nil, command.Fail("invalid_argument", "%v", err)
	}
	switch f.overlap {
	case "":
	case "last":
		f.fold = string(cron.FoldSecond)
	default:
		f.fold = f.overlap
	}
	schedule, err := cron.Parse(expr, loc, cron.Options{
		Dialect: cron.Dialect(f.dialect), Gap: cron.GapPolicy(f.gap), Fold: cron.FoldPolicy(f.fold), Seed: f.seed,
	})
	if err != nil {
		return nil, command.Fail("invalid_argument", "%v", err)
	}
	return schedule, nil
}

func (f *expression) start(cmd *cobra.Command) (time.Time, error) {
	if f.from == "" {
		return time.Now(), nil
	}
	t, err := time.Parse(time.RFC3339, f.from)
	if err != nil {
		return time.Time{}, command.Usage(cmd, "--from %q: want a time as 2026-03-08T00:00:00Z", f.from)
	}
	return t, nil
}

func (c *commands) next() *cobra.Command {
	var f expression
	var n int
	cmd := &cobra.Command{
		Use:     "next EXPR",
		Short:   "Print the next times at which an expression fires",
		Example: `  wheelwork cron next "0 30 2 * * *" --zone America/New_York --from 2026-03-08T00:00:00-05:00 -n 1 -o json`,
		Args:    command.Arguments("EXPR"),
	}
	f.add(cmd)
	f.addFrom(cmd)
	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if n < 1 || n > 100_000 {
			return command.Usage(cmd, "-n %d: want 1 to 100000", n)
		}
		from, err := f.start(cmd)
		if err != nil {
			return err
		}
		schedule, err := f.parse(args[0])
		if err != nil {
			return err
		}
		times := []string{} // never null in JSON
		for t, ok := schedule.Next(from); ok && len(times) < n; t, ok = schedule.Next(t) {
			times = append(times, t.Format(time.RFC3339))
		}
		if len(times) < n {
			c.Note("the expression does not fire again after that")
		}
		return c.printTexts(times)
	}
	return cmd
}

func (c *commands) explain() *cobra.Command {
	var f expression
	var lang string
	cmd := &cobra.Command{
		Use:     "explain EXPR",
		Short:   "Describe an expression in words",
		Example: `  wheelwork cron explain "0 0 9 ? * MON-FRI" --lang zh`,
		Args:    command.Arguments("EXPR"),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&lang, "lang", "en", "language: en, zh")
	command.Complete(cmd, "lang", "en", "zh")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if lang != "en" && lang != "zh" {
			return command.Usage(cmd, "--lang %q: want en or zh", lang)
		}
		schedule, err := f.parse(args[0])
		if err != nil {
			return err
		}
		return c.printTexts([]string{schedule.Explain(lang)})
	}
	return cmd
}

func (c *commands) lint() *cobra.Command {
	var f expression
	cmd := &cobra.Command{
		Use:   "lint EXPR",
		Short: "Warn of surprising times; exit code 1 if there are warnings",
		Args:  command.Arguments("EXPR"),
	}
	f.add(cmd)
	f.addFrom(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, err := f.start(cmd)
		if err != nil {
			return err
		}
		schedule, err := f.parse(args[0])
		if err != nil {
			return err
		}
		warnings := append([]string{}, schedule.Lint(from)...)
		if err := c.printTexts(warnings); err != nil {
			return err
		}
		if len(warnings) > 0 {
			what := "warnings"
			if len(warnings) == 1 {
				what = "warning"
			}
			return command.Fail("lint", "%d %s about %q", len(warnings), what, args[0])
		}
		return nil
	}
	return cmd
}

// printTexts prints plain texts: one on each line, or an array.
func (c *commands) printTexts(texts []string) error {
	switch c.Format {
	case output.JSON:
		return json.NewEncoder(c.Out).Encode(texts)
	case output.YAML:
		return yaml.NewEncoder(c.Out).Encode(texts)
	}
	for _, text := range texts {
		if c.Format == output.JSONL {
			line, err := json.Marshal(text)
			if err != nil {
				return err
			}
			text = string(line)
		}
		if _, err := fmt.Fprintln(c.Out, text); err != nil {
			return err
		}
	}
	return nil
}
