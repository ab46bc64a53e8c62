package wasm

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
)

var witFunction = regexp.MustCompile(`(?m)^\s*(export )?([a-z0-9-]+): func\(([^)]*)\)(?: -> (\w+))?;`)

// TestHostMatchesWIT compares names, order and signatures.
func TestHostMatchesWIT(t *testing.T) {
	var documented, exported, served []string
	for _, f := range witFunction.FindAllStringSubmatch(abi.WIT, -1) {
		text := strings.ReplaceAll(f[2], "-", "_") + " " + wasmbinary.FuncType{Params: coreTypes(t, f[3]), Results: coreTypes(t, f[4])}.String()
		if f[1] != "" {
			exported = append(exported, text)
		} else {
			documented = append(documented, text)
		}
	}
	for _, f := range hostabi.Functions() {
		served = append(served, f.Name+" "+wasmbinary.FuncType{Params: f.Params, Results: f.Results}.String())
	}
	if diff := cmp.Diff(documented, served); diff != "" {
		t.Errorf("wheelwork.wit and the code differ (-wit +code):\n%s", diff)
	}
	exports := []string{abi.ExportHandle + " (i32) -> (i32)", abi.ExportRun + " (i32) -> (i32)", abi.ExportDescribe + " () -> ()"}
	if diff := cmp.Diff(exports, exported); diff != "" {
		t.Errorf("exports (-code +wit):\n%s", diff)
	}
	since := 0
	for _, line := range strings.Split(abi.WIT, "\n") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "// since 1."); ok {
			since, _ = strconv.Atoi(text)
		}
		if m := witFunction.FindStringSubmatch(line); m != nil && m[1] == "" {
			if name := strings.ReplaceAll(m[2], "-", "_"); abi.Since(name) != since {
				t.Errorf("%s is there since 1.%d, wheelwork.wit says 1.%d", name, abi.Since(name), since)
			}
		}
	}
	if since != abi.Minor || !strings.Contains(abi.WIT, fmt.Sprintf("package wheelwork:runtime@1.%d.0;", abi.Minor)) {
		t.Errorf("wheelwork.wit is not of version 1.%d", abi.Minor)
	}
	if !strings.Contains(abi.WIT, "interface "+strings.ReplaceAll(abi.ImportModule, "_", "-")+" {") {
		t.Errorf("wheelwork.wit has no interface %s", abi.ImportModule)
	}
}

// coreTypes converts "a: u32, b: s64", or one type, to core value types.
func coreTypes(t *testing.T, list string) []byte {
	var types []byte
	for _, field := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		_, name, named := strings.Cut(field, ":")
		if !named {
			name = field
		}
		switch strings.TrimSpace(name) {
		case "u32", "s32":
			types = append(types, wasmbinary.I32)
		case "u64", "s64":
			types = append(types, wasmbinary.I64)
		case "f64":
			types = append(types, api.ValueTypeF64)
		default:
			t.Fatalf("wheelwork.wit: type %q has no core type", name)
		}
	}
	return types
}

var (
	cPrototype = regexp.MustCompile(`(?m)^WHEELWORK_IMPORT\((\w+)\) (\w[\w ]*?) wheelwork_(\w+)\(([^)]*)\);`)
	goImport   = regexp.MustCompile(`(?m)^//go:wasmimport wheelwork_v1 (\w+)$`)
)

// TestSDKsImportWhatIsServed compares the C header with the host by names and types, and
// the Go SDK only by names: the linker of a guest and the check of uploads compare its
// types.
func TestSDKsImportWhatIsServed(t *testing.T) {
	var served, header, sdk []string
	for _, f := range hostabi.Functions() {
		served = append(served, f.Name+" "+wasmbinary.FuncType{Params: f.Params, Results: f.Results}.String())
	}
	for _, p := range cPrototype.FindAllStringSubmatch(read(t, "../../sdk/guest/c/wheelwork.h"), -1) {
		if p[1] != p[3] {
			t.Errorf("wheelwork_%s imports %s", p[3], p[1])
		}
		header = append(header, p[1]+" "+wasmbinary.FuncType{Params: cTypes(p[4]), Results: cTypes(p[2])}.String())
	}
	if diff := cmp.Diff(served, header); diff != "" {
		t.Errorf("wheelwork.h and the code differ (-code +header):\n%s", diff)
	}
	for _, m := range goImport.FindAllStringSubmatch(read(t, "../../sdk/guest/imports.go"), -1) {
		sdk = append(sdk, m[1])
	}
	var want []string
	for _, f := range hostabi.Functions() {
		if f.Name != "random" { // Go has crypto/rand
			want = append(want, f.Name)
		}
	}
	if diff := cmp.Diff(want, sdk); diff != "" {
		t.Errorf("the Go SDK and the code differ (-code +sdk):\n%s", diff)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cTypes converts C parameters, or a result, to core value types.
func cTypes(list string) []byte {
	var types []byte
	for _, p := range strings.Split(list, ",") {
		switch {
		case strings.TrimSpace(p) == "void":
		case strings.Contains(p, "*"):
			types = append(types, wasmbinary.I32)
		case strings.Contains(p, "double"):
			types = append(types, api.ValueTypeF64)
		case strings.Contains(p, "long long"):
			types = append(types, wasmbinary.I64)
		default:
			types = append(types, wasmbinary.I32)
		}
	}
	return types
}

// TestDocsNameEverything checks that the documentation mentions each function, error number
// and result code.
func TestDocsNameEverything(t *testing.T) {
	page := read(t, "../../docs/abi.md")
	for _, f := range hostabi.Functions() {
		if !strings.Contains(page, "`"+f.Name+"`") && !strings.Contains(page, "`"+f.Name+"(") {
			t.Errorf("docs/abi.md does not describe %s", f.Name)
		}
	}
	for _, e := range []abi.Errno{
		abi.ErrnoAgain, abi.ErrnoBadHandle, abi.ErrnoCancelled, abi.ErrnoQuota, abi.ErrnoConflict, abi.ErrnoInvalid, abi.ErrnoIO,
		abi.ErrnoHandles, abi.ErrnoNoEntry, abi.ErrnoNoSys, abi.ErrnoOverflow, abi.ErrnoNotGranted,
	} {
		if !strings.Contains(page, fmt.Sprintf("| -%d |", e)) {
			t.Errorf("docs/abi.md does not describe the error -%d", e)
		}
	}
	for _, code := range []string{
		guest.CodeTrap, guest.CodeExit, guest.CodeStatus, guest.CodeDeadline, guest.CodeStopped, guest.CodeCallDepth, guest.CodeOutputLimit, guest.CodeMisuse, guest.CodeNotLoaded,
		guest.CodeNoHandler, guest.CodeMemory, guest.CodeInstantiate, guest.CodeBadTask, guest.CodeService, guest.CodeFiles,
	} {
		if !strings.Contains(page, "`"+code+"`") {
			t.Errorf("docs/abi.md does not name the code %s", code)
		}
	}
}
