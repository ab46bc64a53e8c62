package meter

import "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

// PlaceName is what the engine names as the source of each place in the code. The
// place itself is before it, as in "0x1f: wheelwork".
const PlaceName = "wheelwork"

// lastPlace is behind every place: a module is smaller.
const lastPlace = 1 << 30

// appendLineInfo adds debug information that says nothing but that all code comes
// from PlaceName. With any at all the engine keeps the place that machine code
// comes from and tells it in traces; the host knows what it was compiled from.
// The engine reads none that a stranger wrote.
func appendLineInfo(out []byte) []byte {
	section := func(name string, body []byte) {
		out = binary.AppendSection(out, binary.SectionCustom, append(binary.AppendName(nil, name), body...))
	}
	section(".debug_abbrev", []byte{
		1, 0x11, 0, // a unit without children
		0x11, 0x01, // low_pc: an address
		0x12, 0x06, // high_pc: four bytes, how far it goes
		0x10, 0x17, // stmt_list: where its lines are
		0, 0, 0,
	})
	unit := []byte{4, 0, 0, 0, 0, 0, 4} // version, place of its abbreviations, size of an address
	unit = append(unit, 1)
	unit = appendU32LE(unit, 1) // 0 would say that the linker left it out
	unit = appendU32LE(unit, lastPlace)
	unit = appendU32LE(unit, 0)
	section(".debug_info", append(appendU32LE(nil, uint32(len(unit))), unit...))

	header := []byte{1, 1, 1, 0xfb, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1}
	header = append(header, 0) // no directories
	header = append(header, PlaceName...)
	header = append(header, 0, 0, 0, 0, 0)
	program := appendU32LE([]byte{0, 5, 2}, 1) // set the address
	program = append(program, 3, 0x7f, 1)      // line 0: there are none; a row
	program = append(program, 2)               // advance the address
	program = binary.AppendU32(program, lastPlace)
	program = append(program, 0, 1, 1) // the end
	lines := append([]byte{4, 0}, appendU32LE(nil, uint32(len(header)))...)
	lines = append(append(lines, header...), program...)
	section(".debug_line", append(appendU32LE(nil, uint32(len(lines))), lines...))
	return out
}

func appendU32LE(b []byte, v uint32) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}
