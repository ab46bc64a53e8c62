// Package rule decides what alerts tell, and when.
//
// A [Rule] selects events: a failed run, a lost host, a full disk. Events of one rule with
// the same key form a [Group]. A group has at most one alert at a time. The alert begins
// when as many events have come within the window as the threshold says; it ends when none
// of its subjects, such as the jobs that failed, is in trouble any longer. Between the two
// the group makes notifications: the first after the wait of the rule, one at each repeat
// and one at the escalation unless a person has acknowledged the alert, and at the end the
// resolve message, if the rule lists recovered.
//
// All of it is a fold: [Group.Observe] and [Group.Tick] depend on the group, the rule, the
// event and the time that the caller brings, and on nothing else. A group is stored as JSON
// and goes on from there. The id of a notification follows from the group, so a program that
// observes the same events again makes the same ids.
//
// # How many notifications there are
//
// An alert that is neither silenced nor muted makes one notification when it begins, one for
// each full repeat in which it still fires and was not acknowledged, at most one escalation,
// and at most one resolve message. An alert that ends before its wait is over makes its first
// notification at that moment, so a failure is never untold because the next run was quick to
// succeed. During the silence after a notification of the group, during a [Silence] and while
// a calendar mutes the rule, none but resolve messages are made; the alert is told afterwards
// if it still fires then. An alert that began and ended untold makes none, and no resolve
// message either. A resolve message of an alert that was told waits for nothing, because
// receivers such as pagers would show the alert for ever.
//
// Events without an end, such as dead letters, make alerts that end with their first
// notification.
//
// # Ids
//
// The id of an alert is a hash of the app and the name of its rule, the key of the group, and
// the run with which it began; for an event without a run, its subject and its time. The ids
// of its notifications end with their number: -1 is the first.
package rule
