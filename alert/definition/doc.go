// Package definition reads the definitions of alert rules and alert channels: the messages
// of the API. It checks them, and makes of them what packages rule and channel work with.
//
// A secret is named in a channel, and never in it: [Open] takes a function that returns
// the values of secrets. A rule names times as texts; [ReadRule] returns them as durations,
// with the defaults filled in.
package definition
