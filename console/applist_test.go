package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// appPages returns the addresses of the pages of apps, with texts that each must contain.
func appPages() map[string][]string {
	return map[string][]string{
		"/apps":                {"billing", "bills &lt;script&gt;", "1\u202f234", "A limit is reached", `href="/apps/billing/limits"`, `href="/apps/billing/delete"`, "weight 3", "7 / 9", "Create an app"},
		"/apps?prefix=bil":     {"billing"},
		"/apps?prefix=none":    {"No app begins with this."},
		"/apps/billing/delete": {"Delete the app billing?"},
	}
}

func (f *fakeAPI) ListApps(context.Context, *apiv1.ListAppsRequest) (*apiv1.ListAppsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []*apiv1.App{
		{Name: "billing", Description: "bills " + evil, Jobs: 1234, Live: 12, AtHosts: 7, ModuleBytes: 3 << 20, Weight: 3, Limits: &apiv1.AppLimits{Jobs: 1234, LiveRuns: 9}, UpdatedAt: timestamppb.Now()},
		{Name: "default"},
	}
	all = slices.DeleteFunc(append(all, f.made...), func(a *apiv1.App) bool { return f.scope != "" && !scopeHas(f.scope, scopeOf(a.Name)) })
	return &apiv1.ListAppsResponse{Apps: all}, nil
}

func (f *fakeAPI) PutApp(_ context.Context, r *apiv1.PutAppRequest) (*apiv1.App, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.App.Weight > 1000 {
		return nil, status.Errorf(codes.InvalidArgument, "weight: %d, it must be at most 1000", r.App.Weight)
	}
	f.made = append(slices.Clone(f.made), r.App)
	return r.App, nil
}

func (f *fakeAPI) DeleteApp(_ context.Context, r *apiv1.DeleteAppRequest) (*apiv1.DeleteAppResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(f.made), func(a *apiv1.App) bool { return a.Name == r.Name })
	if len(left) == len(f.made) {
		return nil, status.Errorf(codes.FailedPrecondition, "app %s has 1234 jobs: delete them first", r.Name)
	}
	f.made = left
	return &apiv1.DeleteAppResponse{Bytes: 2 << 20}, nil
}

// TestApps creates an app and deletes it.
func TestApps(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, body := s.post(t, "/apps", "name=shop&description=orders&weight=2&retain_runs=720h")
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps" || len(s.fake.made) != 1 {
		t.Fatalf("%s to %q\n%s", resp.Status, resp.Header.Get("Location"), body)
	}
	if a := s.fake.made[0]; a.Name != "shop" || a.Description != "orders" || a.Weight != 2 || a.RetainRuns != "720h" {
		t.Errorf("the app is %v", a)
	}
	if _, body := s.do(t, "GET", "/apps", nil); !strings.Contains(body, "Created: shop") || !strings.Contains(body, "/apps/shop/delete") {
		t.Errorf("the list:\n%s", body)
	}
	resp, _ = s.post(t, "/apps/shop/delete", "")
	if resp.StatusCode != http.StatusSeeOther || len(s.fake.made) != 0 {
		t.Errorf("delete: %s", resp.Status)
	}
	if _, body := s.do(t, "GET", "/apps", nil); !strings.Contains(body, "Deleted: shop · 2.0 MiB freed") {
		t.Errorf("the list after a deletion:\n%s", body)
	}
}

func TestAppsAreRefused(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for form, want := range map[string]string{
		"name=shop&weight=heavy": "weight: &#34;heavy&#34; is not a number",
		"name=shop&weight=2000":  "it must be at most 1000",
		"name=billing":           "app billing exists and has settings",
	} {
		resp, body := s.post(t, "/apps", form)
		name, _, _ := strings.Cut(strings.TrimPrefix(form, "name="), "&")
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, want) || !strings.Contains(body, `name="name" value="`+name+`"`) || len(s.fake.made) > 0 {
			t.Errorf("%s: %s, want %q\n%s", form, resp.Status, want, body)
		}
		checkPage(t, body)
	}
	resp, body := s.post(t, "/apps/billing/delete", "")
	if resp.StatusCode != http.StatusConflict || !strings.Contains(body, "app billing has 1234 jobs: delete them first") {
		t.Errorf("delete: %s\n%s", resp.Status, body)
	}
	checkPage(t, body)
}

// testApps creates an app, opens it and deletes it, with the keyboard alone, on a narrow screen.
func testApps(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	press := pressing(t, b, 400)
	b.visit("/apps")
	b.do(chromedp.SendKeys("#a-name", "shop"))
	press(`form[action="/apps"][method=post] button`, "Created: shop")
	press(`main a[href="/apps/shop/limits"]`, "Limits of shop")
	b.visit("/apps")
	press(`main a[href="/apps/shop/delete"]`, "Delete the app shop?")
	press(`main form button`, "Deleted: shop")
}
