// Package state has the alerts of one app: the groups of its rules, its silences, the
// notifications that its channels have not taken yet, and the marks of kinds of errors.
//
// A [State] is a fold, as package rule is: each method depends on the state, its arguments
// and the time that the caller brings. After each change [State.Changes] returns the parts
// that differ, as rows of a key and a JSON text, and [State.Load] reads them back. So the
// owner of the state stores it together with the cause of the change, and a state that is
// loaded goes on as the former one would have.
//
// Nothing here sends: [State.Take] hands out messages, one at a time for each channel, and
// [State.Done] notes their results. A message that was handed out when its owner ended
// is handed out again with the same id, after the state was loaded.
package state
