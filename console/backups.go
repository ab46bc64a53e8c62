package console

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// findBackups returns the state of the backups that the servers make by themselves. A server of an
// older version makes none.
func (c *console) findBackups(ctx context.Context) (*apiv1.BackupPlan, error) {
	p, err := c.backups.GetBackups(ctx, &apiv1.GetBackupsRequest{})
	if status.Code(err) == codes.Unimplemented {
		return &apiv1.BackupPlan{}, nil
	}
	return p, err
}

// backUpPage shows the question before a backup that a visitor starts.
func (c *console) backUpPage(v *visit) error {
	p, err := c.findBackups(v.ctx)
	if err != nil {
		return err
	}
	if p.Server == "" {
		return status.Error(codes.FailedPrecondition, "no server has a directory for backups: start a server with --backup-dir")
	}
	return c.show(v, "confirm", "cluster", confirmView{
		Question: "backup.question", Effect: "backup.effect", Button: "backup.now", Subject: p.Directory, Back: inApp("/cluster", v.app),
	})
}

func (c *console) backUp(v *visit) error {
	return c.changeCluster(v, "backup.begun", "", func(ctx context.Context) error {
		_, err := c.backups.RunBackup(ctx, &apiv1.RunBackupRequest{})
		return err
	})
}

// checkBackups says how the backups are that the servers make by themselves.
func (f *found) checkBackups(now time.Time) finding {
	b := f.backups
	switch last := b.GetLast(); {
	case b.GetServer() == "":
		return finding{Result: healthGood, Key: "backup.none"}
	case b.GetError() != "":
		return finding{Result: healthBad, Key: "health.backups.failed"}.about([]string{b.GetError()})
	case b.GetOverdue():
		return finding{Result: healthBad, Key: "health.backups.overdue"}
	case last == nil:
		return finding{Result: healthWarn, Key: "health.backups.first"}
	case b.GetDrill().GetResult() == "read":
		return finding{Result: healthWarn, Key: "health.backups.untried"}.about([]string{b.GetDrill().GetReason()})
	default:
		return finding{Result: healthGood, Key: "health.backups.good", Arg: span(max(0, now.Sub(last.GetEndedAt().AsTime())))}
	}
}
