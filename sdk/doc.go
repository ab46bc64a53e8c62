// Package sdk is what a program imports to create, change, trigger and watch
// jobs on a Wheelwork server.
//
//	client, err := sdk.Dial(ctx, "http://127.0.0.1:7700", sdk.Options{Token: token})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	_, err = client.Apply(ctx, &sdk.Job{
//		Name:     "totals",
//		Handler:  &sdk.Handler{Module: "totals@1"},
//		Schedule: &sdk.Schedule{Every: "30s"},
//	})
//
// A [Client] is safe for concurrent use and meant to be shared: [Client.Apply],
// [Client.Delete] and [Client.Trigger] of any number of goroutines travel
// together as batches on one stream, so a program gets its throughput from
// calling at once, not from batching by hand. The Async forms give the same to
// a single goroutine. Everything else is one call each.
//
// This room owns the client side of the API and the form of job documents
// ([ReadJobs], [WriteJobs]). It knows nothing of the server's inside.
package sdk
