package meter

import "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

// PlaceName is the source name that the engine prints for every code offset in a trace,
// after the offset itself: "0x1f: wheelwork".
const PlaceName = "wheelwork"

// lastPlace is above every code offset, because modules are smaller.
const lastPlace = 1 << 30

// appendLineInfo adds debug information that maps all code to PlaceName. If a module has
// any debug information, the engine records the offset that machine code was compiled from
// and prints it in traces; the host maps the offset to a source line with Moves and its own
// line table. The engine never reads debug information of the uploaded module, because
// custom sections are dropped.
func appendLineInfo(out []byte) []byte {
	section := func(name string, body []byte) {
		out = binary.AppendSection(out, binary.SectionCustom, append(binary.AppendName(nil, name), body...))
	}
	section(".debug_abbrev", []byte{
		1, 0x11, 0, // a compilation unit without children
		0x11, 0x01, // low_pc: an address
		0x12, 0x06, // four bytes, the length of its range
		0x10, 0x17, // the offset of its line table
		0, 0, 0,
	})
	unit := []byte{4, 0, 0, 0, 0, 0, 4} // version, offset of its abbreviations, size of an address
	unit = append(unit, 1)
	unit = appendU32LE(unit, 1) // 0 would mean that the linker removed the unit
	unit = appendU32LE(unit, lastPlace)
	unit = appendU32LE(unit, 0)
	section(".debug_info", append(appendU32LE(nil, uint32(len(unit))), unit...))

	header := []byte{1, 1, 1, 0xfb, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1}
	header = append(header, 0) // no directories
	header = append(header, PlaceName...)
	header = append(header, 0, 0, 0, 0, 0)
	program := appendU32LE([]byte{0, 5, 2}, 1) // set address
	program = append(program, 3, 0x7f, 1)      // line 0: no line numbers; append a row
	program = append(program, 2)               // advance the address by lastPlace
	program = binary.AppendU32(program, lastPlace)
	program = append(program, 0, 1, 1) // end of sequence
	lines := append([]byte{4, 0}, appendU32LE(nil, uint32(len(header)))...)
	lines = append(append(lines, header...), program...)
	section(".debug_line", append(appendU32LE(nil, uint32(len(lines))), lines...))
	return out
}

func appendU32LE(b []byte, v uint32) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}
