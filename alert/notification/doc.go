// Package notification has what an alert tells its receivers: the notification of one
// group of incidents, the digest of several, and the texts that a channel sends of them,
// in English and Chinese.
//
// A rule makes a [Notification] and gives it an id that stays the same over restarts and
// retries. A channel puts one or several into a [Message] and renders it with a
// [Renderer]: a title, a plain text, a text with markup in the dialect of the platform,
// and HTML. An operator may replace the templates of a channel. Such a template is not
// trusted with time or memory: the renderer counts its steps and its bytes, and offers
// only functions whose cost is bounded. A template that fails at a message does not
// hold it back; the message has the built-in texts then.
package notification
