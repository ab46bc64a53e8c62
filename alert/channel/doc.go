// Package channel sends messages of alerts to the platforms that people read: webhooks, CloudEvents,
// chat robots, pagers, Alertmanager, mail and commands of the operator.
//
// Each kind has a type that says where its receiver is and with which secret; the caller
// has resolved the secret. [Over] makes a [Channel] of a kind that takes HTTP requests
// and of the caller's client, which guards what may be reached; [NewMail] and
// [NewCommand] make the others. A channel makes exactly one attempt for each call of Send,
// and its [Result] says what the answer means: delivered, rate limited, refused for ever,
// or to try again.
//
// When to send is a decision of its own, and pure: [LimitOf] has the limit of each
// platform, [Limit.Decide] says whether to send now, to wait or to fold the waiting
// notifications into a digest, and [Backoff] plans the tries. The caller stores the
// [Usage] of a channel and brings the time. Nothing here starts a goroutine that outlives
// its call, keeps state or reads a clock.
//
// What a platform accepts and answers is from its documents, which comments name. Where
// documents are silent about a code, the code is unknown and the message is tried again:
// an alert must not be lost because a platform has a new way to say no.
package channel
