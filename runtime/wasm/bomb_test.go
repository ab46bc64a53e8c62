package wasm

import (
	"bytes"
	"context"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// part is a section of a module that a test assembles.
type part struct {
	id   byte
	body []byte
}

// built returns a reactor that does nothing, with additional sections. It sorts the
// sections in the order of the format, with custom sections last.
func built(more ...part) []byte {
	exports := append(wasmbinary.AppendName([]byte{2}, "memory"), 2, 0)
	exports = append(wasmbinary.AppendName(exports, "wheelwork_handle"), 0, 0)
	parts := []part{
		{wasmbinary.SectionType, []byte("\x02\x60\x01\x7f\x01\x7f\x60\x00\x00")},
		{wasmbinary.SectionFunction, []byte{1, 0}},
		{wasmbinary.SectionMemory, []byte{1, 0, 1}},
		{wasmbinary.SectionExport, exports},
		{wasmbinary.SectionCode, []byte{1, 4, 0, 0x41, 0, 0x0b}},
	}
	for _, p := range more {
		if i := slices.IndexFunc(parts, func(o part) bool { return o.id == p.id && p.id != wasmbinary.SectionCustom }); i >= 0 {
			parts[i] = p
		} else {
			parts = append(parts, p)
		}
	}
	place := func(p part) int {
		switch p.id {
		case wasmbinary.SectionCustom:
			return 1000
		case wasmbinary.SectionDataCount:
			return int(wasmbinary.SectionElement)*2 + 1
		}
		return int(p.id) * 2
	}
	slices.SortStableFunc(parts, func(a, b part) int { return place(a) - place(b) })
	m := []byte("\x00asm\x01\x00\x00\x00")
	for _, p := range parts {
		m = wasmbinary.AppendSection(m, p.id, p.body)
	}
	return m
}

// many returns a vector of n equal entries.
func many(n int, entry ...byte) []byte {
	return append(wasmbinary.AppendU32(nil, uint32(n)), bytes.Repeat(entry, n)...)
}

// sums returns an initialiser of about size bytes.
func sums(size int) []byte {
	return append(append([]byte{0x41, 0}, bytes.Repeat([]byte{0x41, 1, 0x6a}, size/3)...), 0x0b)
}

func named(name string, body []byte) part {
	return part{wasmbinary.SectionCustom, append(wasmbinary.AppendName(nil, name), body...)}
}

// TestBombsAreRefused uploads modules that are small but expensive to load. Inspect must
// refuse each with the limit that it exceeds, before it has used much memory.
func TestBombsAreRefused(t *testing.T) {
	limits := wasmbinary.DefaultLimits()
	table := part{wasmbinary.SectionTable, many(1, 0x70, 0, 1)}
	for _, tt := range []struct {
		name  string
		code  []byte
		words string
	}{
		{"empty custom sections", append(built(), bytes.Repeat([]byte{0, 1, 0}, 5<<20)...), "custom sections"},
		{"one initialiser", built(part{wasmbinary.SectionGlobal, append([]byte{1, 0x7f, 0}, sums(8<<20)...)}), "bytes of one initialiser"},
		{"initialisers", built(part{wasmbinary.SectionGlobal, many(10_000, append([]byte{0x7f, 0}, sums(900)...)...)}), "bytes of all initialisers"},
		{"offsets", built(part{wasmbinary.SectionData, many(10_000, append(append([]byte{0}, sums(900)...), 0)...)}), "bytes of all initialisers"},
		{"items", built(table, part{wasmbinary.SectionElement, many(17, append([]byte{1, 0}, many(1<<16, 0)...)...)}), "items of all element segments"},
		{"items of one segment", built(table, part{wasmbinary.SectionElement, append([]byte{1, 1, 0}, many(1<<17+1, 0)...)}), "items of one element segment"},
		{"items that are initialisers", built(table, part{wasmbinary.SectionElement, many(8, append([]byte{5, 0x70}, many(1<<17, 0xd2, 0, 0x0b)...)...)}), "bytes of all initialisers"},
		{"types", built(part{wasmbinary.SectionType, many(limits.Types+1, 0x60, 0, 0)}), "types"},
		{"parameters", built(part{wasmbinary.SectionType, append([]byte{1, 0x60}, append(many(1001, 0x7f), 0)...)}), "parameters of one function type"},
		{"results", built(part{wasmbinary.SectionType, append([]byte{1, 0x60, 0}, many(1001, 0x7f)...)}), "results of one function type"},
		{"imports", built(part{wasmbinary.SectionImport, many(limits.Imports+1, 0, 0, 0, 0)}), "imports"},
		{"functions", built(part{wasmbinary.SectionFunction, many(limits.Functions+1, 0)}), "functions"},
		{"globals", built(part{wasmbinary.SectionGlobal, many(limits.Globals+1, 0x7f, 0, 0x41, 0, 0x0b)}), "globals"},
		{"exports", built(part{wasmbinary.SectionExport, many(limits.Exports+1, 1, 'a', 0, 0)}), "exports"},
		{"tables", built(part{wasmbinary.SectionTable, many(limits.Tables+1, 0x70, 0, 1)}), "tables"},
		{"a table", built(part{wasmbinary.SectionTable, append([]byte{1, 0x70, 0}, wasmbinary.AppendU32(nil, 100_000_000)...)}), "elements of one table"},
		{"memory", built(part{wasmbinary.SectionMemory, append([]byte{1, 0}, wasmbinary.AppendU32(nil, 65536)...)}), "initial memory"},
		{"data segments", built(part{wasmbinary.SectionData, many(limits.Segments+1, 1, 0)}), "data segments"},
		{"element segments", built(table, part{wasmbinary.SectionElement, many(limits.Segments+1, 1, 0, 0)}), "element segments"},
		{"br_table", assemble(slices.Concat([]byte{0, 0x20, 0, 0x0e}, many(limits.BranchTargets+1, 0), []byte{0, 0x0b})), "br_table"},
		{"the whole", append(built(), make([]byte, limits.ModuleBytes)...), "module size"},
		{"a manifest", built(named(abi.ManifestSection, bytes.Repeat([]byte{' '}, manifest.MaxBytes+1))), "at most 262144 are read"},
		{"a manifest of handlers", built(named(abi.ManifestSection, []byte(`{"handlers":[`+strings.Repeat(`{"name":"a"},`, 200)+`{"name":"b"}]}`))), "names 201 handlers"},
		{"a manifest that is deep", built(named(abi.ManifestSection, []byte(strings.Repeat(`{"capabilities":`, 16_000)))), "manifest"},
		{"a deep schema", built(named(abi.ManifestSection, []byte(`{"handlers":[{"name":"a","input_schema":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}]}`))), "manifest"},
		{"a capability list", built(named(abi.ManifestSection, []byte(`{"capabilities":{"kv":[`+strings.Repeat(`"a",`, 60_000)+`"b"]}}`))), "more than 100 entries"},
	} {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		_, err := Inspect(tt.code)
		goruntime.ReadMemStats(&after)
		if !errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), tt.words) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a sentence with %q", tt.name, err, tt.words)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: it took %d MiB to refuse %d KiB", tt.name, took>>20, len(tt.code)>>10)
		}
	}
}

// TestTheLargestThatIsTakenRuns checks that a host can run modules just within the limits,
// with a new instance for each task.
func TestTheLargestThatIsTakenRuns(t *testing.T) {
	limits := wasmbinary.DefaultLimits()
	e := newEngine(t, Config{})
	entry := append([]byte{0x7f, 0}, sums(limits.InitBytes-10)...)
	var empty []part
	for range limits.Customs - 1 {
		empty = append(empty, named("", nil))
	}
	table := part{wasmbinary.SectionTable, many(limits.Tables, append([]byte{0x70, 0}, wasmbinary.AppendU32(nil, limits.TableElements)...)...)}
	for name, code := range map[string][]byte{
		"custom sections": built(empty...),
		"initialisers":    built(part{wasmbinary.SectionGlobal, many(limits.InitWork/len(entry)/2, entry...)}),
		"items":           built(table, part{wasmbinary.SectionElement, many(8, append([]byte{1, 0}, many(limits.Items/8, 0)...)...)}),
	} {
		if _, err := Inspect(code); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		digest := load(t, e, withSection(code, abi.ManifestSection, `{"reuse":"fresh"}`))
		for range 2 {
			if r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{}); r.Outcome != runtime.Succeeded {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}
