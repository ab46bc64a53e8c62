package cpython

// checker is a program that parses files, a JSON object of names and texts on standard input,
// and writes the first error. It executes nothing of them.
const checker = `
import json, sys
files = json.load(sys.stdin)
for name in sorted(files):
    if not name.endswith(".py"):
        continue
    try:
        compile(files[name], name, "exec", dont_inherit=True)
    except SyntaxError as e:
        place = ":".join(str(p) for p in (name, e.lineno, e.offset) if p)
        print(f"{place}: {type(e).__name__}: {e.msg}", end="")
        break
    except Exception as e:
        print(f"{name}: {type(e).__name__}: {e}", end="")
        break
`

// CheckArgs are the arguments with which CPython parses the files on standard input. It puts out
// the first error, or nothing.
func CheckArgs() []string {
	return []string{"-S", "-E", "-B", "-X", "utf8", "-W", "ignore", "-c", checker}
}
