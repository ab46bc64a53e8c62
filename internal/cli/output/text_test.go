package output

import "testing"

// TestPrintable checks that data from a server cannot control a terminal.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n中文": "plain\ttext\n中文",
		"\x1b[31mred\x07": `\x1b[31mred\a`,
		"a\rb":            `a\rb`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDisplayWidth(t *testing.T) {
	for in, want := range map[string]int{"": 0, "abc": 3, "中文": 4, "é": 1, "e\u0301": 1, "😀": 2} {
		if got := displayWidth(in); got != want {
			t.Errorf("displayWidth(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB", 2 << 50: "2048.0 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}
