// Package hostabi owns the functions that guests import: wheelwork_v1, WASI preview 1 and 0, and the
// functions of the meter. It has their types, checks their arguments against the memory and
// the grants of the guest, and says which parts of the memory they write.
//
// A function works on a guest.Call, which has the task and the limits. Functions that need a
// service pass copies of their arguments to it, never views of the guest's memory.
package hostabi
