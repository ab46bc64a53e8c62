package codec

import (
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/pool"
)

// A server or a host makes or reads one of these messages for each attempt, so the
// process reuses them.
var (
	tasks   pool.Lists[apiv1.Task]
	results pool.Lists[apiv1.TaskResult]
)

// NewTask returns an empty task, which may be one that was freed.
func NewTask() *apiv1.Task { return tasks.Get() }

// FreeTasks clears tasks that were sent and returns them to the pool. The caller must not
// use them afterwards; the values that their fields refer to remain valid.
func FreeTasks(sent []*apiv1.Task) { tasks.Release(sent...) }

// FreeTask is [FreeTasks] for one task.
func FreeTask(t *apiv1.Task) { tasks.Release(t) }

// NewResult returns an empty result, which may be one that was freed.
func NewResult() *apiv1.TaskResult { return results.Get() }

// FreeResults clears results and returns them to the pool. The caller must not use them
// afterwards; the values that their fields refer to remain valid.
func FreeResults(received []*apiv1.TaskResult) { results.Release(received...) }
