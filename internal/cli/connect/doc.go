// Package connect has the flags that name a server, the calls of commands to that server,
// and the explanation of their errors.
package connect
