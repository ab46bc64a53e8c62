package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wheelworkhq/wheelwork/internal/scriptkit"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
)

// maxSources bounds the sources that the editor takes, in bytes. In a form each byte is at most
// three, and a line break six.
const maxSources = 1 << 20

// scriptText is a script as the fields of a form.
type scriptText struct {
	Language string
	Main     int // the file whose functions are the handlers
	Files    []scriptFile
	Manifest string // YAML
}

// scriptFile is one file of a script.
type scriptFile struct{ Name, Text string }

// scriptProblem is a mistake in a script.
type scriptProblem struct {
	Field string // id of the field that has it; "": it belongs to none
	Name  string // of the file; "": it is in none
	Line  int    // from 1; 0: it belongs to no line
	Text  string
}

// FieldName returns the kind of the field.
func (p scriptProblem) FieldName() string {
	switch p.Field {
	case "name", "version", fieldManifest:
		return p.Field
	}
	return "file"
}

// fieldManifest is the id of the field with the manifest.
const fieldManifest = "manifest"

// newScript returns the text of the sample in a language.
func newScript(language string) (scriptText, error) {
	main, text, err := scriptkit.Sample(language)
	return scriptText{Language: language, Files: []scriptFile{{main, text}}, Manifest: "handlers:\n  - name: main\n"}, err
}

// readScript returns the text of a packed script. The main file comes first.
func readScript(code []byte) (scriptText, error) {
	s, err := scriptkit.Unpack(code)
	if err != nil {
		return scriptText{}, err
	}
	text := scriptText{Language: s.Language, Files: []scriptFile{{s.Main, s.Files[s.Main]}}}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		if name != s.Main {
			text.Files = append(text.Files, scriptFile{name, s.Files[name]})
		}
	}
	if manifest, ok := modules.Custom(code, abi.ManifestSection); ok {
		if text.Manifest, err = yamlOf(manifest); err == nil {
			text.Manifest = plainManifest(text.Manifest)
		}
	}
	return text, err
}

// scriptOf reads the fields of the form. Files without a name and a text are left out.
func scriptOf(f url.Values) scriptText {
	lines := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") } // browsers send CRLF
	s := scriptText{Language: f.Get("language"), Manifest: lines(f.Get("manifest"))}
	main, _ := strconv.Atoi(f.Get("main"))
	texts := f["text"]
	for i, name := range f["file"] {
		file := scriptFile{Name: strings.TrimSpace(name)}
		if i < len(texts) {
			file.Text = lines(texts[i])
		}
		if file.Name == "" && strings.TrimSpace(file.Text) == "" {
			continue
		}
		if i == main {
			s.Main = len(s.Files)
		}
		s.Files = append(s.Files, file)
	}
	return s
}

// remove removes a file. The first file becomes the main file if that was removed.
func (s *scriptText) remove(i int) {
	if i < 0 || i >= len(s.Files) {
		return
	}
	s.Files = slices.Delete(s.Files, i, i+1)
	switch {
	case s.Main == i:
		s.Main = 0
	case s.Main > i:
		s.Main--
	}
}

// sources returns the texts by the names of their files.
func (s scriptText) sources() map[string]string {
	all := make(map[string]string, len(s.Files))
	for _, f := range s.Files {
		all[f.Name] = f.Text
	}
	return all
}

// pack returns the module of a script, and its manifest in JSON.
func (s scriptText) pack() (code []byte, manifest string, problems []scriptProblem) {
	if len(s.Files) == 0 {
		return nil, "", []scriptProblem{{Text: "the script has no file"}}
	}
	seen := map[string]bool{}
	for i, f := range s.Files {
		switch {
		case f.Name == "":
			problems = append(problems, scriptProblem{Field: fileName(i), Text: "the file has no name"})
		case seen[f.Name]:
			problems = append(problems, scriptProblem{Field: fileName(i), Name: f.Name, Text: "two files have this name"})
		}
		seen[f.Name] = true
	}
	manifest, problem := jsonOf(s.Manifest)
	if problem != nil {
		problems = append(problems, *problem)
	}
	if len(problems) > 0 {
		return nil, "", problems
	}
	code, err := scriptkit.Pack(s.Language, s.Files[s.Main].Name, s.sources())
	if err != nil {
		return nil, "", []scriptProblem{{Text: err.Error()}}
	}
	return code, manifest, nil
}

// fileName and fileText are the ids of the fields of a file.
func fileName(i int) string { return "name-" + strconv.Itoa(i) }
func fileText(i int) string { return "file-" + strconv.Itoa(i) }

// yamlLine finds the line in an error of YAML.
var yamlLine = regexp.MustCompile(`\bline (\d+): `)

// jsonOf returns the JSON of a manifest in YAML; an empty text has none.
func jsonOf(text string) (string, *scriptProblem) {
	bad := func(err error) (string, *scriptProblem) {
		p := &scriptProblem{Field: fieldManifest, Text: err.Error()}
		if m := yamlLine.FindStringSubmatch(p.Text); m != nil {
			p.Line, _ = strconv.Atoi(m[1])
		}
		return "", p
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return bad(err)
	}
	if value == nil {
		return "", nil
	}
	b, err := json.Marshal(value)
	if err != nil {
		return bad(err)
	}
	return string(b), nil
}

// plainManifest returns a manifest as the server gives it back: without comments, and with its
// fields in the order of their names. A manifest that is not valid stays as it is.
func plainManifest(text string) string {
	manifest, problem := jsonOf(text)
	if problem != nil || manifest == "" {
		return text
	}
	plain, err := yamlOf([]byte(manifest))
	if err != nil {
		return text
	}
	return plain
}

// place finds the file and the line with which the refusal of a script begins.
var place = regexp.MustCompile(`^(?:module refused: )?(.+?):(\d+):(?:\d+:)? ?(.*)`)

// problemOf returns a refusal with the field that it is about.
func (s scriptText) problemOf(refusal string) scriptProblem {
	if m := place.FindStringSubmatch(refusal); m != nil {
		for i, f := range s.Files {
			if f.Name == m[1] {
				line, _ := strconv.Atoi(m[2])
				return scriptProblem{fileText(i), f.Name, line, m[3]}
			}
		}
	}
	if strings.Contains(refusal, "manifest") {
		return scriptProblem{Field: fieldManifest, Text: refusal}
	}
	return scriptProblem{Text: refusal}
}

// lastNumber matches a version with a number in it: the text before its last number, that number,
// and the text after it.
var lastNumber = regexp.MustCompile(`^(.*?)(\d{1,9})(\D*)$`)

// nextVersion proposes the version after another one: its last number plus one, or more if that is
// taken.
func nextVersion(version string, taken map[string]bool) string {
	before, after, n, width := version+"-", "", 1, 0
	if version == "" {
		before, n = "", 0
	}
	if m := lastNumber.FindStringSubmatch(version); m != nil {
		before, after, width = m[1], m[3], len(m[2])
		n, _ = strconv.Atoi(m[2])
	}
	for {
		n++
		if next := fmt.Sprintf("%s%0*d%s", before, width, n, after); !taken[next] {
			return next
		}
	}
}
