package reason

// Codes of the reasons why a run is where it is.
const (
	Ended             = "ended"
	EndedWithError    = "ended_with_error"
	PartsEnded        = "parts_ended"
	NodesEnded        = "nodes_ended"
	NodesUnderWay     = "nodes_under_way"
	NotYet            = "not_yet"
	ClockSetBack      = "clock_set_back"
	NextAttempt       = "next_attempt"
	OverlapQueue      = "overlap_queue"
	AppRate           = "app_rate"
	JobRate           = "job_rate"
	AppLiveRuns       = "app_live_runs"
	AppPaused         = "app_paused"
	AppPausedUntil    = "app_paused_until"
	DiskFull          = "disk_full"
	MaybeDispatched   = "maybe_dispatched"
	BroadcastRecovery = "broadcast_recovery"
	BroadcastBorrows  = "broadcast_borrows"
	WorkflowStarts    = "workflow_starts"
	HostsBorrowed     = "hosts_borrowed"
	NoHost            = "no_host"
	NoneAble          = "none_able"
	BoundHost         = "bound_host"
	BoundHostUnknown  = "bound_host_unknown"
	BehindOthers      = "behind_others"
	OnHost            = "on_host"
	OnLostHost        = "on_lost_host"
	Sleeps            = "sleeps"
	ModuleCompiles    = "module_compiles"
	Recalled          = "recalled"
	WaitsForSlot      = "waits_for_slot"
	StartNotReported  = "start_not_reported"
)

// Codes of the reasons why a host may not take a run.
const (
	Disconnected        = "disconnected"
	Draining            = "draining"
	Cordoned            = "cordoned"
	OtherApp            = "other_app"
	CannotRun           = "cannot_run"
	NotDesignated       = "not_designated"
	LabelDiffers        = "label_differs"
	LabelMissing        = "label_missing"
	MaxHosts            = "max_hosts"
	Memory              = "memory"
	CPU                 = "cpu"
	FreeSlots           = "free_slots"
	QueueFull           = "queue_full"
	Busy                = "busy"
	OtherPart           = "other_part"
	OtherHost           = "other_host"
	NoSlotRate          = "no_slot_rate"
	HoldsEnough         = "holds_enough"
	NoSlotNotMeasured   = "no_slot_not_measured"
	NoSlotSlow          = "no_slot_slow"
	ReservedNotMeasured = "reserved_not_measured"
	ReservedSlow        = "reserved_slow"
)

// One is the suffix of the code for the sentence that applies when the value n is 1.
const One = ".one"

var english = map[string]string{
	Ended:               "it has ended",
	EndedWithError:      "it has ended: {error}",
	PartsEnded:          "{n} of its {all} parts have ended",
	PartsEnded + One:    "1 of its {all} parts has ended",
	NodesEnded:          "{n} of its {all} nodes have ended",
	NodesEnded + One:    "1 of its {all} nodes has ended",
	NodesUnderWay:       "{n} of its {all} nodes have ended; under way: {names}",
	NodesUnderWay + One: "1 of its {all} nodes has ended; under way: {names}",
	NotYet:              "its time has not come",
	ClockSetBack:        "the clock was set back after the run was planned: it waits for the clock until {until}",
	NextAttempt:         "it waits for its next attempt",
	OverlapQueue:        "{n} runs of the job are under way, and its overlap policy holds this one behind them",
	OverlapQueue + One:  "1 run of the job is under way, and its overlap policy holds this one behind it",
	AppRate:             "the jobs of the app start no more often than its rate allows",
	JobRate:             "the job starts at most {n} times in {per}",
	JobRate + One:       "the job starts at most once in {per}",
	AppLiveRuns:         "hosts have {n} runs of the app, which is its limit live-runs: an administrator of the cluster raises it with `wheelwork app limits {app} --live-runs N`",
	AppPaused:           "app {app} is paused by {by} until it is resumed: `wheelwork app resume {app}`; the reason: {reason}",
	AppPausedUntil:      "app {app} is paused by {by} until {until}; the reason: {reason}",
	DiskFull:            "the server's disk is full: nothing starts until there is space on it",
	MaybeDispatched:     "the server before this one may have sent it to a host, which has a moment to say so",
	BroadcastRecovery:   "the server has just started, and a broadcast waits until its hosts are back",
	BroadcastBorrows:    "a broadcast waits until the hosts of the app are here that work for other partitions of the cluster: they have been called",
	WorkflowStarts:      "it begins as soon as the server has room",
	HostsBorrowed:       "none of the hosts that work for this partition of the cluster takes it now, and the app's other hosts have been called",
	NoHost:              "there is no host: start one with `wheelwork host`",
	NoneAble:            "no host may take it now",
	BoundHost:           "only host {host} may execute it, as the retry says, and that host does not take it now",
	BoundHostUnknown:    "only host {host} may execute it, as the retry says, and that host is not here: start it, or cancel the run",
	BehindOthers:        "its turn has not come: other runs are before it",
	OnHost:              "attempt {attempt} is on host {host}",
	OnLostHost:          "attempt {attempt} is on host {host}, which is not connected: it is lost if the host is not back within {lease}",
	Sleeps:              "attempt {attempt} is on host {host}, its handler sleeps and holds no slot",
	ModuleCompiles:      "attempt {attempt} is on host {host}, which fetches and compiles its module",
	Recalled:            "attempt {attempt} is on host {host} and was called back, because others there take longer than expected",
	WaitsForSlot:        "attempt {attempt} is on host {host}, where it waits for one of {n} slots",
	WaitsForSlot + One:  "attempt {attempt} is on host {host}, where it waits for the only slot",
	StartNotReported:    "attempt {attempt} is on host {host}, and has not run for 100 ms: its start is told with its result, or then",

	Disconnected:        "is not connected",
	Draining:            "is draining",
	Cordoned:            "is cordoned: `wheelwork host uncordon {host}` ends that",
	OtherApp:            "does not serve app {app}",
	CannotRun:           "does not run {what}",
	NotDesignated:       "is not one of the designated hosts",
	LabelDiffers:        "has the label {label}, the job wants {want}",
	LabelMissing:        "has no label {label}, the job wants {want}",
	MaxHosts:            "would be one host more: the job runs on {n} already, its max_hosts is {max}",
	Memory:              "uses {have} of memory, the job wants less than {max}",
	CPU:                 "leaves {have}% of its processors idle, the job wants {want}%",
	FreeSlots:           "has {n} free slots of {slots}, the job wants {want}",
	FreeSlots + One:     "has 1 free slot of {slots}, the job wants {want}",
	QueueFull:           "has no free slot ({slots} of {slots} busy) and its queue is full",
	Busy:                "takes no more tasks at the moment ({n} of {slots} slots busy)",
	OtherPart:           "is not the host of this part of the broadcast",
	OtherHost:           "is not the host that the retry names",
	NoSlotRate:          "has no free slot, and the job has a rate: its runs wait at the server",
	HoldsEnough:         "has the work that it may hold",
	NoSlotNotMeasured:   "has no free slot, and the job was not measured yet: its runs wait at the server",
	NoSlotSlow:          "has no free slot, and the job is slow: its runs wait at the server",
	ReservedNotMeasured: "keeps its last slots for other apps and quick jobs, and this one was not measured yet",
	ReservedSlow:        "keeps its last slots for other apps and quick jobs, and this one is slow",
}
