// Package fields has the field numbers of the messages that this program encodes or
// decodes by hand. A constant is named after its message and its field:
// [RunRowPlannedMs] is planned_ms of apiv1.RunRow. The constants have no type, because
// readers compare them with numbers of several types.
//
// The numbers come from the descriptors in api/v1, which decide. TestNumbers writes them,
// and fails while a message has a field that numbers.go does not have, or another number
// for it.
package fields

//go:generate go test . -run ^TestNumbers$ -update
