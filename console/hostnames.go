package console

import (
	"sync"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// hostNamesLife is how long a session uses the names of hosts that it fetched. Names belong
// to a session, because not every token may list hosts.
const hostNamesLife = 10 * time.Second

// hostNames are the names of hosts by id.
type hostNames struct {
	mu    sync.Mutex
	names map[string]string
	until time.Time
}

// hostNames returns the names of the connected hosts; none if the API does not list them,
// and then pages show ids.
func (c *console) hostNames(v *visit) map[string]string {
	h := &v.session.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.names
	}
	h.names, h.until = map[string]string{}, time.Now().Add(hostNamesLife)
	answer, err := c.cluster.ListHosts(v.ctx, &apiv1.ListHostsRequest{})
	if v.ctx.Err() != nil { // the browser has given up, as the palette does at the next key
		h.until = time.Time{}
	}
	if err != nil {
		return h.names
	}
	for _, host := range answer.Hosts {
		h.names[host.Id] = host.Name
	}
	return h.names
}
