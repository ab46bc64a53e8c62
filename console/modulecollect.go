package console

import (
	"cmp"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// collectedAge is the age from which a collection deletes a version that nothing refers to, by
// default, as the API has it.
const collectedAge = "24h"

// collectView shows what a collection of modules would delete.
type collectView struct {
	*apiv1.CollectModulesResponse
	Shown   []*apiv1.Module // the first pageSize that would be deleted
	Age     string
	Refused string
	Done    accessDone
}

// collectPage asks the API what a collection would delete. It deletes nothing.
func (c *console) collectPage(v *visit) error {
	return c.showCollect(v, http.StatusOK, cmp.Or(strings.TrimSpace(v.r.URL.Query().Get("age")), collectedAge))
}

func (c *console) showCollect(v *visit, code int, age string) error {
	if !c.visitor(v).May("modules.write", v.app) {
		return status.Errorf(codes.PermissionDenied, "a collection of the modules of app %s takes the permission modules.write", v.app)
	}
	answer, err := c.modules.CollectModules(v.ctx, &apiv1.CollectModulesRequest{App: v.app, DryRun: true, OlderThan: age})
	view := collectView{CollectModulesResponse: answer, Age: age}
	view.Done, _ = noticeOf[accessDone](v)
	switch status.Code(err) {
	case codes.OK:
	case codes.InvalidArgument:
		view.Refused, code = status.Convert(err).Message(), http.StatusUnprocessableEntity
	default:
		return err
	}
	view.Shown = answer.GetCollected()[:min(len(answer.GetCollected()), pageSize)]
	return c.showStatus(v, code, "collect", "modules", view)
}

// collect deletes the bytes of the versions that nothing refers to.
func (c *console) collect(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	age := cmp.Or(strings.TrimSpace(v.r.PostForm.Get("age")), collectedAge)
	answer, err := c.modules.CollectModules(v.ctx, &apiv1.CollectModulesRequest{App: v.app, OlderThan: age})
	if status.Code(err) == codes.InvalidArgument {
		return c.showCollect(v, http.StatusUnprocessableEntity, age)
	}
	if err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "collect"), accessDone{"collect.done", count(len(answer.Collected)) + " · " + byteSize(answer.Bytes)})
	return nil
}
