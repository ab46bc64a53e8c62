package core

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// RetryChoice is what a retry changes for its one run. The zero value changes nothing.
type RetryChoice struct {
	FromNode string // of a workflow: this node and all that come after it run again
	Module   string // another version or alias of the job's module, as name@version
	Host     string // the id of the only host that may execute the run
}

// apply writes the choice into the record of the run with an id. It fails if the run cannot have
// it.
func (c RetryChoice) apply(l *Loop, j *job.Job, id job.RunID, acc *apiv1.Accepted) (err error) {
	if c.FromNode != "" {
		if acc.Kept, err = keptBefore(j, c.FromNode, acc.Kept); err != nil {
			return err
		}
	}
	if c.Module != "" {
		if acc.Pin, err = otherModule(ownerOf(j.Slot()), j, id, c.Module); err != nil {
			return err
		}
	}
	if c.Host != "" {
		if err := l.Sessions.mayBind(j, c.Host); err != nil {
			return err
		}
	}
	acc.FromNode, acc.Host = c.FromNode, c.Host
	return nil
}

// keptBefore returns the nodes that a retry from a node may keep: all without that node. A node is
// kept only if all nodes before it are, so those that come after it run again.
func keptBefore(j *job.Job, from string, kept []*apiv1.NodeRow) ([]*apiv1.NodeRow, error) {
	nodes := j.Definition().GetWorkflow().GetNodes()
	switch {
	case len(nodes) == 0:
		return nil, status.Errorf(codes.InvalidArgument, "from_node is %q, but job %s is not a workflow", from, j.Name())
	case !slices.ContainsFunc(nodes, func(n *apiv1.Node) bool { return n.GetName() == from }):
		return nil, status.Errorf(codes.InvalidArgument, "from_node is %q, but workflow %s has no such node: `wheelwork job get %s` shows its nodes", from, j.Name(), j.Name())
	}
	return slices.DeleteFunc(slices.Clone(kept), func(n *apiv1.NodeRow) bool { return n.GetName() == from }), nil
}

// otherModule returns the pin of a run to a version of the module that its job names.
func otherModule(a *app, j *job.Job, id job.RunID, ref string) (*apiv1.Pin, error) {
	def := j.Definition()
	name, _, _ := strings.Cut(def.GetHandler().GetModule(), "@")
	switch other, _, ok := strings.Cut(ref, "@"); {
	case name == "":
		return nil, status.Errorf(codes.InvalidArgument, "module is %q, but job %s runs no module", ref, j.Name())
	case !ok:
		return nil, status.Errorf(codes.InvalidArgument, "module is %q, want a version or an alias, as %s@1.2", ref, name)
	case other != name:
		return nil, status.Errorf(codes.InvalidArgument, "module is %q, but job %s runs module %s: a retry can take another version or alias of it", ref, j.Name(), name)
	}
	pin := &apiv1.Pin{Module: ref}
	if x := a.aliases()[ref]; x != nil {
		if pin = job.PinOf(x, id, a.version); pin == nil {
			return nil, status.Errorf(codes.FailedPrecondition, "alias %s points at a version that does not exist: `wheelwork module alias` shows where it points", ref)
		}
	}
	m, err := a.usable(pin.Module, nil)
	if err == nil {
		err = hasHandlers(m, def)
	}
	if err != nil {
		return nil, err
	}
	pin.Digest, pin.Needs = m.Digest, m.Needs
	return pin, nil
}

// mayBind fails if no host with that id is known, or if a run of the job is executed by other runs.
// In a cluster the router has looked at the hosts of all partitions.
func (se *Sessions) mayBind(j *job.Job, host string) error {
	switch {
	case j.Policy().Workflow:
		return status.Errorf(codes.InvalidArgument, "host is %q, but job %s is a workflow: its nodes run where their own jobs say", host, j.Name())
	case j.Policy().Fans():
		return status.Errorf(codes.InvalidArgument, "host is %q, but a run of job %s is divided into parts, which run where its fanout and its routing say", host, j.Name())
	case se.hosts[host] != nil || se.l.cfg.Cluster:
		return nil
	case se.recoveryLeft() > 0:
		return status.Errorf(codes.Unavailable, "host %s is not here yet: the server has just started, and hosts connect: try again in a moment", host)
	}
	return status.Errorf(codes.InvalidArgument, "there is no host with the id %q: `wheelwork host list` shows all", host)
}
