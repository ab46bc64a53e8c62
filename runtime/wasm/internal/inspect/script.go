package inspect

import (
	"errors"

	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/quickjs"
)

// inspectScript describes a script; ok is false when the module is not a script.
func inspectScript(code []byte, info *Info) (ok bool, err error) {
	s, err := scripts.Unpack(code)
	switch {
	case errors.Is(err, scripts.ErrNotScript):
		return false, nil
	case err != nil:
		return true, Refuse("%v", err)
	}
	info.Kind, info.Interpreter = Script, s.Interpreter
	if err := fits(info); err != nil {
		return true, err
	}
	info.Handlers, info.Needs = info.handlers(), []string{scripts.Ability(s.Interpreter)}
	return true, nil
}

// inspectInterpreter adds the functions of an interpreter's driver to served; ok is false
// when the module is not a known interpreter.
func inspectInterpreter(info *Info, served map[string]binary.FuncType) (ok bool) {
	known, ok := scripts.ByDigest(info.Digest)
	if ok && known.Language == scripts.JavaScript {
		for _, f := range quickjs.Functions() {
			served[quickjs.Module+"."+f.Name] = f.Type()
		}
	}
	return ok
}
