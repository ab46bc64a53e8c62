package binary

// AppendU32 appends v as unsigned LEB128.
func AppendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendS64 appends v as signed LEB128.
func AppendS64(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && low&0x40 == 0) || (v == -1 && low&0x40 != 0) {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// AppendName appends the length of s and s.
func AppendName(b []byte, s string) []byte {
	return append(AppendU32(b, uint32(len(s))), s...)
}

// AppendSection appends a section with its id and size.
func AppendSection(b []byte, id byte, body []byte) []byte {
	b = append(b, id)
	b = AppendU32(b, uint32(len(body)))
	return append(b, body...)
}

// SplitCount separates the length of a vector from its items. An absent section (nil) is
// an empty vector. The bytes must come from a parsed Module, so they are well formed.
func SplitCount(raw []byte) (n uint32, items []byte) {
	if len(raw) == 0 {
		return 0, nil
	}
	r := &reader{buf: raw}
	n = r.u32()
	return n, raw[r.off:]
}
