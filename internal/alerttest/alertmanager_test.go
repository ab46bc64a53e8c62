package alerttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// told is what Alertmanager sends to its own receivers.
type told struct {
	mu  sync.Mutex
	all []string // state and alert_id of each alert
}

func (x *told) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var m struct {
		Alerts []struct {
			Status string            `json:"status"`
			Labels map[string]string `json:"labels"`
		} `json:"alerts"`
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range m.Alerts {
		x.all = append(x.all, a.Status+" "+a.Labels["alert_id"])
	}
}

func (x *told) has(line string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.all, line)
}

// TestAlertmanager sends alerts to Alertmanager of Prometheus, alone and in a digest, and ends
// them: Alertmanager lists those that fire, and passes each beginning and each end on.
func TestAlertmanager(t *testing.T) {
	var next told
	receiver := httptest.NewServer(&next)
	t.Cleanup(receiver.Close)
	dir, address := t.TempDir(), freeAddress(t)
	config := fmt.Sprintf(`
route: {receiver: next, group_by: [alert_id], group_wait: 10ms, group_interval: 100ms}
receivers: [{name: next, webhook_configs: [{url: %q, send_resolved: true}]}]
`, receiver.URL)
	file := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, address, "prometheus-alertmanager", "prometheus-alertmanager",
		"--config.file="+file, "--storage.path="+dir, "--web.listen-address="+address, "--cluster.listen-address=")

	c, err := channel.Over(loopback.Client(), channel.Alertmanager{URL: "http://" + address}, renderer(t))
	if err != nil {
		t.Fatal(err)
	}
	nightly := firing("nightly")
	deliver(t, c, notification.Single(nightly))
	got := alerts(t, address)
	if len(got) != 1 {
		t.Fatalf("Alertmanager lists %+v, want one alert", got)
	}
	want := map[string]string{"alertname": "failures", "alert_id": "alert-nightly", "severity": "error", "app": "shop", "job": "nightly"}
	if fmt.Sprint(got[0].Labels) != fmt.Sprint(want) {
		t.Errorf("labels %v, want %v", got[0].Labels, want)
	}
	title, err := renderer(t).Title(notification.Single(nightly))
	if err != nil {
		t.Fatal(err)
	}
	if a := got[0].Annotations; a["summary"] != title || a["notification"] != nightly.ID {
		t.Errorf("annotations %v, want the title %q and the id %s", a, title, nightly.ID)
	}
	if !got[0].StartsAt.Equal(nightly.Since) {
		t.Errorf("it starts at %v, want %v", got[0].StartsAt, nightly.Since)
	}
	eventually(t, "the beginning is passed on", func() bool { return next.has("firing alert-nightly") })

	// The second notification of an alert is the same alert there, and a digest has many.
	again, hourly := nightly, firing("hourly")
	again.ID, again.Count = "alert-nightly-2", 7
	deliver(t, c, notification.Digest([]notification.Notification{again, hourly}))
	if got := alerts(t, address); len(got) != 2 {
		t.Fatalf("Alertmanager lists %+v, want two alerts", got)
	}
	eventually(t, "the beginning of the other is passed on", func() bool { return next.has("firing alert-hourly") })

	deliver(t, c, notification.Single(resolved(nightly)))
	eventually(t, "the end is passed on", func() bool { return next.has("resolved alert-nightly") })
	if got := alerts(t, address); len(got) != 1 || got[0].Labels["job"] != "hourly" {
		t.Errorf("Alertmanager lists %+v, want the alert of hourly alone", got)
	}
	deliver(t, c, notification.Single(resolved(hourly)))
	eventually(t, "the end of the other is passed on", func() bool { return next.has("resolved alert-hourly") })
}

func firing(job string) notification.Notification {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return notification.Notification{
		ID: "alert-" + job + "-1", Alert: "alert-" + job, Rule: "failures", App: "shop", Event: "failed", Severity: notification.Error, State: notification.Firing,
		Labels: map[string]string{"job": job}, Count: 3, Since: now.Add(-time.Minute), At: now, Language: notification.English,
		Incidents: []notification.Incident{{Job: job, Run: "0001", Error: "exit status 1", At: now.Add(-time.Minute)}},
	}
}

func resolved(n notification.Notification) notification.Notification {
	n.ID, n.State, n.Event, n.Incidents, n.At = n.Alert+"-end", notification.Resolved, "recovered", nil, time.Now().UTC()
	return n
}

// listed is an alert that Alertmanager lists.
type listed struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
}

// alerts returns the alerts that fire.
func alerts(t *testing.T, address string) (list []listed) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v2/alerts", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}
