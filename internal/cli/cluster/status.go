package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the servers of the cluster, and the owner of each partition",
		Long: `Show the servers of the cluster and its partitions. A partition holds apps or parts of
apps; it has one journal and one owner, and the other servers are its standbys.`,
		Example: `  wheelwork cluster status
  wheelwork cluster status -o json | jq '.units[] | {name, owner, schedule_rate}'`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			s, err := client.Cluster(ctx)
			if err != nil {
				return err
			}
			return c.showCluster(s)
		}),
	}
}

func (c *commands) drain() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain SERVER",
		Short: "Move the partitions of a server to other servers, before it is stopped",
		Long: `Move the partitions of a server, named by its id or its address, to other servers. It
stays a standby, and gets no partition until "wheelwork cluster undrain SERVER".`,
		Example: `  wheelwork cluster drain 10.0.0.5:7700 --wait`,
		Args:    command.Arguments("SERVER"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the server owns no partition")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		run := c.Call
		if wait {
			run = c.Wait
		}
		return run(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			s, err := client.Drain(ctx, args[0])
			for err == nil && wait && !owns(s, args[0], 0) {
				if err = sleep(ctx, 200*time.Millisecond); err == nil {
					s, err = client.Cluster(ctx)
				}
			}
			if err != nil {
				return err
			}
			return c.showCluster(s)
		})(cmd, args)
	}
	return cmd
}

// owns reports whether a server owns n partitions.
func owns(s *sdk.Cluster, server string, n int32) bool {
	return slices.ContainsFunc(s.GetServers(), func(m *sdk.Member) bool {
		return (m.GetId() == server || m.GetAddress() == server) && m.GetUnits() == n
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *commands) undrain() *cobra.Command {
	return &cobra.Command{
		Use:     "undrain SERVER",
		Short:   "Let a server own partitions again",
		Example: `  wheelwork cluster undrain 10.0.0.5:7700`,
		Args:    command.Arguments("SERVER"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			s, err := client.Undrain(ctx, args[0])
			if err != nil {
				return err
			}
			return c.showCluster(s)
		}),
	}
}

func (c *commands) move() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "move UNIT SERVER",
		Short: "Move a partition to a server",
		Long: `Move a partition to a server, named by its id or its address. Its jobs pause for a
moment. It stays there for a while; afterwards the balancer may move it again to
balance the load of the servers.`,
		Example: `  wheelwork cluster move main.2 10.0.0.5:7700 --wait`,
		Args:    command.Arguments("UNIT", "SERVER"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the server owns it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		run := c.Call
		if wait {
			run = c.Wait
		}
		return run(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			s, err := client.MoveUnit(ctx, args[0], args[1])
			for err == nil && wait && !moved(s, args[0], args[1]) {
				if err = sleep(ctx, 200*time.Millisecond); err == nil {
					s, err = client.Cluster(ctx)
				}
			}
			if err != nil {
				return err
			}
			return c.showCluster(s)
		})(cmd, args)
	}
	return cmd
}

// moved reports whether a server owns a partition.
func moved(s *sdk.Cluster, partition, server string) bool {
	return slices.ContainsFunc(s.GetUnits(), func(u *sdk.Unit) bool {
		return u.GetName() == partition && (u.GetOwner() == server || u.GetAddress() == server)
	})
}

