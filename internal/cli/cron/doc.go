// Package cron has the commands that show what a cron expression means, without a server.
package cron
