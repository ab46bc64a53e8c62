package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) hostList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the hosts that the server knows",
		Args:  arguments(),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			hosts, err := client.Hosts(ctx)
			if err != nil {
				return err
			}
			columns := []string{"name", "state", "running", "sleeping", "waiting", "slots", "apps", "labels", "version", "last seen at", "runs", "id"}
			return c.printAll(columns, func(yield func(record, error) bool) {
				for _, h := range hosts {
					if !yield(message(h, func() []cell { return hostRow(h) }), nil) {
						return
					}
				}
			})
		}),
	}
}

func hostRow(h *sdk.Host) []cell {
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(h.GetLabels())) {
		labels = append(labels, k+"="+h.GetLabels()[k])
	}
	apps := "all"
	if len(h.GetApps()) > 0 {
		apps = strings.Join(h.GetApps(), ",")
	}
	return []cell{
		{h.GetName(), none},
		{h.GetState(), stateTint(h.GetState())},
		{fmt.Sprint(h.GetRunning()), none},
		{fmt.Sprint(h.GetSleeping()), none},
		{fmt.Sprint(h.GetWaiting()), none},
		{fmt.Sprint(h.GetSlots()), none},
		{apps, none},
		{strings.Join(labels, ","), none},
		{h.GetVersion(), none},
		{moment(h.GetLastSeenAt()), none},
		{runsText(h.GetAbi()), none},
		{h.GetId(), none},
	}
}

// runsText lists what a host can run now, without plugins that are down.
func runsText(abi []string) string {
	var runs []string
	modules := len(abi) == 0
	for _, s := range abi {
		if strings.Contains(s, ":") {
			runs = append(runs, s)
			continue
		}
		modules = true
	}
	if modules {
		runs = append([]string{"modules"}, runs...)
	}
	return strings.Join(runs, ",")
}
