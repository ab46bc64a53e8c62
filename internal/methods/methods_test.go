package methods

import (
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestMethods checks the options of some methods, and that of each the apps are known.
func TestMethods(t *testing.T) {
	apply := Of(apiv1.Jobs_ApplyJob_FullMethodName)
	if apply.Permission != "jobs.write" || apply.Route != apiv1.Route_ROUTE_JOB || apply.Apps != One {
		t.Errorf("ApplyJob: %+v", apply)
	}
	for app, req := range map[string]*apiv1.ApplyJobRequest{"shop": {Job: &apiv1.Job{App: "shop"}}, "": {}} {
		if got := apply.App(req); got != app {
			t.Errorf("the app of %v is %q", req, got)
		}
	}
	if m := Of(apiv1.Producer_Produce_FullMethodName); m.Apps != Each || m.App(&apiv1.ProduceRequest{}) != "" {
		t.Errorf("Produce: %+v", m)
	}
	if m := Of(apiv1.Cluster_GetOverview_FullMethodName); m.Apps != One {
		t.Errorf("GetOverview: %+v", m)
	}
	if m := Of("/wheelwork.v1.Jobs/NoSuch"); m.Permission != "" || m.Apps != Unknown {
		t.Errorf("an unknown method: %+v", m)
	}
	n := 0
	for name, m := range All() {
		if n++; m.Apps == Unknown || m.Permission == "" || m.Route == apiv1.Route_ROUTE_UNSPECIFIED {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if n < 80 {
		t.Errorf("%d methods", n)
	}
}
