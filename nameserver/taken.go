package nameserver

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	takenByOne     = "the server %s at %s works with this nameserver, and only servers of one cluster can share a nameserver: make that server the first of a cluster with `wheelwork cluster init` and let this one join it (docs/cluster.md), or give this one another --nameserver; if that server has ended, start this one again in a few seconds"
	takenByCluster = "the server %s at %s works with this nameserver and is of a cluster, and this server is of none: let this one join it from an empty data directory with --cluster --join or --etcd-endpoints (docs/cluster.md), or make another cluster of this one with `wheelwork cluster init` and give it another --nameserver"
)

// Taken returns the error that refuses a standalone server because another server, by,
// uses the nameserver. Programs read that server's address from the Assignment in the
// error details.
func Taken(by *apiv1.ServerReport) error {
	text := takenByOne
	if clustered(by) {
		text = takenByCluster
	}
	s := status.Newf(codes.FailedPrecondition, text, by.Server, by.Address)
	if with, err := s.WithDetails(&apiv1.Assignment{Server: by.Server, Address: by.Address}); err == nil {
		s = with
	}
	return s.Err()
}

// clustered reports whether the server of a report belongs to a cluster. Such a server
// names the partitions of its cluster in every report, including the first.
func clustered(r *apiv1.ServerReport) bool { return len(r.AllUnits) > 0 }
