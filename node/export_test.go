package node

import (
	"context"
	"log/slog"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// RecordsRefusals returns a configuration whose server makes refused calls audit events that often, and
// anchors the ends of its audit logs; 0: as often as others do.
func RecordsRefusals(cfg ServerConfig, every time.Duration) ServerConfig {
	cfg.auditEvery = every
	return cfg
}

// LightHost is a host that reports results without executing anything, for tests with
// very many hosts. It connects and leaves like any other host.
func LightHost(ctx context.Context, nameserver, token, id string) error {
	own, err := transport.NewIdentity(token, "")
	if err != nil {
		return err
	}
	names, err := own.Dial(nameserver)
	if err != nil {
		return err
	}
	defer names.Close() //nolint:errcheck // a test's
	c := viaNames(names, id, HostConfig{Name: id}, own, slog.New(slog.DiscardHandler))
	w, err := session.New(session.Config{
		ID: id, Slots: 1, Connect: c.server, Units: c.partitions, ConnectUnit: c.partition,
		Run: func(context.Context, *session.Attempt) *apiv1.TaskResult {
			return &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED}
		},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
