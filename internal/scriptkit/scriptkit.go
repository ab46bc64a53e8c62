// Package scriptkit packs the sources of a script together with the SDK of their language, and takes them
// out again. The command and the console share it, so that equal sources are equal bytes and one
// version, whichever of them uploads.
package scriptkit

import (
	"fmt"
	"maps"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

// files are the SDK of a language in sdk/guest, its name in a script, and the main file of the
// template of new projects.
type files struct{ sdk, name, main string }

func filesOf(language string) (files, error) {
	switch language {
	case script.JavaScript:
		return files{"js/wheelwork.js", "wheelwork.js", "main.js"}, nil
	case script.Python:
		return files{"python/wheelwork.py", "wheelwork.py", "main.py"}, nil
	}
	return files{}, fmt.Errorf("there is no interpreter for %q: want %s or %s", language, script.JavaScript, script.Python)
}

// Pack packs source texts by name, of which main is one, for the newest interpreter of their
// language.
func Pack(language, main string, sources map[string]string) ([]byte, error) {
	of, err := filesOf(language)
	if err != nil {
		return nil, err
	}
	known, ok := script.ByLanguage(language)
	if !ok {
		return nil, fmt.Errorf("there is no interpreter for %s", language)
	}
	if _, taken := sources[of.name]; taken {
		return nil, fmt.Errorf("%s is the name of the SDK, which is packed with every script: give the file another name", of.name)
	}
	sdk, err := guest.Files.ReadFile(of.sdk)
	if err != nil {
		return nil, fmt.Errorf("the SDK of %s: %w", language, err)
	}
	all := map[string]string{of.name: string(sdk)}
	maps.Copy(all, sources)
	return script.Pack(script.Script{Language: language, Interpreter: known.Digest, Main: main, Files: all})
}

// Unpack returns a packed script without the SDK. Its error is that of [script.Unpack].
func Unpack(code []byte) (script.Script, error) {
	s, err := script.Unpack(code)
	if err != nil {
		return s, err
	}
	of, err := filesOf(s.Language)
	if err == nil && s.Main != of.name {
		delete(s.Files, of.name)
	}
	return s, err
}

// typesLine tells the editors of a project where the types of the SDK are.
const typesLine = "/// <reference path=\"./wheelwork.d.ts\" />\n"

// Sample returns the name and the text of the main file with which a project of a language begins,
// without the line that names a file of the project.
func Sample(language string) (main, text string, err error) {
	of, err := filesOf(language)
	if err != nil {
		return "", "", err
	}
	source, err := guest.Files.ReadFile("templates/" + language + "/" + of.main)
	return of.main, strings.Replace(string(source), typesLine, "", 1), err
}
