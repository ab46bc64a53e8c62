package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) putCalendar() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Create or replace calendars from YAML, JSON or iCalendar",
		Long: `Create or replace the calendars of a file: documents in YAML or JSON, or an
iCalendar file (.ics), whose all-day events become dates. "-" reads standard
input. The server plans the jobs that name a calendar again.`,
		Example: `  wheelwork calendar put holidays.yaml
  wheelwork calendar put ferien.ics --name holidays
  echo '{"name":"weekend","days":["sat","sun"]}' | wheelwork calendar put -`,
		Args: command.Arguments("FILE"),
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the calendar (default the document's, or that of the .ics file)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		calendars, err := readCalendars(cmd.InOrStdin(), args[0], name)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		for _, calendar := range calendars {
			if calendar.GetApp() == "" {
				calendar.App = c.App
			}
			if cmd.Flags().Changed("app") && calendar.GetApp() != c.App {
				return fmt.Errorf("calendar %s belongs to app %s, but --app says %s: change one of them", calendar.GetName(), calendar.GetApp(), c.App)
			}
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			return c.printCalendars(output.Records(func(yield func(*sdk.Calendar, error) bool) {
				for _, calendar := range calendars {
					if kept, err := client.PutCalendar(ctx, calendar); !yield(kept, err) || err != nil {
						return
					}
				}
			}, calendarRow))
		})(cmd, args)
	}
	return cmd
}

// maxCalendarFile bounds the file, in bytes: the API accepts 1 MiB of iCalendar.
const maxCalendarFile = 8 << 20

// readCalendars reads the calendars of a file. If name is set, the file must have one
// calendar, and name replaces its name.
func readCalendars(in io.Reader, file, name string) ([]*sdk.Calendar, error) {
	source, err := readBounded(in, file, maxCalendarFile)
	if err != nil {
		return nil, err
	}
	var calendars []*sdk.Calendar
	if ics := bytes.TrimPrefix(bytes.TrimSpace(source), []byte("\ufeff")); len(ics) >= 6 && bytes.EqualFold(ics[:6], []byte("BEGIN:")) {
		calendars = []*sdk.Calendar{{Ics: string(source)}}
		if file != "-" {
			calendars[0].Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		}
	} else if calendars, err = sdk.ReadCalendars(bytes.NewReader(source)); err != nil {
		return nil, err
	}
	switch {
	case len(calendars) == 0:
		return nil, fmt.Errorf("there is no calendar in it")
	case name != "" && len(calendars) > 1:
		return nil, fmt.Errorf("there are %d calendars in it: --name is for one", len(calendars))
	case name != "":
		calendars[0].Name = name
	}
	for _, calendar := range calendars {
		if calendar.GetName() == "" {
			return nil, fmt.Errorf("a calendar has no name: give one with --name")
		}
	}
	return calendars, nil
}

// calendarRecord returns the record of a calendar: its YAML is the document that defines
// it.
func calendarRecord(calendar *sdk.Calendar, row func() []output.Cell) output.Record {
	r := output.Message(calendar, row)
	r.YAML = func() ([]byte, error) {
		var b bytes.Buffer
		err := sdk.WriteCalendars(&b, calendar)
		return b.Bytes(), err
	}
	return r
}

func (c *commands) printCalendars(calendars iter.Seq2[output.Record, error]) error {
	return c.PrintAll([]string{"name", "dates", "yearly", "days", "updated at", "description"}, calendars)
}

func calendarRow(calendar *sdk.Calendar) output.Record {
	return calendarRecord(calendar, func() []output.Cell {
		return []output.Cell{
			{Text: calendar.GetName()},
			{Text: datesText(calendar.GetDates())},
			{Text: strings.Join(calendar.GetYearly(), " ")},
			{Text: strings.Join(calendar.GetDays(), " ")},
			{Text: output.Time(calendar.GetUpdatedAt())},
			{Text: calendar.GetDescription()},
		}
	})
}

// datesText returns as many dates of a calendar as fit on a line, starting with the next
// ones.
func datesText(dates []string) string {
	const shown = 3
	today := time.Now().UTC().Format(time.DateOnly)
	next := slices.IndexFunc(dates, func(d string) bool { return d[max(0, len(d)-len(today)):] >= today })
	switch {
	case len(dates) <= shown:
		return strings.Join(dates, " ")
	case next < 0:
		return fmt.Sprintf("%d, all passed", len(dates))
	}
	return fmt.Sprintf("%s … (%d)", strings.Join(dates[next:min(next+shown, len(dates))], " "), len(dates))
}

func (c *commands) getCalendar() *cobra.Command {
	return &cobra.Command{
		Use:               "get CALENDAR",
		Short:             "Show a calendar with all its dates; -o yaml prints a document that can be put",
		Example:           `  wheelwork calendar get holidays -o yaml > holidays.yaml`,
		Args:              command.Arguments("CALENDAR"),
		ValidArgsFunction: c.completeCalendars,
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			calendar, err := client.Calendar(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			columns := []string{"name", "app", "description", "dates", "yearly", "days", "updated at"}
			return c.PrintOne(columns, calendarRecord(calendar, func() []output.Cell {
				return []output.Cell{
					{Text: calendar.GetName()},
					{Text: calendar.GetApp()},
					{Text: calendar.GetDescription()},
					{Text: strings.Join(calendar.GetDates(), "\n")},
					{Text: strings.Join(calendar.GetYearly(), "\n")},
					{Text: strings.Join(calendar.GetDays(), " ")},
					{Text: output.Time(calendar.GetUpdatedAt())},
				}
			}))
		}),
	}
}

func (c *commands) listCalendars() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the calendars of an app",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			calendars, err := client.Calendars(ctx, c.App)
			if err != nil {
				return err
			}
			return c.printCalendars(output.Each(calendars, calendarRow))
		}),
	}
}

func (c *commands) deleteCalendar() *cobra.Command {
	return &cobra.Command{
		Use:               "delete CALENDAR",
		Short:             "Delete a calendar that no job names",
		Args:              command.Arguments("CALENDAR"),
		ValidArgsFunction: c.completeCalendars,
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.DeleteCalendar(ctx, c.App, args[0]); err != nil {
				return err
			}
			c.Note("calendar %s: deleted", args[0])
			return nil
		}),
	}
}

// completeCalendars completes the names of calendars in the shell.
func (c *commands) completeCalendars(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		c.Timeout = time.Second
		_ = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			calendars, err := client.Calendars(ctx, c.App)
			for _, calendar := range calendars {
				if strings.HasPrefix(calendar.GetName(), prefix) {
					names = append(names, calendar.GetName())
				}
			}
			return err
		})(cmd, args) // a shell cannot show an error
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
