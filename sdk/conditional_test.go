package sdk_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// TestApplyIf lets programs read, extend and write a job concurrently: no addition may be
// lost.
func TestApplyIf(t *testing.T) {
	const callers, additions = 6, 50
	c := start(t, sdktest.Config{}).dial(t, sdk.Options{})
	ctx := t.Context()
	job := &sdk.Job{Name: "counter", Input: "0", Handler: &sdk.Handler{Module: "m@1"}}
	if _, err := c.ApplyIf(ctx, job, "*"); !errors.Is(err, sdk.ErrChanged) {
		t.Errorf("a job that is not there: %v", err)
	}
	if _, err := c.ApplyIf(ctx, job, ""); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("no etag: %v", err)
	}
	if _, err := c.Apply(ctx, job); err != nil {
		t.Fatal(err)
	}
	add := func() error {
		for {
			job, err := c.Job(ctx, "", "counter")
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(job.GetInput())
			if err != nil {
				return err
			}
			job.Input = fmt.Sprint(n + 1)
			_, err = c.ApplyIf(ctx, job, job.GetEtag())
			if !errors.Is(err, sdk.ErrChanged) {
				return err
			}
			var refused *sdk.Error
			if !errors.As(err, &refused) || refused.Etag == "" || refused.Etag == job.GetEtag() {
				return fmt.Errorf("the refusal does not say which etag the job has: %w", err)
			}
		}
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range additions {
				if err := add(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if job, err := c.Job(ctx, "", "counter"); err != nil || job.GetInput() != fmt.Sprint(callers*additions) {
		t.Errorf("the counter is %s, want %d: %v", job.GetInput(), callers*additions, err)
	}
}
