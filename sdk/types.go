package sdk

import apiv1 "github.com/wheelworkhq/wheelwork/api/v1"

// Types of the API. The messages in api/v1 document their fields.
type (
	App        = apiv1.App
	AppLimits  = apiv1.AppLimits
	AppPause   = apiv1.AppPause
	JobPause   = apiv1.JobPause
	Job        = apiv1.Job
	Handler    = apiv1.Handler
	Schedule   = apiv1.Schedule
	Daily      = apiv1.Daily
	Retry      = apiv1.Retry
	Limits     = apiv1.Limits
	Misfire    = apiv1.Misfire
	Overlap    = apiv1.Overlap
	Rate       = apiv1.Rate
	Routing    = apiv1.Routing
	Fanout     = apiv1.Fanout
	Dependency = apiv1.Dependency
	Workflow   = apiv1.Workflow
	Node       = apiv1.Node
	NodeState  = apiv1.NodeState
	JobStats   = apiv1.JobStats
	Calendar   = apiv1.Calendar
	Run        = apiv1.Run
	Attempt    = apiv1.Attempt
	Progress   = apiv1.Progress
	LogLine    = apiv1.LogLine
	Module     = apiv1.Module
	Tried      = apiv1.TryScriptResponse
	Signature  = apiv1.Signature
	Alias      = apiv1.Alias
	Canary     = apiv1.Canary
	AliasEvent = apiv1.AliasEvent
	Rollout    = apiv1.Rollout
	Collection = apiv1.CollectModulesResponse
	Host       = apiv1.Host
	Overview   = apiv1.Overview
	Version    = apiv1.Version
	Cluster    = apiv1.ClusterStatus
	Member     = apiv1.Member
	Unit       = apiv1.Unit
	SplitApp   = apiv1.SplitApp
	AppShare   = apiv1.AppShare
	// BackupSummary describes an encrypted backup, see [Client.Backup].
	BackupSummary = apiv1.BackupSummary
	// BackupPlan is the state of the backups that servers make by themselves, see [Client.Backups].
	BackupPlan  = apiv1.BackupPlan
	MadeBackup  = apiv1.MadeBackup
	BackupDrill = apiv1.BackupDrill
	BackupFile  = apiv1.BackupFile

	Value   = apiv1.Value
	Buckets = apiv1.ListBucketsResponse
	Secret  = apiv1.Secret
	// ResealedSecrets is the result of [Client.ResealSecrets].
	ResealedSecrets  = apiv1.ResealSecretsResponse
	Grants           = apiv1.Grants
	HTTPGrant        = apiv1.HttpGrant
	BucketGrant      = apiv1.BucketGrant
	FileGrant        = apiv1.FileGrant
	ModuleGrants     = apiv1.ModuleGrants
	AlertRule        = apiv1.AlertRule
	AlertChannel     = apiv1.AlertChannel
	EventSource      = apiv1.EventSource
	EventKey         = apiv1.EventKey
	EventTrigger     = apiv1.EventTrigger
	AlertRobot       = apiv1.AlertRobot
	AlertTexts       = apiv1.AlertTexts
	AlertTemplates   = apiv1.AlertTemplates
	AlertWebhook     = apiv1.AlertWebhook
	AlertSignedRobot = apiv1.AlertSignedRobot
	AlertTelegram    = apiv1.AlertTelegram
	AlertPagerDuty   = apiv1.AlertPagerDuty
	AlertManager     = apiv1.AlertManager
	AlertCloudEvents = apiv1.AlertCloudEvents
	AlertMail        = apiv1.AlertMail
	AlertCommand     = apiv1.AlertCommand
	AlertText        = apiv1.AlertText
	AlertSelection   = apiv1.AlertSelection
	Alert            = apiv1.Alert
	AlertSilence     = apiv1.AlertSilence
	ErrorMark        = apiv1.ErrorMark
	AlertDelivery    = apiv1.AlertDelivery
	JobAlert         = apiv1.JobAlert
	JobAlertTimes    = apiv1.JobAlertTimes
	AlertPreview     = apiv1.AlertPreview
	GrantedVersion   = apiv1.GrantedVersion

	Principal = apiv1.Principal
	Binding   = apiv1.Binding
	Role      = apiv1.Role
	Token     = apiv1.Token
	Session   = apiv1.Session

	AuditEvent = apiv1.AuditEvent
	AuditChain = apiv1.AuditChain
	// AuditGap is a range of events that the log no longer has.
	AuditGap = apiv1.AuditGap
	// JoinToken is a token with which hosts join.
	JoinToken = apiv1.JoinToken
	// Certificate is a machine that has joined, with the end of its certificate.
	Certificate = apiv1.Certificate
	// AuditAnchor is the end of the audit log of a partition at a time.
	AuditAnchor = apiv1.AuditAnchor

	// Explanation is the result of [Client.ExplainRun].
	Explanation = apiv1.ExplainRunResponse
	// HostVerdict is the part of an [Explanation] about one host.
	HostVerdict = apiv1.HostVerdict
	// Reason is a sentence of an [Explanation] as a code with values.
	Reason = apiv1.Reason
)

// DefaultApp is the app of calls that name none.
const DefaultApp = "default"

// Succeeded is the only state of a [Run] whose handler succeeded.
const Succeeded = "succeeded"

// Ack selects when a command is answered. The texts are part of the API.
type Ack string

// Values of [Ack].
const (
	Applied Ack = "applied"  // the command is done and durable
	Kept    Ack = "accepted" // the command is durable, and is executed later, in the order of its job
)

// Result is the effect of a command on the server.
type Result string

// Values of [Result]. The texts are part of the API.
const (
	Created   Result = "created"
	Updated   Result = "updated"
	Unchanged Result = "unchanged" // the same definition or module existed already
	Checked   Result = "checked"   // a dry run accepted the upload
	Restored  Result = "restored"  // the module's bytes had been collected and are back
	Deleted   Result = "deleted"
	Accepted  Result = "accepted"  // a new run is durable
	Duplicate Result = "duplicate" // the idempotency key was used before; the run is the earlier one
)
