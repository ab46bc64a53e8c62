package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// clusterPage shows the servers and the owner of each partition.
func (c *console) clusterPage(v *visit) error {
	view := clusterView{}
	view.Done, _ = noticeOf[accessDone](v)
	return c.showCluster(v, http.StatusOK, view)
}

func (c *console) showCluster(v *visit, code int, view clusterView) error {
	s, err := c.members.GetCluster(v.ctx, &apiv1.GetClusterRequest{})
	if err != nil {
		return err
	}
	view.ClusterStatus = s
	// The page is about servers: without an answer about backups it shows the rest.
	view.Backups, _ = c.findBackups(v.ctx)
	return c.showStatus(v, code, "cluster", "cluster", view)
}

type clusterView struct {
	*apiv1.ClusterStatus
	Backups *apiv1.BackupPlan // nil: they are not known
	Done    accessDone
	Refused string // why a change was refused
}

// PerSecond formats a rate for people.
func (clusterView) PerSecond(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }

// At returns the address of a server; "" for "".
func (v clusterView) At(id string) string {
	for _, m := range v.Servers {
		if m.Id == id && id != "" && m.Address != "" {
			return m.Address
		}
	}
	return id
}

// Away reports whether a server owns no partitions until that is ended.
func (clusterView) Away(m *apiv1.Member) bool { return m.State == "draining" || m.State == "drained" }

// changeCluster makes a change, and leads back to the page of the cluster with its notice, or shows
// there why it was refused.
func (c *console) changeCluster(v *visit, done, subject string, change func(context.Context) error) error {
	err := change(v.ctx)
	if why, ok := mendable(err); ok {
		return c.showCluster(v, http.StatusConflict, clusterView{Refused: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith(inApp("/cluster", v.app), accessDone{done, subject})
	return nil
}

// member returns the server that the address names.
func (c *console) member(v *visit) (*apiv1.Member, error) {
	s, err := c.members.GetCluster(v.ctx, &apiv1.GetClusterRequest{})
	if err != nil {
		return nil, err
	}
	id := v.r.PathValue("id")
	i := slices.IndexFunc(s.Servers, func(m *apiv1.Member) bool { return m.Id == id })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "the cluster has no server %.100q", id)
	}
	return s.Servers[i], nil
}

func (c *console) drainServerPage(v *visit) error   { return c.confirmServer(v, "cluster.drain") }
func (c *console) undrainServerPage(v *visit) error { return c.confirmServer(v, "cluster.undrain") }

func (c *console) confirmServer(v *visit, key string) error {
	m, err := c.member(v)
	if err != nil {
		return err
	}
	return c.show(v, "confirm", "cluster", confirmView{
		Question: key + ".question", Effect: key + ".effect", Button: key + ".button", Subject: m.Id, Back: inApp("/cluster", v.app),
	})
}

func (c *console) drainServer(v *visit) error {
	id := v.r.PathValue("id")
	return c.changeCluster(v, "cluster.drained", id, func(ctx context.Context) error {
		_, err := c.members.DrainServer(ctx, &apiv1.DrainServerRequest{Server: id})
		return err
	})
}

func (c *console) undrainServer(v *visit) error {
	id := v.r.PathValue("id")
	return c.changeCluster(v, "cluster.undrained", id, func(ctx context.Context) error {
		_, err := c.members.UndrainServer(ctx, &apiv1.UndrainServerRequest{Server: id})
		return err
	})
}

// moveView asks for the server that a partition moves to.
type moveView struct {
	*apiv1.Unit
	Servers []*apiv1.Member // that may own it and do not
}

func (c *console) moveUnitPage(v *visit) error {
	s, err := c.members.GetCluster(v.ctx, &apiv1.GetClusterRequest{})
	if err != nil {
		return err
	}
	name := v.r.PathValue("unit")
	i := slices.IndexFunc(s.Units, func(u *apiv1.Unit) bool { return u.Name == name })
	if i < 0 {
		return status.Errorf(codes.NotFound, "the cluster has no partition %.100q", name)
	}
	view := moveView{Unit: s.Units[i]}
	for _, m := range s.Servers {
		if m.State == "up" && m.Id != view.Owner {
			view.Servers = append(view.Servers, m)
		}
	}
	return c.show(v, "move", "cluster", view)
}

func (c *console) moveUnit(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	unit, to := v.r.PathValue("unit"), v.r.PostForm.Get("server")
	return c.changeCluster(v, "cluster.moved", unit+" → "+to, func(ctx context.Context) error {
		_, err := c.members.MoveUnit(ctx, &apiv1.MoveUnitRequest{Unit: unit, Server: to})
		return err
	})
}

// splitView asks over how many partitions an app is spread.
type splitView struct {
	Name  string // of the app
	Units int    // of the cluster
	Apps  []string
}

func (c *console) splitAppPage(v *visit) error {
	s, err := c.members.GetCluster(v.ctx, &apiv1.GetClusterRequest{})
	if err != nil {
		return err
	}
	view := splitView{Name: v.r.URL.Query().Get("name"), Units: len(s.Units)}
	if view.Name == "" {
		view.Name = v.app
	}
	view.Apps, _ = c.appNames(v)
	if !slices.Contains(view.Apps, view.Name) {
		view.Apps = append(view.Apps, view.Name)
	}
	return c.show(v, "split", "cluster", view)
}

// splitApp spreads the jobs of an app over partitions: over a number of them, over all, or as the
// balancer decides.
func (c *console) splitApp(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f := v.r.PostForm
	req := &apiv1.SplitAppRequest{App: strings.TrimSpace(f.Get("name"))}
	return c.changeCluster(v, "cluster.split.done", req.App, func(ctx context.Context) error {
		switch f.Get("how") {
		case "auto":
			req.Auto = true
		case "some":
			n, err := strconv.ParseInt(f.Get("units"), 10, 32)
			if err != nil || n < 2 {
				return status.Errorf(codes.InvalidArgument, "units: %.40q is not a number of partitions, write 2 or more", f.Get("units"))
			}
			req.Units = int32(n)
		case "all":
		default:
			return status.Errorf(codes.InvalidArgument, "how: %.40q is not all, some or auto", f.Get("how"))
		}
		_, err := c.members.SplitApp(ctx, req)
		return err
	})
}

func (c *console) mergeAppPage(v *visit) error {
	return c.show(v, "confirm", "cluster", confirmView{
		Question: "cluster.merge.question", Effect: "cluster.merge.effect", Button: "cluster.merge.button",
		Subject: v.r.PathValue("name"), Back: inApp("/cluster", v.app),
	})
}

func (c *console) mergeApp(v *visit) error {
	name := v.r.PathValue("name")
	return c.changeCluster(v, "cluster.merged", name, func(ctx context.Context) error {
		_, err := c.members.MergeApp(ctx, &apiv1.MergeAppRequest{App: name})
		return err
	})
}
