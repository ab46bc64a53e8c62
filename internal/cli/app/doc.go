// Package app has the commands about apps, and about their calendars, values and secrets.
package app
