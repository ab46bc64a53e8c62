package binary

import "fmt"

// Limits bound the modules that Parse accepts. They prevent a small upload from costing
// much memory or compile time. The modules of all known compilers stay far below them.
type Limits struct {
	ModuleBytes    int    // whole module
	Types          int    // entries of the type section
	Imports        int    // entries of the import section
	Functions      int    // defined functions
	Globals        int    // defined globals
	Exports        int    // entries of the export section
	Tables         int    // defined tables
	TableElements  uint32 // initial size of one table
	MemoryPages    uint32 // initial size of the memory, in pages of 64 KiB
	Segments       int    // data segments, element segments
	BodyBytes      int    // one function body
	Locals         int    // locals of one function, without parameters
	Nesting        int    // blocks of all kinds inside one another: a switch needs one for each case
	BranchNesting  int    // loops and ifs inside one another, for which compile time grows faster
	ControlWork    int    // per function: number of blocks times number of locals; a compiler needs about a second for a million
	ModuleWork     int    // sum of ControlWork over all functions
	BranchTargets  int    // of one br_table
	FunctionParams int    // parameters, and results, of one type
	Customs        int    // custom sections; an empty one has three bytes and takes ten times that in memory
	Items          int    // of all element segments together
	InitBytes      int    // one initialiser of a global, of an offset or of an item
	InitWork       int    // sum of InitBytes: the engine evaluates all of them for each instance, without interruption
}

// DefaultLimits returns the limits of the upload verifier of a server that is not configured.
func DefaultLimits() Limits {
	return Limits{
		ModuleBytes:    64 << 20,
		Types:          20_000,
		Imports:        1_000,
		Functions:      200_000,
		Globals:        10_000,
		Exports:        20_000,
		Tables:         16,
		TableElements:  1 << 17,
		MemoryPages:    1 << 14,
		Segments:       100_000,
		BodyBytes:      4 << 20,
		Locals:         5_000,
		Nesting:        16_000,
		BranchNesting:  1_000,
		ControlWork:    2_000_000,
		ModuleWork:     30_000_000,
		BranchTargets:  65_520,
		FunctionParams: 1_000,
		Customs:        1_000,
		Items:          1 << 20,
		InitBytes:      1 << 10,
		InitWork:       2 << 20,
	}
}

// MaxLimits returns the limits of hosts. A server's operator may accept larger modules than
// DefaultLimits allows, up to these.
func MaxLimits() Limits {
	l := DefaultLimits()
	l.ModuleBytes = 256 << 20
	l.Functions = 1_000_000
	l.BodyBytes = 32 << 20
	l.Locals = 50_000 // the engine's own limit
	return l
}

// A LimitError reports that a module exceeds a limit.
type LimitError struct {
	What      string
	Have, Max int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d, at most %d are accepted", e.What, e.Have, e.Max)
}
