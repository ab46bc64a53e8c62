package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestListsOfLargeInputs gives an app 60 MB of inputs, which exceeds the limit of a
// message, and lists its jobs in every way.
func TestListsOfLargeInputs(t *testing.T) {
	const jobs, size = 1000, 60_000
	s := attacked(t, 4096)
	client, err := sdk.Dial(t.Context(), s.URL, sdk.Options{Token: s.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // a test's
	input := strings.Repeat("x", size)
	for i := range jobs {
		if _, err := client.Apply(t.Context(), &sdk.Job{App: "hog", Name: fmt.Sprintf("job-%04d", i), Handler: &apiv1.Handler{Name: "native:n"}, Input: input}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		cmd := exec.Command("wheelwork", append(args, "--app", "hog")...)
		cmd.Env = append(os.Environ(), "WHEELWORK_URL="+s.URL, "WHEELWORK_TOKEN="+s.Token)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return string(out)
	}
	if out := run("job", "list"); strings.Count(out, "job-") != jobs || len(out) > jobs*size/10 {
		t.Errorf("job list shows %d jobs in %d bytes", strings.Count(out, "job-"), len(out))
	}
	for _, args := range [][]string{{"job", "export"}, {"job", "list", "-o", "jsonl"}} { // formats that can be applied
		if out := run(args...); strings.Count(out, input) != jobs {
			t.Errorf("%v has the inputs of %d jobs", args, strings.Count(out, input))
		}
	}

	get := func(c *http.Client, path string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c == http.DefaultClient {
			req.Header.Set("Authorization", "Bearer "+s.Token)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // a test's
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %.200s %v", path, resp.Status, b, err)
		}
		return string(b)
	}
	var page struct {
		Jobs []struct{ Name, Input string }
	}
	if err := json.Unmarshal([]byte(get(http.DefaultClient, "/api/v1/apps/hog/jobs?page_size=1000")), &page); err != nil || len(page.Jobs) != jobs || page.Jobs[0].Input != "" {
		t.Errorf("the API lists %d jobs, %v", len(page.Jobs), err)
	}
	if err := json.Unmarshal([]byte(get(http.DefaultClient, "/api/v1/apps/hog/jobs?page_size=1000&with_input=true")), &page); err != nil || len(page.Jobs) < 10 || page.Jobs[0].Input != input {
		t.Errorf("the API lists %d jobs with their inputs, %v", len(page.Jobs), err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	resp, err := browser.PostForm(s.URL+"/login", map[string][]string{"token": {s.Token}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() //nolint:errcheck // a test's
	if html := get(browser, "/apps/hog/jobs"); !strings.Contains(html, "job-0000") {
		t.Errorf("the console lists no job: %.300s", html)
	}
}
