package console

import (
	"strconv"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// clusterPage shows the servers and the owner of each partition.
func (c *console) clusterPage(v *visit) error {
	s, err := c.members.GetCluster(v.ctx, &apiv1.GetClusterRequest{})
	if err != nil {
		return err
	}
	return c.show(v, "cluster", "cluster", clusterView{s})
}

type clusterView struct{ *apiv1.ClusterStatus }

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
