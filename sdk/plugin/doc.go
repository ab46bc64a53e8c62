// Package plugin makes a Go program a plugin of Wheelwork: a program that a
// worker host starts, and whose functions are handlers for jobs.
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
// The operator of a host allows the program under a name, say images, and jobs
// then have the handler plugin:images/resize. Handlers run natively: nothing
// bounds what they do, so it is the operator who decides, and not who defines
// jobs.
//
// Many tasks run at once, each in a goroutine of its own. A handler returns when
// its context ends; one that does not is killed with the program after a few
// seconds, and with it the tasks that run beside it.
package plugin
