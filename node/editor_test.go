package node_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
)

// TestEditorOfAServer creates a job with the editor of the console, and changes it while another
// client changes it too. The pages themselves are tested in console.
func TestEditorOfAServer(t *testing.T) {
	p := dev(t, node.DevConfig{Data: t.TempDir(), Sample: true})
	conn, api := dial(t, p, p.Token)
	jobs := apiv1.NewJobsClient(conn)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	read := func(resp *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // only read
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	read(client.Get(p.LoginURL))
	shows := func(code int, body string, want int, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if code != want || !strings.Contains(body, text) {
				t.Fatalf("status %d, want %d with %s in\n%s", code, want, text, body)
			}
		}
	}
	hidden := func(body, name string) string {
		t.Helper()
		m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("the page has no %s:\n%s", name, body)
		}
		return m[1]
	}

	code, body := read(client.Get(p.URL + "/apps/default/jobs/new"))
	shows(code, body, http.StatusOK, "name: my-job", "module: greet@", ">Valid<", "<ol class=\"times\">")
	code, body = read(client.PostForm(p.URL+"/apps/default/jobs/new", url.Values{"text": {"name: made\nhandler: {module: greet@none}\n"}}))
	shows(code, body, http.StatusOK, "there is no module greet@none")

	greet, err := jobs.GetJob(api, &apiv1.GetJobRequest{Name: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	text := "name: made\nhandler: {module: " + greet.Handler.Module + "}\nschedule: {cron: '0 2 * * *', zone: Europe/Berlin}\n"
	code, body = read(client.PostForm(p.URL+"/apps/default/jobs/new", url.Values{"do": {"save"}, "text": {text}, "note": {"the first"}}))
	shows(code, body, http.StatusOK, "The job is saved.", "/jobs/made/edit")

	edit := p.URL + "/apps/default/jobs/made/edit"
	code, body = read(client.Get(edit))
	shows(code, body, http.StatusOK, "name: made", "At 02:00, every day")
	etag, revision := hidden(body, "etag"), hidden(body, "revision")
	made, err := jobs.GetJob(api, &apiv1.GetJobRequest{Name: "made"})
	if err != nil {
		t.Fatal(err)
	}
	made.Timeout, made.Etag = "7m", ""
	if _, err := jobs.ApplyJob(api, &apiv1.ApplyJobRequest{Job: made}); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"do": {"save"}, "text": {text + "priority: 3\n"}, "etag": {etag}, "revision": {revision}}
	code, body = read(client.PostForm(edit, form))
	shows(code, body, http.StatusConflict, "The job was changed while you edited it", "<ins>7m</ins>", "<del>7m</del>", "<ins>3</ins>")
	form.Set("etag", hidden(body, "etag"))
	code, body = read(client.PostForm(edit, form))
	shows(code, body, http.StatusOK, "The job is saved.")
	made, err = jobs.GetJob(api, &apiv1.GetJobRequest{Name: "made"})
	if err != nil || made.Priority != 3 || made.Timeout != "" || made.Revision != 3 {
		t.Errorf("the job is %v, %v", made, err)
	}
}
