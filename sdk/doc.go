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
// together as batches on one stream for each app, so a program gets its
// throughput from calling at once, not from batching by hand. The Async forms
// give the same to a single goroutine, with a future ([Pending.Wait]) or a
// function ([Pending.Then]) for the answer; the Try forms never block.
// Everything else is one call each.
//
// # What is guaranteed
//
// A command whose call returned without an error was carried out once and is
// durable. Commands that one goroutine gives for one app are carried out in its
// order. When a server dies, hangs or cannot be reached, what it did not answer
// goes to another server of the installation, or to the same one again: at
// least once, made exactly once by the server, which recognises what came
// before (see [Trigger]). A client stops sending a command again well
// before the server forgets. An error that matches [ErrUnknown] says that the
// client gave up on a command that a server may have carried out; any other
// error says that it was not.
//
// This room owns the client side of the API and the form of job documents
// ([ReadJobs], [WriteJobs]). It knows nothing of the server's inside.
package sdk
