package node_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
)

// This is the first step of a newcomer: follow the link that dev prints, and open a run.
// The pages themselves are tested in console.
func TestNewcomerSeesTheSampleJobInABrowser(t *testing.T) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		testkit.Lacks(t, "no browser: chromium is not on the PATH")
	}
	p := dev(t, node.DevConfig{Data: t.TempDir(), Sample: true})
	conn, api := dial(t, p, p.Token)
	run, err := apiv1.NewJobsClient(conn).TriggerJob(api, &apiv1.TriggerJobRequest{Name: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.Env("TZ=UTC"), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	shows := func(url string, texts ...string) {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			// The script waits in the page until the text is there, and returns then.
			js := fmt.Sprintf(`new Promise(done => { const end = Date.now() + 20000, look = () => {
				const text = document.body.innerText
				text.includes(%q) || Date.now() > end ? done(text) : setTimeout(look, 20) }; look() })`, text)
			shown, err := chromedp.Run(ctx, chromedp.Evaluate[string](js, chromedp.EvalAwaitPromise))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(shown, text) {
				t.Fatalf("%s does not show %q but\n%s", url, text, shown)
			}
		}
	}
	shows(p.LoginURL, "Overview", "greet")
	shows(p.URL+"/apps/default/runs/"+run.Id, "greeting newcomer", "Hello, newcomer!", "Succeeded")
	shows(p.URL+"/hosts", "dev", "Up")
}
