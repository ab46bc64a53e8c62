package node_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/node"
)

// wantReload reloads a process, and checks that it takes over cfg, or that its error contains a
// text.
func wantReload[C any](t *testing.T, requests chan<- node.Reload[C], cfg C, wanted string) {
	t.Helper()
	done := make(chan error, 1)
	requests <- node.Reload[C]{Config: cfg, Done: func(err error) { done <- err }}
	err := <-done
	if wanted == "" && err != nil || wanted != "" && (err == nil || !strings.Contains(err.Error(), wanted)) {
		t.Fatalf("the reload says %v, want %q", err, wanted)
	}
}

// TestReloadCertificate renews the certificate of a nameserver while a connection is open, and
// then damages it.
func TestReloadCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	renew := func(serial int64) {
		t.Helper()
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew(1)
	requests := make(chan node.Reload[node.NameserverConfig])
	cfg := node.NameserverConfig{Listen: "127.0.0.1:0", TokenFile: hostToken(t), TLSCert: cert, TLSKey: key}
	names := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := cfg
		cfg.Reload, cfg.Ready = requests, ready
		return node.Nameserver(ctx, cfg)
	})
	reload := func(wanted string) {
		t.Helper()
		wantReload(t, requests, cfg, wanted)
	}
	connect := func(want int64) *tls.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", names.GRPC, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // the test compares serial numbers
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() }) //nolint:errcheck // a test's connection
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("the certificate %d was shown, want %d", got, want)
		}
		return conn
	}
	open := connect(1)
	renew(2)
	connect(1)
	reload("")
	connect(2)
	if err := os.WriteFile(cert, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload("read --tls-cert and --tls-key")
	connect(2)
	if _, err := open.Write([]byte("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if _, err := open.Read(answer); err != nil || string(answer[:8]) != "HTTP/1.1" {
		t.Errorf("the connection from before the renewal answers %q, %v", answer, err)
	}
}

// TestReloadServer replaces the tokens and the limits of a server. Streams of the removed token
// end, those of the others continue. A reload that fails changes nothing, the valid part of it
// included.
func TestReloadServer(t *testing.T) {
	dir := t.TempDir()
	write := func(file, token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const first, second = "the-first-token-of-hosts", "the-second-token-of-hosts"
	tokens, data := filepath.Join(dir, "hosts"), filepath.Join(dir, "server")
	write(tokens, first)
	requests := make(chan node.Reload[node.ServerConfig])
	cfg := node.ServerConfig{Data: data, Listen: "127.0.0.1:0", TokenFile: tokens}
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := cfg
		cfg.Reload, cfg.Ready = requests, ready
		return node.Server(ctx, cfg)
	})
	conn, asFirst := dial(t, p, first)
	_, asSecond := dial(t, p, second)
	_, asAdmin := dial(t, p, p.Token)
	_, asNewAdmin := dial(t, p, "another-token-of-the-administrator")
	list := func(ctx context.Context) codes.Code {
		_, err := apiv1.NewClusterClient(conn).ListHosts(ctx, &apiv1.ListHostsRequest{})
		return status.Code(err)
	}
	apply := func() int {
		t.Helper()
		body := `{"name":"j","handler":{"name":"native:f"},"input":"` + strings.Repeat("x", 2000) + `"}`
		req, err := http.NewRequestWithContext(t.Context(), "PUT", p.URL+"/api/v1/apps/default/jobs/j", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+p.Token)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close() //nolint:errcheck // the status says it
		return res.StatusCode
	}
	if err := push(t, asAdmin, conn, "greet", "1", greet.Module); err != nil {
		t.Fatal(err)
	}
	ofHost, err := apiv1.NewNameserverClient(conn).Watch(asFirst, &apiv1.WatchRequest{Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ofHost.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := apiv1.NewJobsClient(conn).ApplyJob(asAdmin, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "j", Handler: &apiv1.Handler{Name: "native:f"}}}); err != nil {
		t.Fatal(err)
	}
	run, err := apiv1.NewJobsClient(conn).TriggerJob(asAdmin, &apiv1.TriggerJobRequest{Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	ofAdmin, err := apiv1.NewRunsClient(conn).WatchRun(asAdmin, &apiv1.WatchRunRequest{Id: run.Id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ofAdmin.Recv(); err != nil {
		t.Fatal(err)
	}

	next := cfg
	next.Limits.Body, next.Verifier.Limits.ModuleBytes = 1000, 100
	write(tokens, "short")
	wantReload(t, requests, next, "has 5 characters")
	next.Certificates.Cert = "cert.pem"
	write(tokens, second)
	wantReload(t, requests, next, "--tls-cert and --tls-key go together")
	if list(asFirst) != codes.OK || list(asSecond) != codes.Unauthenticated || apply() != http.StatusOK {
		t.Error("a reload that failed changed the tokens or the limits")
	}

	next.Certificates.Cert = ""
	wantReload(t, requests, next, "")
	for err = nil; err == nil; { // the host may have more to read before the end
		_, err = ofHost.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of the removed token: %v", err)
	}
	if list(asFirst) != codes.Unauthenticated || list(asSecond) != codes.OK || list(asAdmin) != codes.OK {
		t.Errorf("the first token gets %v, the second %v, the administrator's %v", list(asFirst), list(asSecond), list(asAdmin))
	}
	if code := apply(); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the new limit: %v", code)
	}
	if err := push(t, asAdmin, conn, "greet", "2", greet.Module); err == nil || !strings.Contains(err.Error(), "--upload-size") {
		t.Errorf("an upload over the new limit: %v", err)
	}
	if _, err := apiv1.NewRunsClient(conn).CancelRun(asAdmin, &apiv1.CancelRunRequest{Id: run.Id}); err != nil {
		t.Fatal(err)
	}
	if _, err := ofAdmin.Recv(); err != nil {
		t.Errorf("the stream of the administrator, whose token stayed: %v", err)
	}

	write(filepath.Join(data, "token"), "another-token-of-the-administrator")
	wantReload(t, requests, cfg, "")
	if list(asAdmin) != codes.Unauthenticated || list(asNewAdmin) != codes.OK {
		t.Errorf("the former token of the administrator gets %v, the new one %v", list(asAdmin), list(asNewAdmin))
	}
}

// TestReloadHost changes the servers that jobs may call, and the token of the hosts: first in the
// server, which ends the session, and then in the host, which comes back.
func TestReloadHost(t *testing.T) {
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("hello")) //nolint:errcheck // the host may be gone
	}))
	defer answers.Close()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "hosts")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-first-token-of-hosts")
	toServer, toHost := make(chan node.Reload[node.ServerConfig]), make(chan node.Reload[node.HostConfig])
	server := node.ServerConfig{Data: filepath.Join(dir, "server"), Listen: "127.0.0.1:0", TokenFile: tokens}
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := server
		cfg.Reload, cfg.Ready = toServer, ready
		return node.Server(ctx, cfg)
	})
	host := node.HostConfig{Data: filepath.Join(dir, "host"), Server: p.GRPC, TokenFile: tokens}
	launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := host
		cfg.Reload, cfg.Ready = toHost, ready
		return node.Host(ctx, cfg)
	})
	conn, ctx := dial(t, p, p.Token)
	jobs := apiv1.NewJobsClient(conn)
	if _, err := jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "call", Handler: &apiv1.Handler{Name: "builtin:http", Http: &apiv1.HTTPCall{Url: answers.URL}}}}); err != nil {
		t.Fatal(err)
	}
	trigger := func() string {
		t.Helper()
		run, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "call"})
		if err != nil {
			t.Fatal(err)
		}
		return run.Id
	}
	waits := trigger() // no host may call a server
	host.Executors.Private = []string{answers.Listener.Addr().String()}
	wantReload(t, toHost, host, "")
	if r := await(t, ctx, conn, waits); r.State != "succeeded" || r.Output != "hello" {
		t.Errorf("a server that the host allows now: %s %s", r.State, r.Error)
	}
	other := host
	other.Executors.Private = []string{"other.example"}
	wantReload(t, toHost, other, "")
	if r := await(t, ctx, conn, trigger()); r.Code != "not_granted" {
		t.Errorf("a server that the host does not allow any longer: %s %s", r.State, r.Error)
	}

	write("the-second-token-of-hosts")
	wantReload(t, toServer, server, "")
	wantReload(t, toHost, host, "")
	if r := await(t, ctx, conn, trigger()); r.State != "succeeded" {
		t.Errorf("with another token of hosts: %s %s", r.State, r.Error)
	}
	if err := os.Remove(tokens); err != nil {
		t.Fatal(err)
	}
	wantReload(t, toHost, other, "read --token-file")
	if r := await(t, ctx, conn, trigger()); r.State != "succeeded" {
		t.Errorf("after a reload that failed: %s %s", r.State, r.Error)
	}
}

