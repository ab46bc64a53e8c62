package hostabi

import (
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// The module names of the served versions of WASI.
const (
	preview1 = wasi_snapshot_preview1.ModuleName
	// preview0 is the version before preview 1. Its functions have the same names and types,
	// and differ in the constants of fd_seek, in the layout of filestat and in that of the
	// subscriptions of poll_oneoff. It has no sock_accept.
	preview0 = "wasi_unstable"
)

// previews are the served versions of WASI.
func previews() []string { return []string{preview1, preview0} }

// IsPreview0 reports whether a module that guests import from is WASI preview 0.
func IsPreview0(module string) bool { return module == preview0 }

// IsPreview1 reports whether a module that guests import from is WASI preview 1.
func IsPreview1(module string) bool { return module == preview1 }

// Sizes of filestat, and the offset of the field after which the versions differ: its number
// of links has 8 bytes in preview 1 and 4 in preview 0.
const (
	filestat1Bytes = 64
	filestat0Bytes = 56
	filestatLinks  = 24 // in preview 1
)

// replaceOfPreview0 replaces the functions that differ from preview 1 by functions that call
// those of preview 1.
func replaceOfPreview0(b wazero.HostModuleBuilder) {
	replace := func(name string, f func(of api.GoModuleFunction) api.GoModuleFunc) {
		of := engineWASI()[name]
		b.NewFunctionBuilder().WithGoModuleFunction(f(of.function), of.Params, of.Results).Export(name)
	}
	replace("fd_seek", seek0)
	replace("fd_filestat_get", filestat0)
	replace("path_filestat_get", filestat0)
}

// seek0 converts the parameter whence.
func seek0(seek api.GoModuleFunction) api.GoModuleFunc {
	const whence = 2
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		switch of := uint32(stack[whence]); of {
		case 0, 1, 2: // current, end and start, which are 1, 2 and 0 in preview 1
			stack[whence] = uint64((of + 1) % 3)
			seek.Call(ctx, mod, stack)
		default:
			stack[0] = wasiInvalid
		}
	}
}

// filestat0 converts the result, to which the last parameter points. The function of preview 1
// writes more bytes than the guest has room for, so it writes to the first bytes of the memory,
// which get their contents back. No guest code runs in between.
func filestat0(stat api.GoModuleFunction) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		last := len(stack) - 1
		into, ok := mod.Memory().Read(uint32(stack[last]), filestat0Bytes)
		scratch, fits := mod.Memory().Read(0, filestat1Bytes)
		if !ok || !fits {
			stack[0] = wasiFault
			return
		}
		saved := slices.Clone(scratch)
		stack[last] = 0
		stat.Call(ctx, mod, stack)
		got := slices.Clone(scratch)
		copy(scratch, saved)
		if stack[0] != wasiOK {
			return
		}
		copy(into, got[:filestatLinks-4]) // the type of the file, at 16, has one byte
		links := binary.LittleEndian.Uint64(got[filestatLinks:])
		binary.LittleEndian.PutUint32(into[filestatLinks-4:], uint32(min(links, math.MaxUint32)))
		copy(into[filestatLinks:], got[filestatLinks+8:])
	}
}
