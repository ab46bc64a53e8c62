// Package job has the commands that define, change and trigger jobs.
package job
