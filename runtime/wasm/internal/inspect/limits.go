package inspect

import (
	"cmp"
	"fmt"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// UploadLimits are the limits of an upload that a server's operator can change. A zero field
// means the default. The limits on nesting, tables and on the work of the compiler are fixed.
type UploadLimits struct {
	ModuleBytes int64 // whole module; default 64 MiB
	Functions   int   // default 200 000
	BodyBytes   int64 // one function; default 4 MiB
	Locals      int   // of one function; default 5 000
}

// MaxUploadLimits returns the largest limits, which are those of hosts.
func MaxUploadLimits() UploadLimits { return uploadLimits(binary.MaxLimits()) }

// DefaultUploadLimits returns the limits of a server that is not configured.
func DefaultUploadLimits() UploadLimits { return uploadLimits(binary.DefaultLimits()) }

func uploadLimits(l binary.Limits) UploadLimits {
	return UploadLimits{ModuleBytes: int64(l.ModuleBytes), Functions: l.Functions, BodyBytes: int64(l.BodyBytes), Locals: l.Locals}
}

// binary returns the limits of the parser. None is above that of hosts.
func (l UploadLimits) binary() binary.Limits {
	d, most := binary.DefaultLimits(), binary.MaxLimits()
	d.ModuleBytes = min(cmp.Or(int(l.ModuleBytes), d.ModuleBytes), most.ModuleBytes)
	d.Functions = min(cmp.Or(l.Functions, d.Functions), most.Functions)
	d.BodyBytes = min(cmp.Or(int(l.BodyBytes), d.BodyBytes), most.BodyBytes)
	d.Locals = min(cmp.Or(l.Locals, d.Locals), most.Locals)
	return d
}

// raise returns the advice for a limit that a server's operator can change; "" for others.
func raise(e *binary.LimitError) string {
	flag := map[string]string{
		"module size in bytes":       "--upload-size",
		"functions":                  "--upload-functions",
		"function bodies":            "--upload-functions",
		"bytes of one function body": "--upload-body",
		"locals of one function":     "--upload-locals",
	}[e.What]
	if flag == "" {
		return ""
	}
	return fmt.Sprintf(", or raise %s of the server", flag)
}