// showCluster writes a cluster: one object, or two tables for people.
func (c *commands) showCluster(s *sdk.Cluster) error {
	if c.Format != output.Table {
		return c.PrintOne(nil, output.Message(s, nil))
	}
	if s.GetTrouble() != "" {
		fmt.Fprintf(c.Out, "%s\n\n", c.Paint(c.Out, output.Red, "nothing new is accepted: "+output.Printable(s.GetTrouble())))
	}
	columns := []string{"server", "address", "zone", "state", "units", "schedules/s", "capacity", "round trip", "version", "last seen at"}
	if n := s.GetUnitsPerHost(); n > 0 {
		fmt.Fprintf(c.Out, "of %d hosts each works for %d of %d partitions, unless it is called\n\n", s.GetHosts(), n, len(s.GetUnits()))
	}
	err := c.PrintAll(columns, output.Each(s.GetServers(), func(m *sdk.Member) output.Record {
		return output.Message(m, func() []output.Cell { return serverRow(m, s.GetBalancer()) })
	}))
	if err != nil || len(s.GetUnits()) == 0 {
		return err
	}
	fmt.Fprintln(c.Out)
	columns = []string{"unit", "state", "owner", "to", "apps", "hosts", "schedules/s", "standbys", "epoch"}
	divided := s.GetUnitsPerHost() > 0
	if divided {
		columns = append(columns, "calls hosts of")
	}
	err = c.PrintAll(columns, output.Each(s.GetUnits(), func(u *sdk.Unit) output.Record {
		return output.Message(u, func() []output.Cell { return partitionRow(u, divided) })
	}))
	if err != nil || len(s.GetSplit()) == 0 {
		return err
	}
	fmt.Fprintln(c.Out)
	columns = []string{"app", "unit", "slots", "wanted", "schedules/s", "by", "because"}
	if divided {
		columns = append(columns, "hosts")
	}
	return c.PrintAll(columns, func(yield func(output.Record, error) bool) {
		for _, app := range s.GetSplit() {
			for _, sh := range app.GetShares() {
				if !yield(output.Message(sh, func() []output.Cell { return shareRow(app, sh, divided) }), nil) {
					return
				}
			}
		}
	})
}

func shareRow(app *sdk.SplitApp, sh *sdk.AppShare, divided bool) []output.Cell {
	partition, by, why := sh.GetUnit(), "balancer", ""
	if partition == app.GetHome() {
		partition += " *" // marks the app's primary partition
		why = app.GetTrouble()
	}
	if app.GetByHand() {
		by = "hand"
	}
	row := []output.Cell{
		{Text: app.GetApp()},
		{Text: partition},
		{Text: fmt.Sprint(sh.GetSlots())},
		{Text: fmt.Sprint(sh.GetWanted())},
		{Text: fmt.Sprintf("%.1f", sh.GetScheduleRate())},
		{Text: by},
		{Text: output.Printable(why)},
	}
	if divided {
		hosts := "" // empty: every host of the app serves all of its partitions
		if app.GetHostsDivided() {
			hosts = fmt.Sprintf("%d, each for one partition", app.GetHosts())
		}
		row = append(row, output.Cell{Text: hosts})
	}
	return row
}

func serverRow(m *sdk.Member, balancer string) []output.Cell {
	name := m.GetId()
	if name == balancer {
		name += " *" // marks the server that runs the balancer
	}
	return []output.Cell{
		{Text: name},
		{Text: m.GetAddress()},
		{Text: m.GetZone()},
		{Text: m.GetState(), Tint: output.StateTint(m.GetState())},
		{Text: fmt.Sprint(m.GetUnits())},
		{Text: fmt.Sprintf("%.1f", m.GetScheduleRate())},
		{Text: known("%g", m.GetCapacity())},
		{Text: known("%.1f ms", m.GetRoundTripMs())},
		{Text: m.GetVersion()},
		{Text: output.Time(m.GetLastSeenAt())},
	}
}

// known formats a number; "" when the server did not report it.
func known(form string, n float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(form, n)
}

func partitionRow(u *sdk.Unit, divided bool) []output.Cell {
	row := []output.Cell{
		{Text: u.GetName()},
		{Text: u.GetState(), Tint: output.StateTint(u.GetState())},
		{Text: u.GetOwner()},
		{Text: u.GetTo()},
		{Text: fmt.Sprint(u.GetApps())},
		{Text: fmt.Sprint(u.GetHosts())},
		{Text: fmt.Sprintf("%.1f", u.GetScheduleRate())},
		{Text: strings.Join(u.GetStandbys(), ",")},
		{Text: fmt.Sprint(u.GetEpoch())},
	}
	if divided {
		row = append(row, output.Cell{Text: output.Printable(strings.Join(u.GetCalls(), ","))})
	}
	return row
}
