// Package alert has the commands about alerts: what fires, what channels were told, and
// silences.
package alert
