package node

import (
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// routing is how the partition is found that answers a call for an app that is split. For
// an app that is not, it is always the primary partition.
type routing int

const (
	unrouted     routing = iota
	byHome               // the primary partition, for state that the whole app shares
	byHomeCopy           // likewise, and the other partitions get a copy before the call is answered
	byJob                // the partition of the job
	byRun                // the partition of the run's job
	byCaller             // the partition of the run for which a host asks
	byPartitions         // all that ever had a job of the app; their answers are merged
	byServer             // this server, whatever it owns
	byAny                // any partition with a copy of the shared state
	byCommand            // for each command the partition of its job
	byStream             // the partition that the stream names
)

// routings holds the routing of every method of the routed services. A method that is
// missing here is refused.
var routings = map[string]routing{
	"/wheelwork.v1.Jobs/ApplyJob":    byJob,
	"/wheelwork.v1.Jobs/GetJob":      byJob,
	"/wheelwork.v1.Jobs/ListJobs":    byPartitions,
	"/wheelwork.v1.Jobs/DeleteJob":   byJob,
	"/wheelwork.v1.Jobs/PauseJob":    byJob,
	"/wheelwork.v1.Jobs/ResumeJob":   byJob,
	"/wheelwork.v1.Jobs/TriggerJob":  byJob,
	"/wheelwork.v1.Jobs/SkipNext":    byJob,
	"/wheelwork.v1.Jobs/BackfillJob": byJob,
	"/wheelwork.v1.Jobs/BulkJobs":    byPartitions,

	"/wheelwork.v1.Runs/GetRun":     byRun,
	"/wheelwork.v1.Runs/ListRuns":   byPartitions,
	"/wheelwork.v1.Runs/CancelRun":  byRun,
	"/wheelwork.v1.Runs/RetryRun":   byRun,
	"/wheelwork.v1.Runs/ExplainRun": byRun,
	"/wheelwork.v1.Runs/WatchRun":   byRun,
	"/wheelwork.v1.Runs/ReadLog":    byRun,

	"/wheelwork.v1.Apps/ListApps": byPartitions,
	"/wheelwork.v1.Apps/GetApp":   byPartitions,
	"/wheelwork.v1.Apps/PutApp":   byHomeCopy,

	"/wheelwork.v1.Calendars/PutCalendar":    byHomeCopy,
	"/wheelwork.v1.Calendars/GetCalendar":    byHome,
	"/wheelwork.v1.Calendars/ListCalendars":  byHome,
	"/wheelwork.v1.Calendars/DeleteCalendar": byHomeCopy,

	"/wheelwork.v1.Modules/PushModule":     byHomeCopy,
	"/wheelwork.v1.Modules/GetModule":      byHome,
	"/wheelwork.v1.Modules/ListModules":    byHome,
	"/wheelwork.v1.Modules/DownloadModule": byHome,
	"/wheelwork.v1.Modules/SignModule":     byHomeCopy,
	"/wheelwork.v1.Modules/SetAlias":       byHomeCopy,
	"/wheelwork.v1.Modules/GetAlias":       byHome,
	"/wheelwork.v1.Modules/ListAliases":    byHome,
	"/wheelwork.v1.Modules/DeleteAlias":    byHomeCopy,
	"/wheelwork.v1.Modules/DeleteModule":   byHomeCopy,
	"/wheelwork.v1.Modules/GetRollout":     byHome,
	"/wheelwork.v1.Modules/CollectModules": byHomeCopy,

	"/wheelwork.v1.ModuleAccess/PutGrants":  byHomeCopy,
	"/wheelwork.v1.ModuleAccess/GetGrants":  byHome,
	"/wheelwork.v1.ModuleAccess/ListGrants": byHome,

	"/wheelwork.v1.Secrets/SetSecret":    byHomeCopy,
	"/wheelwork.v1.Secrets/ListSecrets":  byHome,
	"/wheelwork.v1.Secrets/DeleteSecret": byHomeCopy,

	"/wheelwork.v1.Values/GetValue":    byHome,
	"/wheelwork.v1.Values/ListValues":  byHome,
	"/wheelwork.v1.Values/ListBuckets": byHome,
	"/wheelwork.v1.Values/PutValue":    byHome,
	"/wheelwork.v1.Values/DeleteValue": byHome,

	"/wheelwork.v1.Producer/Produce": byCommand,

	"/wheelwork.v1.Worker/Work":           byStream,
	"/wheelwork.v1.Worker/FetchModule":    byServer,
	"/wheelwork.v1.Worker/GetModuleProof": byAny,

	// Values are in the primary partition, but the partition of the run checks whether
	// the run may use them.
	"/wheelwork.v1.Guest/GetCheckpoint": byCaller,
	"/wheelwork.v1.Guest/SetCheckpoint": byCaller,
	"/wheelwork.v1.Guest/GetEntry":      byCaller,
	"/wheelwork.v1.Guest/PutEntry":      byCaller,
	"/wheelwork.v1.Guest/DeleteEntry":   byCaller,
	"/wheelwork.v1.Guest/Enqueue":       byCaller,
	"/wheelwork.v1.Guest/Map":           byCaller,
	"/wheelwork.v1.Guest/GetSecret":     byCaller,

	"/wheelwork.v1.Cluster/ListHosts":   byPartitions,
	"/wheelwork.v1.Cluster/GetOverview": byPartitions,
	"/wheelwork.v1.Cluster/GetVersion":  byServer,
}

// slotOf returns the slot that a request is about, according to its routing. An invalid
// name or id is left to the service, which refuses it.
func slotOf(by routing, req any) (slot uint8, ok bool) {
	switch by {
	case byJob:
		name := ""
		switch q := req.(type) {
		case *apiv1.ApplyJobRequest:
			name = q.GetJob().GetName()
		case interface{ GetName() string }:
			name = q.GetName()
		}
		return job.SlotOf(name), name != ""
	case byRun:
		if q, is := req.(interface{ GetId() string }); is {
			id, err := job.ParseRunID(q.GetId())
			return id.Slot(), err == nil
		}
	case byCaller:
		if q, is := req.(interface{ GetCaller() *apiv1.Caller }); is {
			run := q.GetCaller().GetRun()
			if len(run) == len(job.RunID{}) {
				return job.RunID(run).Slot(), true
			}
		}
	}
	return 0, false
}

// slotOfCommand returns the slot of a command's job.
func slotOfCommand(c *apiv1.Command) uint8 {
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		return job.SlotOf(k.Apply.GetName())
	case *apiv1.Command_Delete:
		return job.SlotOf(k.Delete.GetName())
	case *apiv1.Command_Trigger:
		return job.SlotOf(k.Trigger.GetName())
	}
	return job.ModuleSlot
}

// pathOf splits the full name of a method into its service and its own name.
func pathOf(method string) (service, name string) {
	service, name, _ = strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service, name
}
