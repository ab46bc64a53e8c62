package node_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// BenchmarkConsolePage loads pages of the console as a visitor that has signed in, of an app with 20 000 jobs.
// Metrics: the median and the 99th percentile of a page, in ms.
func BenchmarkConsolePage(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	ready, done := make(chan node.Ready, 1), make(chan error, 1)
	go func() {
		done <- node.Dev(ctx, node.DevConfig{Data: filepath.Join(b.TempDir(), "dev"), Listen: "127.0.0.1:0", Ready: func(r node.Ready) { ready <- r }})
	}()
	p := <-ready
	defer func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	c, err := sdk.Dial(ctx, p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a benchmark's
	const jobs = 20_000
	failed := make(chan error, jobs)
	for i := range jobs {
		go func() {
			_, err := c.Apply(ctx, &sdk.Job{App: "default", Name: fmt.Sprintf("job-%05d", i), Schedule: &sdk.Schedule{Cron: "0 4 1 1 *"}, Handler: &sdk.Handler{Name: "native:none"}})
			failed <- err
		}()
	}
	for range jobs {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(url string) error {
		resp, err := browser.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // it is read
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK || resp.Request.URL.Path == "/login" {
			return fmt.Errorf("%s: %s, %w", resp.Request.URL, resp.Status, err)
		}
		return nil
	}
	if err := get(p.LoginURL); err != nil {
		b.Fatal(err)
	}
	for _, page := range []string{"/apps/default", "/apps/default/jobs", "/apps/default/jobs/job-10000", "/apps/default/runs", "/access/users", "/audit"} {
		b.Run(page[1:], func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				begin := time.Now()
				if err := get(p.URL + page); err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(begin))
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
