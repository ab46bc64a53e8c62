// Package guest is for handlers written in Go and compiled to WebAssembly. A
// module registers its handlers in init and is built as a reactor:
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
// An error fails the attempt and the job's retry policy decides what follows;
// Permanent marks an error that another attempt would meet again. A panic ends
// the attempt too, and the instance with it.
//
// After each task the instance is set back to what it was after the package
// initialisers: global variables do not carry over. The same holds for random
// generators that the Go runtime seeded at the start, such as math/rand/v2 and
// the order of map iteration: they repeat in every task. Use crypto/rand for
// numbers that must differ.
//
// A module that asks for keys and values, secrets, requests or runs says so in
// its manifest, which Describe sets; the owner of the app grants it. The manifest
// it is uploaded with, if any, goes before it, and then has to name the handlers
// in the order of their registration.
//
// All but this comment and Files is compiled for GOOS=wasip1 only. The folders
// beside this one hold the SDKs of other languages.
package guest
