package audit

import (
	"cmp"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// Code is a code of events, with its meaning and what its object is. A code never changes its
// meaning, and is never used again.
type Code struct{ Code, Text, Object string }

// Codes has all codes, by subject. docs/audit.md is made from it.
var Codes = []Code{
	{"job.created", "a job was created", "job"},
	{"job.changed", "the definition of a job was replaced, paused or resumed", "job"},
	{"job.deleted", "a job was deleted", "job"},
	{"calendar.created", "a calendar was created", "calendar"},
	{"calendar.changed", "a calendar was replaced", "calendar"},
	{"calendar.deleted", "a calendar was deleted", "calendar"},
	{"alias.created", "an alias of a module was created", "module@alias"},
	{"alias.changed", "an alias was moved, or its canary changed", "module@alias"},
	{"alias.deleted", "an alias was deleted", "module@alias"},
	{"grants.created", "a module got its first grants", "module"},
	{"grants.changed", "the grants of a module were replaced", "module"},
	{"grants.deleted", "a module lost its grants", "module"},
	{"alertrule.created", "an alert rule was created", "alert rule"},
	{"alertrule.changed", "an alert rule was replaced", "alert rule"},
	{"alertrule.deleted", "an alert rule was deleted", "alert rule"},
	{"alertchannel.created", "an alert channel was created", "alert channel"},
	{"alertchannel.changed", "an alert channel was replaced", "alert channel"},
	{"alertchannel.deleted", "an alert channel was deleted", "alert channel"},
	{"eventsource.created", "an event source was created", "event source"},
	{"eventsource.changed", "an event source was replaced", "event source"},
	{"eventsource.deleted", "an event source was deleted", "event source"},
	{"alert.acknowledged", "an alert was acknowledged", "alert"},
	{"silence.created", "a silence of alerts began", "silence"},
	{"silence.ended", "a silence of alerts was ended", "silence"},
	{"channel.tested", "an example was sent to an alert channel", "alert channel"},
	{"delivery.retried", "a notification that was refused or given up was queued again", "delivery"},
	{"error.acknowledged", "a kind of error was acknowledged", "fingerprint of the error"},
	{"error.ignored", "a kind of error is ignored", "fingerprint of the error"},
	{"error.cleared", "the mark of a kind of error was cleared", "fingerprint of the error"},
	{"app.created", "an app got its first settings", "app"},
	{"app.changed", "the settings of an app were replaced", "app"},
	{"app.deleted", "an app was deleted with everything in it", "app"},
	{"app.paused", "an app was paused, or its pause was replaced", "app"},
	{"app.resumed", "the pause of an app was ended", "app"},
	{"app.limits", "the limits of an app were replaced", "app"},
	{"module.changed", "a version of a module was pushed, signed, or lost its bytes", "module@version"},
	{"secret.set", "a secret was created or replaced", "secret"},
	{"secret.resealed", "a secret was sealed with another key, and its value stayed", "secret"},
	{"secret.deleted", "a secret was deleted", "secret"},
	{"value.set", "a caller of the API changed a value of a bucket", "bucket/key"},
	{"value.deleted", "a caller of the API deleted a value of a bucket", "bucket/key"},
	{"job.skipped", "the next planned time of a job was skipped", "job"},
	{"job.backfilled", "runs were made for planned times of the past; count is their number", "job"},
	{"run.retried", "an ended run was run again", "the ended run"},
	{"host.cordoned", "a host was cordoned or drained", "host"},
	{"host.uncordoned", "a host was released again", "host"},
	{"run.deleted", "an ended run was deleted with its log lines, parts and runs of nodes", "run"},
	{"run.purged", "the input, output and log lines of an ended run were deleted", "run"},
	{"run.cancelled", "a run was cancelled or terminated, or its end was requested", "run"},
	{"operation.started", "a change of many runs or jobs was started; after has its kind, conditions and new values", "operation"},
	{"operation.cancelled", "a change of many runs or jobs was stopped before its end", "operation"},
	{"cluster.drained", "a server was drained: its partitions go to others", "server"},
	{"cluster.undrained", "a drained server was released again", "server"},
	{"cluster.moved", "a partition was moved", "partition to server"},
	{"cluster.split", "an app was spread over several partitions", "app"},
	{"cluster.merged", "an app was merged into one partition", "app"},
	{"cluster.backup", "a backup was made", ""},
	{"queue.edited", "the body of a dead letter was replaced", "dead letter"},
	{"queue.replayed", "dead letters were published again", "dead letter"},
	{"queue.dropped", "dead letters were removed", "dead letter"},
	{"session.started", "a visitor signed in to the console with a token, or a user with a password, at the OpenID provider, by an authenticating proxy or for a command line", "console, or session"},
	{"session.refused", "the visitor that an authenticating proxy named was refused; one event for each address and minute, with a count", "user"},
	{"session.failed", "a user gave a wrong password", "user"},
	{"session.approved", "a user let a command line act for it, until the end of the session that follows", "code of the command line"},
	{"session.ended", "a session was ended before its time", "session"},
	{"access.password", "a user replaced its password", "user"},
	{"call.denied", "a caller lacked a permission; one event for each address, principal and minute, with a count", "method"},
	{"call.unauthenticated", "a call came without a valid token, which includes failed sign-ins; one event for each address and minute, with a count", "method"},
	{"access.recovered", "the token of a recovery was used; one event for each hour", "token"},
	{"access.principal", "a principal was created, or its bindings changed", "principal"},
	{"access.token", "a token was created or rotated", "token of principal"},
	{"access.revoked", "a token was revoked", "token"},
	{"access.removed", "a principal was removed", "principal"},
	{"machine.token", "a join token was made", "join token"},
	{"machine.token.removed", "a join token was revoked, or had ended and made room", "join token"},
	{"machine.joined", "a machine joined with a join token, or a server enrolled itself", "machine"},
	{"machine.renamed", "a machine got another name", "machine"},
	{"machine.revoked", "the certificate of a machine was revoked", "machine"},
	{"audit.accepted", "the present log of a partition was accepted in place of its anchor", "partition"},
	{"audit.gap", "only in an export: the log no longer has these events; count is their number", "first to last sequence"},
}

// deleted ends the codes of deletions.
const deleted = ".deleted"

// verbs are the codes of the changes of a kind of definitions.
type verbs struct{ created, changed, deleted string }

var definitions = func() map[string]verbs {
	all := map[string]verbs{}
	for _, kind := range []string{"job", "calendar", "alias", "grants", "app", "alertrule", "alertchannel", "eventsource"} {
		all[kind] = verbs{kind + ".created", kind + ".changed", kind + deleted}
	}
	return all
}()

// OfRevision returns the event of a revision of a definition.
func OfRevision(app, kind, name string, number int64, gone bool) Row {
	e, codes := Row{App: app, Object: name, Revision: number}, definitions[kind]
	switch {
	case gone:
		e.Code = codes.deleted
	case number == 1:
		e.Code = codes.created
	default:
		e.Code = codes.changed
	}
	return e
}

func revision(number int64) string {
	if number < 1 {
		return ""
	}
	return "revision " + strconv.FormatInt(number, 10)
}

// limitsText returns the limits that are set, as "jobs 100, bytes 65536".
func limitsText(m *apiv1.AppLimits) string {
	var set []string
	for _, x := range []struct {
		name  string
		value int64
	}{
		{"jobs", m.GetJobs()}, {"queued runs", m.GetQueuedRuns()}, {"live runs", m.GetLiveRuns()}, {"bytes", m.GetBytes()}, {"module bytes", m.GetModuleBytes()},
	} {
		if x.value > 0 {
			set = append(set, x.name+" "+strconv.FormatInt(x.value, 10))
		}
	}
	return cmp.Or(strings.Join(set, ", "), "the defaults")
}

// OfRecord returns the event of a record that changes no definition. ok is false if it has none, as
// the records of runs: a run itself says what triggered it.
func OfRecord(app string, rec *apiv1.Record) (e Row, ok bool) {
	switch k := rec.GetKind().(type) {
	case *apiv1.Record_AppLimits:
		e = Row{Code: "app.limits", Object: app, After: limitsText(k.AppLimits)}
	case *apiv1.Record_AppPause:
		if e = (Row{Code: "app.paused", Object: app, Message: k.AppPause.GetReason()}); k.AppPause.GetUntil() == nil {
			break
		}
		if until := k.AppPause.Until.AsTime(); until.UnixMilli() <= rec.AtMs {
			e = Row{Code: "app.resumed", Object: app}
		} else {
			e.After = "until " + until.Format(time.RFC3339)
		}
	case *apiv1.Record_ModulePut:
		m := k.ModulePut.GetModule()
		e = Row{Code: "module.changed", Object: m.GetName() + "@" + m.GetVersion(), After: m.GetDigest()}
	case *apiv1.Record_SecretPut:
		s := k.SecretPut.GetSecret()
		e = Row{Code: "secret.set", Object: s.GetName(), After: version(s.GetVersion())}
		if k.SecretPut.GetResealed() {
			e.Code = "secret.resealed"
		}
	case *apiv1.Record_SecretDelete:
		e = Row{Code: "secret.deleted", Object: k.SecretDelete.GetName()}
	case *apiv1.Record_ValuePut:
		e = Row{Code: "value.set", Object: k.ValuePut.GetBucket() + "/" + k.ValuePut.GetKey(), After: version(int64(k.ValuePut.GetRow().GetVersion()))}
	case *apiv1.Record_ValueDelete:
		e = Row{Code: "value.deleted", Object: k.ValueDelete.GetBucket() + "/" + k.ValueDelete.GetKey()}
	case *apiv1.Record_CancelRequested:
		e = Row{Code: "run.cancelled", Object: job.RunID(k.CancelRequested.GetRun()).String(), Message: k.CancelRequested.GetWhy()}
	case *apiv1.Record_RunsRemoved:
		if len(k.RunsRemoved.GetRun()) == 0 {
			return e, false
		}
		e = Row{Code: "run.deleted", Object: job.RunID(k.RunsRemoved.GetRun()).String()}
		if k.RunsRemoved.GetPayloadOnly() {
			e.Code = "run.purged"
		}
	case *apiv1.Record_AccessPut:
		return ofAccess(k.AccessPut)
	case *apiv1.Record_AccessDelete:
		if kind := k.AccessDelete.GetKind(); kind == "use" || kind == "login" { // they go with a token, or become a session
			return e, false
		}
		e = Row{Code: "access.removed", Object: k.AccessDelete.GetId()}
		switch k.AccessDelete.GetKind() {
		case "token":
			e.Code = "access.revoked"
		case "session":
			e.Code = "session.ended"
		case "anchor":
			e.Code = "audit.accepted"
		case "machine":
			e.Code = "machine.revoked"
		case "join":
			e.Code = "machine.token.removed"
		}
	default:
		return e, false
	}
	e.App = app
	return e, true
}

func version(n int64) string { return "version " + strconv.FormatInt(n, 10) }

func ofAccess(put *apiv1.AccessPut) (e Row, ok bool) {
	if t := put.GetToken(); t != nil {
		return Row{
			Code: "access.token", App: appOf(t.GetBinding().GetScope()), Object: t.GetId() + " of " + t.GetPrincipal(), Before: shortHash(t.GetFormer()), After: shortHash(t.GetDigest()),
			Message: t.GetBinding().GetRole() + " in " + t.GetBinding().GetScope(),
		}, true
	}
	// A machine that joins, enrolls or renews its certificate has no caller: these are changes of callers.
	if j := put.GetJoin(); j != nil {
		return Row{Code: "machine.token", Object: j.GetId(), Message: j.GetKind()}, true
	}
	if m := put.GetMachine(); m.GetRevokedMs() > 0 {
		return Row{Code: "machine.revoked", Object: m.GetId()}, true
	} else if m != nil {
		return Row{Code: "machine.renamed", Object: m.GetId(), Message: m.GetName()}, true
	}
	p := put.GetPrincipal()
	if p == nil { // the use of a session or of a token; a sign-in has an event of its own
		return e, false
	}
	var bindings []string
	for _, b := range p.GetBindings() {
		bindings = append(bindings, b.GetRole()+" in "+b.GetScope())
	}
	return Row{Code: "access.principal", Object: p.GetName(), Message: strings.Join(bindings, ", ")}, true
}

// appOf returns the app of a scope; "": it is none of one app.
func appOf(scope string) string {
	app, _ := strings.CutPrefix(scope, "app:")
	if app == scope {
		return ""
	}
	return app
}

// shortHash returns the beginning of a digest, which tells texts apart.
func shortHash(digest []byte) string {
	if len(digest) == 0 {
		return ""
	}
	return "sha256:" + hex.EncodeToString(digest[:min(len(digest), 8)])
}
