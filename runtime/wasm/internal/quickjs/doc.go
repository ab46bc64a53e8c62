// Package quickjs owns the driver of QuickJS, the interpreter of JavaScript, and the functions
// that the interpreter imports.
//
// QuickJS is a reactor: an instance evaluates the sources once, its image is taken as of any
// reactor after _initialize, and then it runs one exported function of the script for each
// task.
//
// The driver refers to a JavaScript value by the address of a box in the guest's memory. It
// does not free the boxes: the reset after each task frees them all.
package quickjs
