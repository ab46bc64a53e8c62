package node_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/node"
)

// process is a role that runs in this test.
type process struct {
	node.Ready
	stop func() error
}

// launch starts a role and waits until it is ready.
func launch(t *testing.T, run func(ctx context.Context, ready func(node.Ready)) error) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan node.Ready, 1), make(chan error, 1)
	go func() { done <- run(ctx, func(r node.Ready) { ready <- r }) }()
	p := &process{}
	stopped := false
	p.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	select {
	case p.Ready = <-ready:
	case err := <-done:
		cancel()
		t.Fatalf("did not start: %v", err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return p
}

func dev(t *testing.T, cfg node.DevConfig) *process {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg.Ready = ready
		return node.Dev(ctx, cfg)
	})
}

// dial returns a connection and a context that carries the token.
func dial(t *testing.T, p *process, token string) (*grpc.ClientConn, context.Context) {
	t.Helper()
	return dialVerified(t, p, token, nil)
}

// dialVerified is dial for a process with TLS, if verify is set.
func dialVerified(t *testing.T, p *process, token string, verify *tls.Config) (*grpc.ClientConn, context.Context) {
	t.Helper()
	creds := insecure.NewCredentials()
	if verify != nil {
		creds = credentials.NewTLS(verify)
	}
	conn, err := grpc.NewClient(p.GRPC, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // a test's connection
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return conn, metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func push(t *testing.T, ctx context.Context, conn *grpc.ClientConn, name, version string, code []byte) error {
	t.Helper()
	s, err := apiv1.NewModulesClient(conn).PushModule(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head := &apiv1.PushModuleRequest_Head{Name: name, Version: version}
	if err := s.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: head}}); err != nil {
		t.Fatal(err)
	}
	if len(code) > 0 {
		if err := s.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Chunk{Chunk: code}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.CloseAndRecv()
	return err
}

// await follows a run to its end.
func await(t *testing.T, ctx context.Context, conn *grpc.ClientConn, id string) *apiv1.Run {
	t.Helper()
	s, err := apiv1.NewRunsClient(conn).WatchRun(ctx, &apiv1.WatchRunRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	var last *apiv1.Run
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return last
		}
		if err != nil {
			t.Fatalf("watch %s: %v", id, err)
		}
		last = r
	}
}

func greetJob() *apiv1.Job {
	return &apiv1.Job{Name: "hello", Handler: &apiv1.Handler{Module: "greet@1"}, Input: "test"}
}

