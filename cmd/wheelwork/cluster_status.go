package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) clusterStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the servers of the cluster, and who owns which partition",
		Long: `Show the servers of the cluster and its units. A unit is a group of apps with one
owner and one journal; the other servers stand by it.`,
		Example: `  wheelwork cluster status
  wheelwork cluster status -o json | jq '.units[] | {name, owner, schedule_rate}'`,
		Args: arguments(),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			s, err := client.Cluster(ctx)
			if err != nil {
				return err
			}
			return c.showCluster(s)
		}),
	}
}

func (c *cli) clusterDrain() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain SERVER",
		Short: "Have a server give away what it owns, before it is stopped",
		Long: `Have a server, named by its id or its address, give away what it owns. It goes on
standing by, and gets nothing until "wheelwork cluster undrain SERVER".`,
		Example: `  wheelwork cluster drain 10.0.0.5:7700 --wait`,
		Args:    arguments("SERVER"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the server owns nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		run := c.call
		if wait {
			run = c.wait
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

func (c *cli) clusterUndrain() *cobra.Command {
	return &cobra.Command{
		Use:     "undrain SERVER",
		Short:   "Let a server own something again",
		Example: `  wheelwork cluster undrain 10.0.0.5:7700`,
		Args:    arguments("SERVER"),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			s, err := client.Undrain(ctx, args[0])
			if err != nil {
				return err
			}
			return c.showCluster(s)
		}),
	}
}

func (c *cli) clusterMove() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "move UNIT SERVER",
		Short: "Have a partition go to a server",
		Long: `Have a unit go to a server, named by its id or its address. Its jobs pause for a
moment. It stays there for a while; afterwards the balancer may move it on, when
the load of the servers asks for it.`,
		Example: `  wheelwork cluster move main.2 10.0.0.5:7700 --wait`,
		Args:    arguments("UNIT", "SERVER"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the server owns it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		run := c.call
		if wait {
			run = c.wait
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
func (c *cli) showCluster(s *sdk.Cluster) error {
	if c.format != formatTable {
		return c.printOne(nil, message(s, nil))
	}
	if s.GetTrouble() != "" {
		fmt.Fprintf(c.out, "%s\n\n", c.paint(c.out, red, "nothing new is accepted: "+printable(s.GetTrouble())))
	}
	columns := []string{"server", "address", "zone", "state", "units", "schedules/s", "capacity", "round trip", "version", "last seen at"}
	if n := s.GetUnitsPerHost(); n > 0 {
		fmt.Fprintf(c.out, "of %d hosts each works for %d of %d partitions, unless it is called\n\n", s.GetHosts(), n, len(s.GetUnits()))
	}
	err := c.printAll(columns, func(yield func(record, error) bool) {
		for _, m := range s.GetServers() {
			if !yield(message(m, func() []cell { return clusterMemberRow(m, s.GetBalancer()) }), nil) {
				return
			}
		}
	})
	if err != nil || len(s.GetUnits()) == 0 {
		return err
	}
	fmt.Fprintln(c.out)
	columns = []string{"unit", "state", "owner", "to", "apps", "hosts", "schedules/s", "standbys", "epoch"}
	divided := s.GetUnitsPerHost() > 0
	if divided {
		columns = append(columns, "calls hosts of")
	}
	err = c.printAll(columns, func(yield func(record, error) bool) {
		for _, u := range s.GetUnits() {
			if !yield(message(u, func() []cell { return partitionRow(u, divided) }), nil) {
				return
			}
		}
	})
	if err != nil || len(s.GetSplit()) == 0 {
		return err
	}
	fmt.Fprintln(c.out)
	columns = []string{"app", "unit", "slots", "wanted", "schedules/s", "by", "because"}
	if divided {
		columns = append(columns, "hosts")
	}
	return c.printAll(columns, func(yield func(record, error) bool) {
		for _, app := range s.GetSplit() {
			for _, sh := range app.GetShares() {
				if !yield(message(sh, func() []cell { return shareRow(app, sh, divided) }), nil) {
					return
				}
			}
		}
	})
}

func shareRow(app *sdk.SplitApp, sh *sdk.AppShare, divided bool) []cell {
	partition, by, why := sh.GetUnit(), "balancer", ""
	if partition == app.GetHome() {
		partition += " *" // marks the app's primary partition
		why = app.GetTrouble()
	}
	if app.GetByHand() {
		by = "hand"
	}
	row := []cell{
		{app.GetApp(), none},
		{partition, none},
		{fmt.Sprint(sh.GetSlots()), none},
		{fmt.Sprint(sh.GetWanted()), none},
		{fmt.Sprintf("%.1f", sh.GetScheduleRate()), none},
		{by, none},
		{printable(why), none},
	}
	if divided {
		hosts := "" // empty: every host of the app serves all of its partitions
		if app.GetHostsDivided() {
			hosts = fmt.Sprintf("%d, each for one partition", app.GetHosts())
		}
		row = append(row, cell{hosts, none})
	}
	return row
}

func clusterMemberRow(m *sdk.Member, balancer string) []cell {
	name := m.GetId()
	if name == balancer {
		name += " *" // marks the server that runs the balancer
	}
	return []cell{
		{name, none},
		{m.GetAddress(), none},
		{m.GetZone(), none},
		{m.GetState(), stateTint(m.GetState())},
		{fmt.Sprint(m.GetUnits()), none},
		{fmt.Sprintf("%.1f", m.GetScheduleRate()), none},
		{known("%g", m.GetCapacity()), none},
		{known("%.1f ms", m.GetRoundTripMs()), none},
		{m.GetVersion(), none},
		{moment(m.GetLastSeenAt()), none},
	}
}

// known formats a number; "" when the server did not report it.
func known(form string, n float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(form, n)
}

func partitionRow(u *sdk.Unit, divided bool) []cell {
	row := []cell{
		{u.GetName(), none},
		{u.GetState(), stateTint(u.GetState())},
		{u.GetOwner(), none},
		{u.GetTo(), none},
		{fmt.Sprint(u.GetApps()), none},
		{fmt.Sprint(u.GetHosts()), none},
		{fmt.Sprintf("%.1f", u.GetScheduleRate()), none},
		{strings.Join(u.GetStandbys(), ","), none},
		{fmt.Sprint(u.GetEpoch()), none},
	}
	if divided {
		row = append(row, cell{printable(strings.Join(u.GetCalls(), ",")), none})
	}
	return row
}
