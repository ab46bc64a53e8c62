package node_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
)

// TestRequestsWithSecrets: a job sends a request with a secret to a server that echoes
// what it receives. The server must get it only as the owner of the app granted, and the
// value must be in no log, output or error, and in files only sealed.
func TestRequestsWithSecrets(t *testing.T) {
	const value = "s3cr3t-t0ken-0f-the-test"
	var mu sync.Mutex
	heard := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		heard = r.Header.Get("Authorization") + " " + string(body)
		mu.Unlock()
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusForbidden)
		}
		// The padding puts the end of the text for people within the value.
		fmt.Fprintf(w, "%s %s you said %s", heard, strings.Repeat("x", 100), heard)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := dev(t, node.DevConfig{Data: dir, Executors: node.Executors{Private: []string{u.Host}}})
	conn, ctx := dial(t, p, p.Token)
	jobs := apiv1.NewJobsClient(conn)
	run := func(path string) *apiv1.Run {
		t.Helper()
		d := &apiv1.Job{Name: "call", Handler: &apiv1.Handler{Name: "builtin:http", Http: &apiv1.HTTPCall{
			Url: server.URL + path, Headers: map[string]string{"Authorization": "Bearer ${secret.token}"}, Body: `{"token":${json(secret.token)},"in":"${input}"}`,
		}}, Input: "${secret.token}"}
		if _, err := jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: d}); err != nil {
			t.Fatal(err)
		}
		r, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "call"})
		if err != nil {
			t.Fatal(err)
		}
		r = await(t, ctx, conn, r.Id)
		if strings.Contains(r.String(), value[:8]) {
			t.Errorf("%s: the run tells the secret: %v", path, r)
		}
		lines, err := apiv1.NewRunsClient(conn).ReadLog(ctx, &apiv1.ReadLogRequest{Id: r.Id})
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := lines.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(m.String(), value[:8]) {
				t.Errorf("%s: the log tells the secret: %v", path, m)
			}
		}
		return r
	}
	was := func() string {
		mu.Lock()
		defer mu.Unlock()
		was := heard
		heard = ""
		return was
	}
	grant := func(h *apiv1.HttpGrant) {
		t.Helper()
		body := fmt.Sprintf(`{"grants":{"secrets":["token"],"http":[{"host":%q,"methods":["POST"],"paths":["/ok","/refuse"],"private":true}]}}`, h.Host)
		req, err := http.NewRequestWithContext(ctx, "PUT", p.URL+"/api/v1/apps/default/grants/builtin:http", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+p.Token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close() //nolint:errcheck // it was read
		if said, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
			t.Fatalf("grant: %s: %s", res.Status, said)
		}
	}

	if r := run("/ok"); r.State != "failed" || r.Code != "not_granted" || !strings.Contains(r.Error, "wheelwork module grant builtin:http --secret token") || was() != "" {
		t.Errorf("without a grant: %s %s: %s", r.State, r.Code, r.Error)
	}
	grant(&apiv1.HttpGrant{Host: u.Host})
	if r := run("/ok"); r.Code != "no_secret" || !strings.Contains(r.Error, "wheelwork secret set token") || was() != "" {
		t.Errorf("without a value: %s %s: %s", r.State, r.Code, r.Error)
	}
	if _, err := apiv1.NewSecretsClient(conn).SetSecret(ctx, &apiv1.SetSecretRequest{Name: "token", Value: value}); err != nil {
		t.Fatal(err)
	}
	sent := fmt.Sprintf(`Bearer %s {"token":%q,"in":"${secret.token}"}`, value, value)
	if r := run("/ok"); r.State != "succeeded" || was() != sent || !strings.HasPrefix(r.Output, `Bearer [secret] {"token":"[secret]","in":"${secret.token}"}`) {
		t.Errorf("granted: %s %s: %s; the output is %q", r.State, r.Code, r.Error, r.Output)
	}
	if r := run("/refuse"); r.Code != "http_403" || was() != sent || !strings.Contains(r.Error, "Bearer [secret]") {
		t.Errorf("refused: %s %s: %s", r.State, r.Code, r.Error)
	}
	if r := run("/elsewhere"); r.Code != "not_granted" || was() != "" {
		t.Errorf("where no secret may go: %s %s: %s", r.State, r.Code, r.Error)
	}
	grant(&apiv1.HttpGrant{Host: "api.example.com"})
	if r := run("/ok"); r.Code != "not_granted" || was() != "" {
		t.Errorf("granted for another server: %s %s: %s", r.State, r.Code, r.Error)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(value)) {
			t.Errorf("the secret is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
