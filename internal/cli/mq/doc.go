// Package mq has the commands that look into logs and the message queue, repair them and
// handle dead letters.
package mq
