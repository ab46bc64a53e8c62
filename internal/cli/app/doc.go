// Package app has the commands about an app and what it has beside jobs: its bounds,
// calendars, values and secrets.
package app
