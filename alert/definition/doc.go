// Package definition converts alert rules and alert channels from messages of the API into
// the types of packages rule and channel, and checks them.
//
// A secret is named in a channel, and never in it: [Open] takes a function that returns
// the values of secrets. A rule names times as texts; [ReadRule] returns them as durations,
// with the defaults filled in.
package definition
