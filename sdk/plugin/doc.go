// Package plugin makes a Go program a plugin of Wheelwork: a program that a host starts,
// and whose functions are handlers for jobs.
//
//	func main() {
//		plugin.Serve(plugin.Config{Handlers: map[string]plugin.Func{
//			"resize": func(ctx context.Context, t *plugin.Task) ([]byte, error) {
//				t.Log().Info("resizing", "bytes", len(t.Input))
//				return resize(ctx, t.Input)
//			},
//		}})
//	}
//
// The operator of a host allows the program under a name, for example images; jobs then
// use the handler plugin:images/resize. Handlers run natively and without any sandbox. So
// the operator allows a plugin, not the author of a job.
//
// Tasks run concurrently, each in its own goroutine. A handler must return when its
// context ends. If it does not, the host kills the program after a few seconds, and the
// other tasks of the program fail with it.
package plugin
