package console

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// backupsOf is the plan of an installation whose last backup is good.
func backupsOf(now time.Time) *apiv1.BackupPlan {
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	return &apiv1.BackupPlan{
		Server: "srv-a", Address: "10.0.0.5:7700", Directory: "/mnt/<backups>", Schedule: "30 2 * * *", Keep: 7, NextAt: at(time.Hour),
		Last:  &apiv1.MadeBackup{File: "wheelwork-20260801T023000Z.wwb", Bytes: 4096, MadeAt: at(-2 * time.Hour), EndedAt: at(-2 * time.Hour)},
		Drill: &apiv1.BackupDrill{Result: "passed", File: "wheelwork-20260801T023000Z.wwb", Jobs: 12, LiveRuns: 3, EndedRuns: 456, Modules: 2},
		Files: []*apiv1.BackupFile{{Name: "wheelwork-20260801T023000Z.wwb", Bytes: 4096, MadeAt: at(-2 * time.Hour)}},
	}
}

func (f *fakeAPI) GetBackups(context.Context, *apiv1.GetBackupsRequest) (*apiv1.BackupPlan, error) {
	return backupsOf(time.Now()), nil
}

func (f *fakeAPI) RunBackup(ctx context.Context, _ *apiv1.RunBackupRequest) (*apiv1.BackupPlan, error) {
	p := backupsOf(time.Now())
	p.RunningSince = timestamppb.Now()
	return p, nil
}
