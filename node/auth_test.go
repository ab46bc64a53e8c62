package node_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/node"
)

// TestWorkersRunTheirOwnFunctions: a worker's token claims to be a host that runs
// everything, at once and later. It must get no run of a module, and so neither the
// module's bytes nor the secrets that it was granted.
func TestWorkersRunTheirOwnFunctions(t *testing.T) {
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	conn, asWorker := dial(t, p, p.HostToken)
	work := apiv1.NewWorkerClient(conn)
	hello := func(abi ...string) *apiv1.WorkUp {
		return &apiv1.WorkUp{Hello: &apiv1.Hello{Host: "w", Session: "s", Abi: abi}, Credits: 10}
	}
	for name, says := range map[string][]*apiv1.WorkUp{
		"nothing, which is modules":   {hello()},
		"modules":                     {hello("native:mine", "wasi-p1")},
		"an ABI that is not there":    {hello("native:mine", "x")},
		"a plugin":                    {hello("plugin:p")},
		"what is built in":            {hello("builtin:http")},
		"modules later":               {hello("native:mine"), {Abilities: &apiv1.Abilities{Abi: []string{"native:mine", "wheelwork_v1.1"}}}},
		"modules in a second hello":   {hello("native:mine"), hello("wasi-p1")},
		"nothing in a second hello":   {hello("native:mine"), hello()},
		"a plugin beside its session": {{Hello: hello("native:mine").Hello, Abilities: &apiv1.Abilities{Abi: []string{"plugin:p"}}}},
	} {
		s, err := work.Work(asWorker)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range says {
			if err := s.Send(m); err != nil {
				break // Recv returns the reason
			}
		}
		for err = nil; err == nil; {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "lacks the permission execute") {
			t.Errorf("a worker that says %s: %v", name, err)
		}
	}

	// A worker that names its functions gets its own runs.
	s, err := work.Work(asWorker)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(hello("native:mine")); err != nil {
		t.Fatal(err)
	}
	owner, asOwner := dial(t, p, p.Token)
	jobs := apiv1.NewJobsClient(owner)
	if _, err := jobs.ApplyJob(asOwner, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "j", Handler: &apiv1.Handler{Name: "native:mine"}}}); err != nil {
		t.Fatal(err)
	}
	if err := push(t, asOwner, owner, "greet", "1", greet.Module); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.ApplyJob(asOwner, &apiv1.ApplyJobRequest{Job: greetJob()}); err != nil {
		t.Fatal(err)
	}
	run, err := jobs.TriggerJob(asOwner, &apiv1.TriggerJobRequest{Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	var task *apiv1.Task
	for task == nil {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Tasks) > 0 {
			task = m.Tasks[0]
		}
	}
	if got := job.RunID(task.Run).String(); got != run.Id || task.Handler != "native:mine" {
		t.Errorf("the worker got %v", task)
	}

	// Neither its own run nor a run that it claims gives access to what modules were
	// granted.
	guest := apiv1.NewGuestClient(conn)
	who := &apiv1.Caller{App: "default", Run: task.Run, Attempt: task.Attempt, Epoch: task.Epoch, Host: "w", Session: "s"}
	if _, err := guest.GetSecret(asWorker, &apiv1.GuestGetSecretRequest{Caller: who, Name: "x"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a secret for a function of its own: %v", err)
	}
	stream, err := work.FetchModule(asWorker, &apiv1.FetchModuleRequest{Digest: "sha256:" + strings.Repeat("0", 64)})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("the bytes of a module: %v", err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

// TestMembersAreNotPeople: the token that the processes of an installation share permits
// the calls between them, and none that changes which code runs.
func TestMembersAreNotPeople(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	const shared = "a-token-of-the-installation"
	if err := os.WriteFile(token, []byte(shared+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{Data: filepath.Join(dir, "server"), Listen: "127.0.0.1:0", TokenFile: token, Ready: ready})
	})
	conn, asMember := dial(t, p, shared)
	open := map[string]bool{ // among the services for people
		"/wheelwork.v1.Cluster/GetVersion": true, "/wheelwork.v1.Cluster/ListHosts": true, "/wheelwork.v1.Cluster/GetOverview": true,
		"/wheelwork.v1.Jobs/GetJob": true, "/wheelwork.v1.Jobs/ListJobs": true, "/wheelwork.v1.Apps/GetApp": true, "/wheelwork.v1.Apps/ListApps": true,
		"/wheelwork.v1.Operations/ListOperations": true, "/wheelwork.v1.Operations/ListAllOperations": true, "/wheelwork.v1.Operations/GetOperation": true,
		"/wheelwork.v1.Calendars/GetCalendar": true, "/wheelwork.v1.Calendars/ListCalendars": true,
		"/wheelwork.v1.Membership/GetCluster": true, "/wheelwork.v1.Access/WhoAmI": true, "/wheelwork.v1.Access/ListSessions": true, "/wheelwork.v1.Access/EndSession": true,
		"/wheelwork.v1.Access/SignIn": true, "/wheelwork.v1.Access/UseSession": true, "/wheelwork.v1.Audit/AnchorAudit": true,
		"/wheelwork.v1.Access/ApproveLogin": true, "/wheelwork.v1.Access/ListRoles": true, "/wheelwork.v1.Access/ClaimLogin": true,
		"/wheelwork.v1.Events/PublishEvent": true, "/wheelwork.v1.Events/ListEventSources": true, "/wheelwork.v1.Backups/GetBackups": true,
		"/wheelwork.v1.Machines/Join": true, "/wheelwork.v1.Machines/RenewCertificate": true, "/wheelwork.v1.Machines/EnrollServer": true,
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for k := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(k)
				service := string(f.Services().Get(i).Name())
				name := "/" + string(f.Services().Get(i).FullName()) + "/" + string(m.Name())
				err := call(asMember, conn, m, name)
				allowed := status.Code(err) != codes.PermissionDenied || service == "Guest" // calls of Guest are fenced by the attempt
				if want := open[name] || service == "Worker" || service == "Nameserver" || service == "Guest"; allowed != want {
					t.Errorf("%s with the token of the installation: %v", name, err)
				}
			}
		}
		return true
	})
	m := &apiv1.PutAppRequest{App: &apiv1.App{Name: "default"}} // the keys that an app trusts are more than a job
	if _, err := apiv1.NewAppsClient(conn).PutApp(asMember, m); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "apps.write") {
		t.Errorf("PutApp: %v", err)
	}
}