func TestDevRunsTheSampleJob(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	p := dev(t, node.DevConfig{Data: filepath.Join(dir, "data"), Sample: true, ReadyFile: ready})
	b, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	var told map[string]any
	if err := json.Unmarshal(b, &told); err != nil || told["url"] != p.URL || told["grpc"] != p.GRPC || told["token"] != p.Token || told["pid"] != float64(os.Getpid()) {
		t.Fatalf("ready file: %s, %v", b, err)
	}
	conn, ctx := dial(t, p, p.Token)
	runs := apiv1.NewRunsClient(conn)
	for { // the job's schedule fires within five seconds
		list, err := runs.ListRuns(ctx, &apiv1.ListRunsRequest{Job: "greet", State: "succeeded"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Runs) > 0 {
			r, err := runs.GetRun(ctx, &apiv1.GetRunRequest{Id: list.Runs[0].Id})
			if err != nil || r.Output != "Hello, newcomer!\n" || r.Trigger != "schedule" {
				t.Fatalf("run %v, %v", r, err)
			}
			break
		}
		live, err := runs.ListRuns(ctx, &apiv1.ListRunsRequest{Job: "greet", State: "live"})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range live.Runs {
			await(t, ctx, conn, r.Id)
		}
		select {
		case <-ctx.Done():
			t.Fatal("the sample job did not run")
		case <-time.After(50 * time.Millisecond):
		}
	}
	// The same port speaks HTTP.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/api/v1/apps/default/jobs/greet", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // a test's response
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"name":"greet"`) {
		t.Fatalf("HTTP %d: %s, %v", resp.StatusCode, body, err)
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	cfg := node.DevConfig{Data: t.TempDir()}
	p := dev(t, cfg)
	conn, ctx := dial(t, p, p.Token)
	if err := push(t, ctx, conn, "greet", "1", greet.Module); err != nil {
		t.Fatal(err)
	}
	jobs := apiv1.NewJobsClient(conn)
	if _, err := jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: greetJob()}); err != nil {
		t.Fatal(err)
	}
	run, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "hello", IdempotencyKey: "once"})
	if err != nil {
		t.Fatal(err)
	}
	before := await(t, ctx, conn, run.Id)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	token := p.Token
	p = dev(t, cfg)
	if p.Token != token {
		t.Fatal("the token changed")
	}
	conn, ctx = dial(t, p, p.Token)
	after, err := apiv1.NewRunsClient(conn).GetRun(ctx, &apiv1.GetRunRequest{Id: run.Id})
	if err != nil || after.Output != before.Output || after.State != "succeeded" {
		t.Fatalf("the run after a restart: %v, %v", after, err)
	}
	again, err := apiv1.NewJobsClient(conn).TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "hello", IdempotencyKey: "once"})
	if err != nil || again.Id != run.Id {
		t.Fatalf("the key after a restart: %v, %v", again, err)
	}
	log, err := apiv1.NewRunsClient(conn).ReadLog(ctx, &apiv1.ReadLogRequest{Id: run.Id})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := log.Recv(); err != nil || line.Text != "attempt 1" {
		t.Fatalf("the log after a restart: %v, %v", line, err)
	}
}

func TestTwoProcessesOnOneDirectory(t *testing.T) {
	cfg := node.DevConfig{Data: t.TempDir()}
	dev(t, cfg)
	cfg.Listen = "127.0.0.1:0"
	err := node.Dev(context.Background(), cfg)
	if err == nil || !strings.Contains(err.Error(), "is in use by process") || !strings.Contains(err.Error(), "--data") {
		t.Fatalf("the second one: %v", err)
	}
}

func TestListeningBeyondLoopbackNeedsTLS(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:7700"} {
		err := node.Dev(context.Background(), node.DevConfig{Data: t.TempDir(), Listen: addr})
		if err == nil || !strings.Contains(err.Error(), "--tls-cert") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestBadModulesAreRefused(t *testing.T) {
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	conn, ctx := dial(t, p, p.Token)
	if err := push(t, ctx, conn, "greet", "1", greet.Module); err != nil {
		t.Fatal(err)
	}
	if err := push(t, ctx, conn, "greet", "1", greet.Module); err != nil {
		t.Fatalf("the same bytes again: %v", err)
	}
	for _, c := range []struct {
		name, version string
		code          []byte
		grpc          codes.Code
		want          string
	}{
		{"greet", "1", append(greet.Module[:len(greet.Module):len(greet.Module)], 0, 2, 1, 'x'), codes.AlreadyExists, "as a new version"},
		{"junk", "1", []byte("#!/bin/sh\necho hello\n"), codes.InvalidArgument, "WebAssembly"},
		{"component", "1", []byte{0, 'a', 's', 'm', 0x0d, 0, 1, 0}, codes.InvalidArgument, "component"},
		{"empty", "1", nil, codes.InvalidArgument, "refused"},
		{"bad/name", "1", greet.Module, codes.InvalidArgument, "is not a name"},
	} {
		err := push(t, ctx, conn, c.name, c.version, c.code)
		st := status.Convert(err)
		if st.Code() != c.grpc || !strings.Contains(st.Message(), c.want) || strings.Contains(st.Message(), "\n") {
			t.Errorf("%s: %v, want %s that says %q in one line", c.name, err, c.grpc, c.want)
		}
	}
}

// Every method is refused without a token, with a wrong one, and with one whose role
// lacks the permission. Only the methods whose permission is public are open.
func TestEveryMethodIsGuarded(t *testing.T) {
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	conn, withToken := dial(t, p, p.Token)
	_, asWorker := dial(t, p, p.HostToken)
	anonymous, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wrong := metadata.AppendToOutgoingContext(anonymous, "authorization", "Bearer ww_wrong")
	public := map[string]bool{"/wheelwork.v1.Cluster/GetVersion": true}
	memberOnly := map[string]bool{ // for hosts and servers, not for people
		"/wheelwork.v1.Worker/Work": true, "/wheelwork.v1.Worker/FetchModule": true, "/wheelwork.v1.Worker/GetModuleProof": true,
		"/wheelwork.v1.Nameserver/Join": true, "/wheelwork.v1.Nameserver/Watch": true,
		"/wheelwork.v1.Backups/FetchState": true, "/wheelwork.v1.Membership/Forward": true,
		"/wheelwork.v1.Membership/TakeSlot": true, "/wheelwork.v1.Membership/CopyApp": true, "/wheelwork.v1.Membership/CopyOut": true, "/wheelwork.v1.Membership/Ask": true, "/wheelwork.v1.Access/UseSession": true, "/wheelwork.v1.Audit/AnchorAudit": true, "/wheelwork.v1.Machines/EnrollServer": true,
		"/wheelwork.v1.Access/Setup": true, "/wheelwork.v1.Access/Federate": true, // for a server's own pages
	}
	workers := map[string]bool{ // for workers' tokens
		"/wheelwork.v1.Worker/Work":         true, // for the functions that it names: TestWorkersRunTheirOwnFunctions
		"/wheelwork.v1.Nameserver/Watch":    true,
		"/wheelwork.v1.Access/WhoAmI":       true,                                          // it tells the caller about itself alone
		"/wheelwork.v1.Access/ListSessions": true, "/wheelwork.v1.Access/EndSession": true, // of the caller
		"/wheelwork.v1.Access/ListRoles":    true, // they are in the documentation
		"/wheelwork.v1.Access/ApproveLogin": true, // it refuses a caller without a session
	}
	n := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for k := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(k)
				name := "/" + string(f.Services().Get(i).FullName()) + "/" + string(m.Name())
				n++
				if name == apiv1.Access_ClaimLogin_FullMethodName { // it needs no token, and refuses an empty secret
					if err := call(anonymous, conn, m, name); status.Code(err) != codes.InvalidArgument {
						t.Errorf("a claim without a secret: %v", err)
					}
					continue
				}
				if name == apiv1.Machines_Join_FullMethodName || name == apiv1.Machines_RenewCertificate_FullMethodName { // they need no token, and a server with TLS
					if err := call(anonymous, conn, m, name); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "--tls on") {
						t.Errorf("%s at a server without TLS: %v", name, err)
					}
					continue
				}
				if name == apiv1.Access_SignIn_FullMethodName { // it needs no token, and refuses an empty name
					if err := call(anonymous, conn, m, name); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "the name or the password") {
						t.Errorf("a sign-in without a name: %v", err)
					}
					continue
				}
				if name == apiv1.Events_PublishEvent_FullMethodName { // it needs no token, and a signature
					if err := call(anonymous, conn, m, name); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "has signed this message") {
						t.Errorf("an event without a signature: %v", err)
					}
					continue
				}
				if public[name] {
					if err := call(anonymous, conn, m, name); err != nil {
						t.Errorf("%s without a token: %v", name, err)
					}
					continue
				}
				if err := call(anonymous, conn, m, name); status.Code(err) != codes.Unauthenticated {
					t.Errorf("%s without a token: %v", name, err)
				}
				if err := call(wrong, conn, m, name); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "the token was refused") {
					t.Errorf("%s with a wrong token: %v", name, err)
				}
				err := call(withToken, conn, m, name)
				guest := strings.HasPrefix(name, "/wheelwork.v1.Guest/") // called by the host that executes the run
				if denied := status.Code(err) == codes.PermissionDenied; denied != (memberOnly[name] || guest) {
					t.Errorf("%s with the administrator's token: %v", name, err)
				}
				err = call(asWorker, conn, m, name)
				if allowed := status.Code(err) != codes.PermissionDenied; allowed != workers[name] {
					t.Errorf("%s with a worker's token: %v", name, err)
				}
			}
		}
		return true
	})
	if n < 20 {
		t.Fatalf("only %d methods were found", n)
	}
}

// call makes a call with an empty message and returns its first error.
func call(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		return err
	}
	if err := s.SendMsg(dynamicpb.NewMessage(m.Input())); err != nil && err != io.EOF {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(dynamicpb.NewMessage(m.Output()))
}

func TestThreeProcesses(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("a-shared-secret-of-this-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Nameserver(ctx, node.NameserverConfig{Listen: "127.0.0.1:0", TokenFile: token, Ready: ready})
	})
	host := launch(t, func(ctx context.Context, ready func(node.Ready)) error { // started before its server, for which it waits
		return node.Host(ctx, node.HostConfig{Data: filepath.Join(dir, "host"), Nameserver: names.GRPC, TokenFile: token, Name: "worker", Slots: 2, Ready: ready})
	})
	server := func() *process {
		return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			return node.Server(ctx, node.ServerConfig{Data: filepath.Join(dir, "server"), Listen: "127.0.0.1:0", Nameserver: names.GRPC, TokenFile: token, Ready: ready})
		})
	}
	srv := server()
	conn, ctx := dial(t, srv, srv.Token)
	if err := push(t, ctx, conn, "greet", "1", greet.Module); err != nil {
		t.Fatal(err)
	}
	jobs := apiv1.NewJobsClient(conn)
	if _, err := jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: greetJob()}); err != nil {
		t.Fatal(err)
	}
	run, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	if r := await(t, ctx, conn, run.Id); r.State != "succeeded" || r.Output != "Hello, test!\n" {
		t.Fatalf("run: %v", r)
	}
	// The server comes back at another address; the host finds it.
	if err := srv.stop(); err != nil {
		t.Fatal(err)
	}
	srv = server()
	conn, ctx = dial(t, srv, srv.Token)
	if run, err = apiv1.NewJobsClient(conn).TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "hello"}); err != nil {
		t.Fatal(err)
	}
	if r := await(t, ctx, conn, run.Id); r.State != "succeeded" {
		t.Fatalf("run after the server moved: %v", r)
	}
	hosts, err := apiv1.NewClusterClient(conn).ListHosts(ctx, &apiv1.ListHostsRequest{})
	if err != nil || len(hosts.Hosts) != 1 || hosts.Hosts[0].Name != "worker" || hosts.Hosts[0].State != "up" {
		t.Fatalf("hosts: %v, %v", hosts, err)
	}
	if err := host.stop(); err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	p := dev(t, node.DevConfig{Data: t.TempDir(), Sample: true})
	conn, ctx := dial(t, p, p.Token)
	run, err := apiv1.NewJobsClient(conn).TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	await(t, ctx, conn, run.Id)
	get := func(token string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // a test's response
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if code, _ := get(""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	if code, _ := get("wrong"); code != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d", code)
	}
	code, body := get(p.Token)
	if code != http.StatusOK {
		t.Fatalf("with the token: %d %s", code, body)
	}
	for _, want := range []string{
		`wheelwork_runs_ended_total{app="default",state="succeeded"} `,
		`wheelwork_runs_accepted_total{app="default",trigger="manual"} 1`,
		`wheelwork_hosts{state="up"} 1`, "wheelwork_loop_turn_seconds_bucket", "wheelwork_disk_free_bytes", "go_goroutines",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

func TestHostRefusesMistakesAtOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  node.HostConfig
		want string
	}{
		{"neither", node.HostConfig{Token: "a-token-of-a-host"}, "--nameserver or --server"},
		{"both", node.HostConfig{Token: "a-token-of-a-host", Server: "127.0.0.1:1", Nameserver: "127.0.0.1:2"}, "--nameserver or --server"},
		{"no token", node.HostConfig{Server: "127.0.0.1:1"}, "--join-token"},
		{"far without TLS", node.HostConfig{Token: "a-token-of-a-host", Server: "192.0.2.1:7700"}, "--ca-cert"},
		{"far nameserver without TLS", node.HostConfig{Token: "a-token-of-a-host", Nameserver: "192.0.2.1:7600"}, "--ca-cert"},
		{"a directory that is not", node.HostConfig{Token: "a-token-of-a-host", Server: "127.0.0.1:1", Dirs: map[string]string{"data": "/none/such"}}, "--dir data"},
		{"a directory with a path for a name", node.HostConfig{Token: "a-token-of-a-host", Server: "127.0.0.1:1", Dirs: map[string]string{"a/b": t.TempDir()}}, "want a plain name"},
		{"no port", node.HostConfig{Token: "a-token-of-a-host", Server: "127.0.0.1"}, "HOST:PORT"},
	} {
		c.cfg.Data = t.TempDir()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := node.Host(ctx, c.cfg)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.want)
		}
	}
}

// TestLoginURL opens the link that a process prints, with a browser's cookies: the link
// signs in once, and does not work with the token in place of the code.
func TestLoginURL(t *testing.T) {
	t.Parallel()
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	if strings.Contains(p.LoginURL, p.Token) {
		t.Error("the link holds the token")
	}
	for i, c := range []struct{ url, want string }{
		{p.URL + "/login?token=" + p.Token, "/login"},
		{p.LoginURL, "/apps/default"},
		{p.LoginURL, "/login"},
	} {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Jar: jar}).Get(c.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() //nolint:errcheck // not read
		if resp.Request.URL.Path != c.want {
			t.Errorf("link %d leads to %s, want %s", i, resp.Request.URL.Path, c.want)
		}
	}
}

// TestSignedInOverARestart signs in a browser and restarts the process twice: the browser
// stays signed in, and after it has signed out a restart does not bring its session back.
func TestSignedInOverARestart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	leadsTo := func(url, want string) {
		t.Helper()
		resp, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() //nolint:errcheck // not read
		if resp.Request.URL.Path != want {
			t.Fatalf("%s leads to %s, want %s", url, resp.Request.URL.Path, want)
		}
	}
	p := dev(t, node.DevConfig{Data: data})
	leadsTo(p.LoginURL, "/apps/default")
	session := jar.Cookies(address(t, p.URL))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = dev(t, node.DevConfig{Data: data})
	leadsTo(p.URL, "/apps/default")
	resp, err := browser.PostForm(p.URL+"/logout", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() //nolint:errcheck // not read
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = dev(t, node.DevConfig{Data: data})
	jar.SetCookies(address(t, p.URL), session) // a stolen copy of the cookie
	leadsTo(p.URL, "/login")
}

func address(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
