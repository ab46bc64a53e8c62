// Package guest is for handlers written in Go and compiled to WebAssembly. A module
// registers its handlers in init and is built as a reactor:
//
//	func init() { guest.Handle("main", greet) }
//
//	func greet(ctx guest.Context) error {
//		ctx.Log().Info("hello")
//		_, err := ctx.Write(ctx.Input())
//		return err
//	}
//
//	func main() {}
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o handler.wasm .
//
// An error fails the attempt, and the job's retry policy decides whether another attempt
// follows. Permanent marks an error that every further attempt would meet again. A panic
// ends the attempt and the instance.
//
// After each task the host resets the instance to its state after the package
// initialisers, so global variables do not carry over. This includes the random
// generators that the Go runtime seeds at the start, such as math/rand/v2 and the order
// of map iteration: they repeat in every task. Use crypto/rand for numbers that must
// differ.
//
// A module that needs keys and values, secrets, requests or runs asks for them in its
// manifest, which Describe sets; the owner of the app grants them. A manifest that is
// uploaded with the module takes precedence, and must then name the handlers in the order
// of their registration.
//
// Except for this comment and Files, the package is compiled for GOOS=wasip1 only. The
// neighbouring folders hold the SDKs of other languages.
package guest
