package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// A rewritten module is what parsing and rewriting made of one: all that
// compiling and running need. It is kept beside the compiled code, so that a
// host that starts again does neither.
type rewritten struct {
	Info    Info
	Globals []string
	Marks   *meter.Marks
	Reset   bool   // memory and globals are all the state that a call changes
	Code    []byte `json:"-"`
}

// rewrite parses, bounds and rewrites a module.
func rewrite(code []byte, opts meter.Options) (rewritten, error) {
	parsed, info, err := inspect(code)
	if err != nil {
		return rewritten{}, err
	}
	opts.Marks = info.Kind == Reactor
	metered := meter.Rewrite(parsed, opts)
	return rewritten{
		Info: info, Globals: metered.Globals, Marks: metered.Marks,
		Reset: metered.NotResettable == "", Code: metered.Code,
	}, nil
}

// shelf keeps rewritten modules in a directory, which only the host may write
// to: it is trusted as the compiled code beside it is. Nothing depends on it;
// what cannot be read is made again.
type shelf struct{ dir string }

// file names a rewritten module by everything that it depends on.
func (s shelf) file(digest string, opts meter.Options) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s stack %d memory %d table %d", digest, opts.StackBytes, opts.MemoryPages, opts.TableElements))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:]))
}

// rewrittenMagic begins each file; the checksum of what follows it comes next,
// then the length of the description, the description as JSON, and the code.
const rewrittenMagic = "wheelwork rewritten 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// get returns a rewritten module; ok is false when there is none, or none whole.
func (s shelf) get(file string) (p rewritten, ok bool) {
	if s.dir == "" {
		return rewritten{}, false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return rewritten{}, false
	}
	return decodeRewritten(data)
}

func decodeRewritten(data []byte) (p rewritten, ok bool) {
	body, ok := bytes.CutPrefix(data, []byte(rewrittenMagic))
	if !ok || len(body) < 8 || crc32.Checksum(body[4:], castagnoli) != binary.LittleEndian.Uint32(body) {
		return rewritten{}, false
	}
	n := uint64(binary.LittleEndian.Uint32(body[4:]))
	if body = body[8:]; n > uint64(len(body)) || json.Unmarshal(body[:n], &p) != nil {
		return rewritten{}, false
	}
	p.Code = body[n:]
	return p, true
}

// put keeps a rewritten module. A file is there whole or not at all, also when
// several processes share the directory.
func (s shelf) put(file string, p rewritten) error {
	if s.dir == "" {
		return nil
	}
	data, err := encodeRewritten(p)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(s.dir, "new-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // fails when it has its name
	if _, err = temp.Write(data); err != nil {
		_ = temp.Close()
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}

func encodeRewritten(p rewritten) ([]byte, error) {
	about, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	data := append(make([]byte, 0, len(rewrittenMagic)+8+len(about)+len(p.Code)), rewrittenMagic...)
	data = append(data, 0, 0, 0, 0)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(about)))
	data = append(append(data, about...), p.Code...)
	body := data[len(rewrittenMagic):]
	binary.LittleEndian.PutUint32(body, crc32.Checksum(body[4:], castagnoli))
	return data, nil
}
