package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/wheelworkhq/wheelwork/access/audit"
)

// auditEvery is how often the refused calls become audit events.
const auditEvery = time.Minute

// recordRefusals makes refused calls audit events until ctx ends. note gives events to a partition that
// this server serves. If there is none now, they go to the log.
func recordRefusals(ctx context.Context, every time.Duration, refusals *audit.Refusals, note func(context.Context, []audit.Event) error, log *slog.Logger) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		events := refusals.Take()
		if len(events) == 0 {
			continue
		}
		if err := note(ctx, events); err != nil {
			for _, e := range events {
				log.Warn("refused calls are not in the audit log", "error", err, "code", e.Code, "actor", e.By.GetAuthor(), "address", e.By.GetAddress(), "method", e.Object, "count", e.Count)
			}
		}
	}
}