// TestReloadDev reloads both roles of one process, or none of them.
func TestReloadDev(t *testing.T) {
	requests := make(chan node.Reload[node.DevConfig])
	cfg := node.DevConfig{Data: t.TempDir()}
	p := dev(t, node.DevConfig{Data: cfg.Data, Reload: requests})
	conn, ctx := dial(t, p, p.Token)
	offers := func() bool {
		t.Helper()
		hosts, err := apiv1.NewClusterClient(conn).ListHosts(ctx, &apiv1.ListHostsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(hosts.Hosts) == 1 && slices.Contains(hosts.Hosts[0].Abi, "builtin:http")
	}
	wrong := cfg
	wrong.Limits.Body, wrong.Executors.HTTP = -1, []string{"a.example"}
	wantReload(t, requests, wrong, "bytes of a body is negative")
	if offers() {
		t.Error("a reload that failed for the server changed the host")
	}
	right := cfg
	right.Executors.HTTP = []string{"a.example"}
	wantReload(t, requests, right, "")
	for !offers() { // the host tells the server
		if ctx.Err() != nil {
			t.Fatal("the host does not offer builtin:http")
		}
	}
	wantReload(t, requests, cfg, "")
	for offers() {
		if ctx.Err() != nil {
			t.Fatal("the host still offers builtin:http")
		}
	}
}

// TestReloadServerToken replaces the token of servers in a nameserver, which ends the report of the
// server, and then in the server, which reports again over the same connection.
func TestReloadServerToken(t *testing.T) {
	dir := t.TempDir()
	hosts, servers := hostToken(t), filepath.Join(dir, "servers")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(servers, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-first-token-of-servers")
	toNames, toServer := make(chan node.Reload[node.NameserverConfig]), make(chan node.Reload[node.ServerConfig])
	nameserver := node.NameserverConfig{Listen: "127.0.0.1:0", TokenFile: hosts, ServerTokenFile: servers}
	names := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := nameserver
		cfg.Reload, cfg.Ready = toNames, ready
		return node.Nameserver(ctx, cfg)
	})
	server := node.ServerConfig{Data: filepath.Join(dir, "server"), Listen: "127.0.0.1:0", Nameserver: names.GRPC, TokenFile: hosts, ServerTokenFile: servers}
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := server
		cfg.Reload, cfg.Ready = toServer, ready
		return node.Server(ctx, cfg)
	})
	conn, ctx := dial(t, names, "a-shared-secret-of-this-test")
	watch, err := apiv1.NewNameserverClient(conn).Watch(ctx, &apiv1.WatchRequest{Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	until := func(address string) {
		t.Helper()
		for {
			a, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if a.Address == address {
				return
			}
		}
	}
	until(p.GRPC)
	write("the-second-token-of-servers")
	wantReload(t, toNames, nameserver, "")
	until("")
	wantReload(t, toServer, server, "")
	until(p.GRPC)
}
