// Package sdk lets a program create, change, trigger and watch jobs on a Wheelwork
// server.
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
// A [Client] is safe for concurrent use and meant to be shared. Concurrent calls of
// [Client.Apply], [Client.Delete] and [Client.Trigger] travel together, in batches, on
// one stream for each app. So a program gets its throughput from concurrent calls and
// needs no batching of its own. The Async forms give the same throughput to a single
// goroutine, with a future ([Pending.Wait]) or a function ([Pending.Then]) for the
// answer. The Try forms never block. Every other method makes one call.
//
// # What is guaranteed
//
// A command whose call returned without an error was executed once and is durable.
// Commands that one goroutine sends for one app are executed in its order. When a server
// dies, hangs or cannot be reached, the client sends the unanswered commands to another
// server of the installation, or to the same server again. A command is sent at least
// once and executed exactly once, because servers recognise repeated commands (see
// [Trigger]). A client stops repeating a command well before servers forget it. An error
// that matches [ErrUnknown] means that the client gave up on a command that a server may
// have executed. After any other error the command was not executed.
//
// This room owns the client side of the API and the format of job documents ([ReadJobs],
// [WriteJobs]). It does not depend on the server's internals.
package sdk
