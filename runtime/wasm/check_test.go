package wasm

import (
	"context"
	"errors"
	"strings"
	"testing"

	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
)

// TestCheckScript checks that a script with an error of syntax is refused with its place, and
// that no script is executed.
func TestCheckScript(t *testing.T) {
	for language, cases := range map[string][]struct {
		files []string
		want  string // in the error; "": it is accepted
	}{
		scripts.JavaScript: {
			{[]string{"main.js", "export default function main(ctx) {\n  return foo(;\n}\n"}, "main.js:2:14: SyntaxError: "},
			{[]string{"main.js", "import {a} from './lib/a.js';\nexport default () => a;", "lib/a.js", "export const a = 1;\n\nexport cons b = 2;"}, "lib/a.js:3:"},
			{[]string{"main.js", "export default () => 1;", "other.mjs", "let a = `;"}, "other.mjs:1:"},
			{[]string{"main.js", "import './none.js';"}, "none.js"},
			{[]string{"main.js", "import { log } from 'wheelwork';\nawait null;\nfor (;;) log.info('x');"}, ""},
			{[]string{"main.js", "throw new Error('at the top')"}, ""},
			{[]string{"main.js", "export default async (ctx) => ctx.text();", "lib/b.js", "export class B { #x = 1; get x() { return this.#x } }"}, ""},
			{[]string{"main.js", strings.Repeat("(", 100_000)}, "main.js"},
			{[]string{"main.js", strings.Repeat("[", 100_000)}, "main.js"},
		},
		scripts.Python: {
			{[]string{"main.py", "def main(ctx):\n    return x y\n"}, "main.py:2:14: SyntaxError: invalid syntax"},
			{[]string{"main.py", "def main(ctx):\n\treturn 1\n        return 2\n"}, "main.py:3:"},
			{[]string{"main.py", "def main(ctx): pass\n", "lib/a.py", "x = (\n"}, "lib/a.py:1:5: SyntaxError: '(' was never closed"},
			{[]string{"main.py", "a\x00b"}, "main.py: "},
			{[]string{"main.py", "while True: pass\n"}, ""},
			{[]string{"main.py", "# é\nfrom wheelwork import Permanent\nasync def main(ctx): return f'{ctx!r}'\n"}, ""},
			{[]string{"main.py", strings.Repeat("(", 100_000)}, "main.py"},
			{[]string{"main.py", "x = " + strings.Repeat("-", 100_000) + "1"}, "main.py"},
		},
	} {
		t.Run(language, func(t *testing.T) {
			e := newEngine(t, Config{})
			interpreted(t, e, language)
			for i, tt := range cases {
				digest := load(t, e, packed(t, language, tt.files...))
				err := e.CheckScript(context.Background(), digest)
				if tt.want == "" && err != nil {
					t.Errorf("%d: %v", i, err)
				}
				if tt.want != "" && (!errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")) {
					t.Errorf("%d: %v, want %q", i, err, tt.want)
				}
			}
		})
	}
}
