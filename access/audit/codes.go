package audit

import (
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
	{"app.created", "an app got its first settings", "app"},
	{"app.changed", "the settings of an app were replaced", "app"},
	{"app.deleted", "an app was deleted with everything in it", "app"},
	{"module.changed", "a version of a module was pushed, signed, or lost its bytes", "module@version"},
	{"secret.set", "a secret was created or replaced", "secret"},
	{"secret.deleted", "a secret was deleted", "secret"},
	{"value.set", "a caller of the API changed a value of a bucket", "bucket/key"},
	{"value.deleted", "a caller of the API deleted a value of a bucket", "bucket/key"},
	{"job.skipped", "the next planned time of a job was skipped", "job"},
	{"job.backfilled", "runs were made for planned times of the past; count is their number", "job"},
	{"run.retried", "an ended run was run again", "the ended run"},
	{"host.cordoned", "a host was cordoned or drained", "host"},
	{"host.uncordoned", "a host was released again", "host"},
	{"run.cancelled", "a run was cancelled or terminated, or its end was requested", "run"},
	{"call.denied", "a caller lacked a permission; one event for each address, principal and minute, with a count", "method"},
	{"call.unauthenticated", "a call came without a valid token, which includes failed sign-ins; one event for each address and minute, with a count", "method"},
	{"access.principal", "a principal was created, or its bindings changed", "principal"},
	{"access.token", "a token was created or rotated", "token of principal"},
	{"access.revoked", "a token was revoked", "token"},
	{"access.removed", "a principal was removed", "principal"},
}

// OfRevision returns the event of a revision of a definition.
func OfRevision(app, kind, name string, number int64, deleted bool) *apiv1.AuditRow {
	e := &apiv1.AuditRow{App: app, Object: name}
	switch {
	case deleted:
		e.Code, e.Before = kind+".deleted", revision(number-1)
	case number == 1:
		e.Code, e.After = kind+".created", revision(number)
	default:
		e.Code, e.Before, e.After = kind+".changed", revision(number-1), revision(number)
	}
	return e
}

func revision(number int64) string {
	if number < 1 {
		return ""
	}
	return "revision " + strconv.FormatInt(number, 10)
}

// OfRecord returns the event of a record that changes no definition; nil: it has none. Records of
// runs have none: a run itself says what triggered it.
func OfRecord(app string, rec *apiv1.Record) *apiv1.AuditRow {
	switch k := rec.GetKind().(type) {
	case *apiv1.Record_ModulePut:
		m := k.ModulePut.GetModule()
		return &apiv1.AuditRow{Code: "module.changed", App: app, Object: m.GetName() + "@" + m.GetVersion(), After: m.GetDigest()}
	case *apiv1.Record_SecretPut:
		s := k.SecretPut.GetSecret()
		return &apiv1.AuditRow{Code: "secret.set", App: app, Object: s.GetName(), After: version(s.GetVersion())}
	case *apiv1.Record_SecretDelete:
		return &apiv1.AuditRow{Code: "secret.deleted", App: app, Object: k.SecretDelete.GetName()}
	case *apiv1.Record_ValuePut:
		return &apiv1.AuditRow{Code: "value.set", App: app, Object: k.ValuePut.GetBucket() + "/" + k.ValuePut.GetKey(), After: version(int64(k.ValuePut.GetRow().GetVersion()))}
	case *apiv1.Record_ValueDelete:
		return &apiv1.AuditRow{Code: "value.deleted", App: app, Object: k.ValueDelete.GetBucket() + "/" + k.ValueDelete.GetKey()}
	case *apiv1.Record_CancelRequested:
		return &apiv1.AuditRow{Code: "run.cancelled", App: app, Object: job.RunID(k.CancelRequested.GetRun()).String(), Message: k.CancelRequested.GetWhy()}
	case *apiv1.Record_AccessPut:
		return ofAccess(k.AccessPut)
	case *apiv1.Record_AccessDelete:
		code := "access.removed"
		if k.AccessDelete.GetKind() == "token" {
			code = "access.revoked"
		}
		return &apiv1.AuditRow{Code: code, Object: k.AccessDelete.GetId()}
	}
	return nil
}

func version(n int64) string { return "version " + strconv.FormatInt(n, 10) }

func ofAccess(put *apiv1.AccessPut) *apiv1.AuditRow {
	if t := put.GetToken(); t != nil {
		e := &apiv1.AuditRow{Code: "access.token", App: appOf(t.GetBinding().GetScope()), Object: t.GetId() + " of " + t.GetPrincipal(), After: shortHash(t.GetDigest()), Before: shortHash(t.GetFormer())}
		e.Message = t.GetBinding().GetRole() + " in " + t.GetBinding().GetScope()
		return e
	}
	p := put.GetPrincipal()
	var bindings []string
	for _, b := range p.GetBindings() {
		bindings = append(bindings, b.GetRole()+" in "+b.GetScope())
	}
	return &apiv1.AuditRow{Code: "access.principal", Object: p.GetName(), Message: strings.Join(bindings, ", ")}
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
