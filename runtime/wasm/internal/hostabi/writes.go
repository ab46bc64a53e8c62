package hostabi

import (
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// Writes returns the parts of the guest's memory that an imported function writes. A
// function without an entry may write anywhere: after a call of it the whole memory is
// compared, which is slow but correct.
func Writes(module, name string) ([]meter.Write, bool) {
	var table map[string][]meter.Write
	switch module {
	case abi.ImportModule:
		table = hostWrites
	case preview1, preview0:
		table = wasiWrites
	}
	writes, ok := table[name]
	return writes, ok
}

// buffer is a pair of parameters: a pointer, followed by a length in bytes.
func buffer(ptr int) meter.Write { return meter.Write{Ptr: ptr, Len: ptr + 1, Size: 1} }

// field is a pointer to size bytes.
func field(ptr int, size uint32) meter.Write { return meter.Write{Ptr: ptr, Len: -1, Size: size} }

func writes(w ...meter.Write) []meter.Write { return w }

// hostWrites holds the writes of the functions of wheelwork_v1.
var hostWrites = map[string][]meter.Write{
	"input_len":    nil,
	"input_read":   writes(buffer(1)),
	"param_get":    writes(buffer(2)),
	"output_write": nil,
	"fail":         nil,
	"log":          nil,
	"progress":     nil,
	"cancelled":    nil,
	"now_ms":       nil,
	"random":       writes(buffer(0)),

	"sleep":          nil,
	"checkpoint_get": writes(buffer(0)),
	"checkpoint_put": nil,
	"kv_get":         writes(buffer(4), field(6, 8)),
	"kv_put":         nil,
	"kv_cas":         nil,
	"kv_delete":      nil,
	"job_enqueue":    writes(buffer(2)),
	"map":            nil,
	"secret_get":     writes(buffer(2)),
	"http_send":      nil,
	"http_head":      writes(buffer(1)),
	"http_recv":      writes(buffer(1)),
	"http_close":     nil,
	"metric_add":     nil,
	"job_next":       nil,
	"job_done":       nil,
}

// wasiWrites holds the writes of the WASI functions that a reactor calls while it runs a
// task.
var wasiWrites = map[string][]meter.Write{
	"clock_res_get":     writes(field(1, 8)),
	"clock_time_get":    writes(field(2, 8)),
	"fd_close":          nil,
	"fd_fdstat_get":     writes(field(1, 24)),
	"fd_prestat_get":    writes(field(1, 8)),
	"fd_write":          writes(field(3, 4)),
	"poll_oneoff":       writes(meter.Write{Ptr: 1, Len: 2, Size: 32}, field(3, 4)),
	"proc_exit":         nil,
	"random_get":        writes(buffer(0)),
	"sched_yield":       nil,
	"args_sizes_get":    writes(field(0, 4), field(1, 4)),
	"environ_sizes_get": writes(field(0, 4), field(1, 4)),
}
