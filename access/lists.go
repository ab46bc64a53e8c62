package access

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// SeenApps returns the apps that the caller of a context may see. It changes the slice.
func SeenApps(ctx context.Context, apps []*apiv1.App) []*apiv1.App {
	sees := Sees(ctx, "jobs.read")
	return slices.DeleteFunc(apps, func(a *apiv1.App) bool { return !sees(a.Name) })
}

// SeenHosts returns the hosts that the caller of a context may see: those that serve all apps, and
// those that serve an app in which it may read the cluster, with these apps alone. It changes
// the slice.
func SeenHosts(ctx context.Context, hosts []*apiv1.Host) []*apiv1.Host {
	sees := Sees(ctx, "cluster.read")
	if sees("") {
		return hosts
	}
	all := hosts[:0]
	for _, h := range hosts {
		if len(h.Apps) > 0 {
			h = proto.CloneOf(h)
			h.Apps = slices.DeleteFunc(h.Apps, func(app string) bool { return !sees(app) })
			if len(h.Apps) == 0 {
				continue
			}
		}
		all = append(all, h)
	}
	return all
}
