package wasm

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
)

// WithManifest returns code with manifest as its section of that name, which is
// how a module carries the names of its handlers: some compilers cannot emit
// the section themselves. A module that has one already is refused, as which of
// the two holds would be a guess. The same arguments give the same bytes.
func WithManifest(code []byte, manifest string) ([]byte, error) {
	m, _, err := inspect(code)
	if err != nil {
		return nil, err
	}
	if _, ok := m.Custom(abi.ManifestSection); ok {
		return nil, refuse("it has a section %s and was given a manifest besides: use one of them", abi.ManifestSection)
	}
	if !json.Valid([]byte(manifest)) {
		return nil, fmt.Errorf("the manifest is not JSON: write {\"handlers\":[{\"name\":\"main\"}]}: %w", ErrInvalidModule)
	}
	return AppendManifest(code, manifest), nil
}

// AppendManifest is [WithManifest] for a module and a manifest that were checked:
// it looks at neither.
func AppendManifest(code []byte, manifest string) []byte {
	name := abi.ManifestSection
	body := binary.AppendUvarint(nil, uint64(len(name)))
	body = append(body, name...)
	body = append(body, manifest...)
	out := append(make([]byte, 0, len(code)+len(body)+8), code...)
	out = append(out, 0) // a custom section
	out = binary.AppendUvarint(out, uint64(len(body)))
	return append(out, body...)
}
