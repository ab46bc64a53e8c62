package inspect

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// A Rewritten module is the result of parsing and rewriting: everything that compiling and
// running need. It is stored beside the compiled code, so that a restarted host repeats
// neither.
type Rewritten struct {
	Info    Info
	Globals []string
	Marks   *meter.Marks
	Reset   bool   // memory and globals are all the state that a call changes
	Sum     string // SHA-256 of Code, the key of the compiled code, which modules that differ only in their manifest share
	Lines   []byte // line table of its code: see lines.Open
	Code    []byte `json:"-"`
}

// Rewrite parses, bounds and rewrites a module.
func Rewrite(code []byte, limits Limits) (Rewritten, error) {
	parsed, info, err := parse(code, wasmbinary.MaxLimits())
	if err != nil {
		return Rewritten{}, err
	}
	opts := limits.Options()
	opts.Marks = info.Kind == Reactor && info.Manifest.Reuse != manifest.ReuseFresh && info.Manifest.Reuse != manifest.ReuseShared
	program := lines.Parse(lines.Sections{
		Line: custom(parsed, ".debug_line"), Str: custom(parsed, ".debug_str"), LineStr: custom(parsed, ".debug_line_str"),
		Info: custom(parsed, ".debug_info"), Abbrev: custom(parsed, ".debug_abbrev"), Ranges: custom(parsed, ".debug_ranges"),
		RngLists: custom(parsed, ".debug_rnglists"), Addr: custom(parsed, ".debug_addr"),
	})
	opts.Moves = len(program.Rows) > 0
	metered := meter.Rewrite(parsed, opts)
	p := Rewritten{
		Info: info, Globals: metered.Globals, Marks: metered.Marks,
		Reset: metered.NotResettable == "", Sum: strings.TrimPrefix(Digest(metered.Code), "sha256:"), Code: metered.Code,
	}
	if opts.Moves {
		program.Move(metered.Moves.To)
		p.Lines = program.Append(nil)
	}
	return p, nil
}

func custom(m *wasmbinary.Module, name string) []byte {
	body, _ := m.Custom(name)
	return body
}

// RewrittenName is the name of a rewritten module in the code cache. It depends on
// everything that determines the rewriting.
func RewrittenName(digest string, limits Limits) string {
	opts := limits.Options()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s stack %d memory %d table %d", digest, opts.StackBytes, opts.MemoryPages, opts.TableElements))
	return hex.EncodeToString(sum[:])
}

// DecodeRewritten decodes the output of Encode: the length of the description, the
// description as JSON, and the code.
func DecodeRewritten(data []byte) (p Rewritten, ok bool) {
	if len(data) < 4 {
		return Rewritten{}, false
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if data = data[4:]; n > uint64(len(data)) || json.Unmarshal(data[:n], &p) != nil || !isSum(p.Sum) {
		return Rewritten{}, false
	}
	p.Code = data[n:]
	return p, true
}

// isSum reports whether a text is the hex of a SHA-256, and therefore a valid file name.
func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// Encode returns the form in which the code cache stores the module.
func (p Rewritten) Encode() ([]byte, error) {
	about, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	data := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(about)+len(p.Code)), uint32(len(about)))
	return append(append(data, about...), p.Code...), nil
}
