package connect

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// HasApp reports whether there is anything in an app. It is also true if the server does
// not tell.
func HasApp(ctx context.Context, client *sdk.Client, app string) bool {
	_, err := client.App(ctx, app)
	return !errors.Is(err, sdk.ErrNotFound)
}

// WhyEmpty explains an empty list of an app's objects by a name that was probably
// mistyped: that of the app or, unless it is "", that of a job. It returns "" if both exist.
func WhyEmpty(ctx context.Context, client *sdk.Client, app, job string) string {
	if app != sdk.DefaultApp && !HasApp(ctx, client, app) {
		return fmt.Sprintf("there is nothing in app %s: \"wheelwork app list\" shows the apps that there are", app)
	}
	if job == "" {
		return ""
	}
	if _, err := client.Job(ctx, app, job); errors.Is(err, sdk.ErrNotFound) {
		return fmt.Sprintf("there is no job %s in app %s: \"wheelwork job list\" shows its jobs", job, app)
	}
	return ""
}

// Counted counts the elements of a list that its consumer has seen.
func Counted[T any](list iter.Seq2[T, error], n *int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for element, err := range list {
			if err == nil {
				*n++
			}
			if !yield(element, err) {
				return
			}
		}
	}
}

// First returns the first n elements of a list, at least one.
func First[T any](list iter.Seq2[T, error], n int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := n
		for element, err := range list {
			if left--; !yield(element, err) || left == 0 {
				return
			}
		}
	}
}
