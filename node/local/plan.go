package local

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Config configures [Run].
type Config struct {
	Program string // path of this program
	Data    string // default "wheelwork-cluster"
	Servers int    // default 3
	Hosts   int
	Slots   int // of each host; default: that of [HostConfig]
	// SplitRate and MaxHosts are as in [EtcdConfig].
	SplitRate float64
	MaxHosts  int
	// TLS lets all processes know each other by certificates of an authority of the cluster.
	TLS    bool
	Port   int       // of the first server; default 7700. A port that is taken is replaced by a free one
	Output io.Writer // gets what the processes log, each line with the name of its process
	Logger *slog.Logger
	Ready  func(Ready)
}

// Ready describes how to reach a cluster on this machine. Programs rely on the JSON
// names.
type Ready struct {
	URL           string   `json:"url"` // of all servers, with commas: a client goes on with the next one
	URLs          []string `json:"urls"`
	Token         string   `json:"token"`     // of the administrator
	LoginURL      string   `json:"login_url"` // signs a browser in as the administrator, once, within 10 minutes
	TokenFile     string   `json:"token_file"`
	Nameserver    string   `json:"nameserver"`        // of hosts; with TLS all servers
	MemberToken   string   `json:"member_token_file"` // for hosts that join; "" with TLS, see `wheelwork join-token`
	ServerToken   string   `json:"server_token_file"` // for servers that join; "" with TLS
	CACert        string   `json:"ca_cert,omitempty"` // file with the certificate of the authority; "" without TLS
	EtcdEndpoints []string `json:"etcd_endpoints"`
	Data          string   `json:"data"`
	PID           int      `json:"pid"`
}

// localPlan is what a cluster stores of itself, so that its processes have the same
// addresses at every start.
type localPlan struct {
	Nameserver string        `json:"nameserver,omitempty"` // "" with TLS
	Servers    []localServer `json:"servers"`
	TLS        bool          `json:"tls,omitempty"`
	// Begun reports that all servers were up once. From then on a server whose directory
	// is empty has lost it, and joins the others.
	Begun bool `json:"begun"`
}

type localServer struct {
	Listen string `json:"listen"`
	Client string `json:"cluster_listen"`
	Peer   string `json:"cluster_peer"`
}

// localCluster is a cluster that runs.
type localCluster struct {
	cfg  Config
	dir  *datadir.Dir
	log  *slog.Logger
	plan localPlan
	// nameserver is the address of the nameserver, with TLS those of all servers.
	nameserver string
	admin      string // token of the administrator; worker is that of workers
	worker     string
	keeper     *process.Keeper

	begunBefore atomic.Bool // plan.Begun, for the goroutines that start processes

	lines   sync.Mutex // guards cfg.Output
	copies  sync.WaitGroup
	members []*localProcess
}

// localProcess is one of the cluster's processes. It may be started several times.
type localProcess struct {
	name  string
	kind  string // the first word of its command
	data  string // its directory
	args  []string
	ready string // the ready file that it writes
	// begins are further arguments of a server while the cluster has never been complete,
	// joins those after that.
	begins, joins []string
	first         bool          // the server with which a cluster with TLS begins
	after         *localProcess // the server that joins a cluster with TLS before this one; nil: none

	mu    sync.Mutex
	child *process.Child
}

func serverName(i int) string { return fmt.Sprintf("server-%d", i+1) }
func hostName(i int) string   { return fmt.Sprintf("host-%d", i+1) }

// urls returns the addresses of the servers.
func (c *localCluster) urls() (all []string) {
	for _, s := range c.plan.Servers {
		all = append(all, c.scheme()+s.Listen)
	}
	return all
}

func (c *localCluster) scheme() string {
	if c.plan.TLS {
		return "https://"
	}
	return "http://"
}
