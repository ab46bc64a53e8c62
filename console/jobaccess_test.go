package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const accessOfTotals = "/apps/default/jobs/totals?tab=access"

// TestJobAccess shows the bindings of the app of a job, with what each role permits to do with the job.
func TestJobAccess(t *testing.T) {
	f := newFake().populate()
	f.bindings = []*apiv1.Binding{
		{Id: "bnd-1", Principal: "ada" + evil, Role: "viewer", Scope: "app:default"},
		{Id: "bnd-2", Principal: "prometheus", Role: "scraper", Scope: "cluster"}, // permits nothing with a job
		{Id: "bnd-3", Principal: "former", Role: "viewer", Scope: "cluster", ExpiresAt: timestamppb.New(time.Now().Add(-time.Minute))},
	}
	f.may, f.scope = []string{"jobs.read", "jobs.trigger", "access.read"}, "app:default"
	s := newSite(t, f).signIn(t)
	resp, body := s.do(t, "GET", accessOfTotals, nil)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the tab answers %s", resp.Status)
	}
	checkPage(t, body)
	if got := asked1[*apiv1.ListBindingsRequest](t, f).App; got != "default" {
		t.Errorf("the console asks for the bindings of app %q", got)
	}
	_, tab, _ := strings.Cut(body, `id="h-access"`)
	own, table, found := strings.Cut(tab, "<tbody")
	table, _, _ = strings.Cut(table, "</tbody>")
	if !found || strings.Count(table, "<tr") != 1 || !strings.Contains(table, "ada") || !strings.Contains(table, "app default") {
		t.Errorf("the table has not the one binding of ada:\n%s", table)
	}
	if !strings.Contains(tab, "wider scopes") {
		t.Error("the list of a visitor with a role in one app does not say that it lacks bindings")
	}
	for name, part := range map[string]struct {
		text, want string
	}{
		"the visitor":  {own, "read, run"},
		"ada's viewer": {table, "read"},
	} {
		var may []string
		for _, deed := range []string{"read", "see inputs and outputs", "read logs", "run", "pause, cancel, retry", "change and delete"} {
			if strings.Contains(part.text, `<span class="tag">`+deed+`</span>`) {
				may = append(may, deed)
			}
		}
		if got := strings.Join(may, ", "); got != part.want {
			t.Errorf("%s may %q, want %q", name, got, part.want)
		}
	}
}

// TestJobAccessWithoutPermission: without the permission access.read the page has no tab, and the address
// answers 403.
func TestJobAccessWithoutPermission(t *testing.T) {
	for scope, may := range map[string][]string{
		"cluster":  {"jobs.read", "runs.read"},
		"app:shop": {"jobs.read", "runs.read", "access.read"}, // the fake shows the job all the same
	} {
		t.Run(scope, func(t *testing.T) {
			f := newFake().populate()
			f.may, f.scope = may, scope
			s := newSite(t, f).signIn(t)
			resp, body := s.do(t, "GET", "/apps/default/jobs/totals", nil)
			if offered := strings.Contains(body, "?tab=access"); resp.StatusCode != http.StatusOK || offered {
				t.Errorf("the page of the job answers %s, with the tab: %t", resp.Status, offered)
			}
			resp, body = s.do(t, "GET", accessOfTotals, nil)
			if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "access.read") || strings.Contains(body, "h-access") {
				t.Errorf("the address of the tab answers %s:\n%s", resp.Status, body)
			}
		})
	}
}

// TestJobAccessIsBounded shows the first bindings of many, and how many there are.
func TestJobAccessIsBounded(t *testing.T) {
	f := newFake().populate()
	f.bindings = nil
	for i := range shownAccess + 1 {
		f.bindings = append(f.bindings, &apiv1.Binding{Id: fmt.Sprint(i), Principal: fmt.Sprintf("user-%03d", i), Role: "viewer", Scope: "cluster"})
	}
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", accessOfTotals, nil)
	if n := strings.Count(body, "<b>user-"); n != shownAccess || strings.Contains(body, fmt.Sprintf("user-%03d", shownAccess)) {
		t.Errorf("the page shows %d bindings", n)
	}
	if strings.Contains(body, "wider scopes") {
		t.Error("the list of a visitor of the cluster says that it lacks bindings")
	}
	for _, want := range []string{fmt.Sprintf(`<span class="hint">%d</span>`, shownAccess+1), fmt.Sprintf("The first %d are shown.", shownAccess)} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}
