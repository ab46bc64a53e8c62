// Command protogen compiles the .proto files under a folder without protoc: it
// parses them with protocompile and hands the result to the Go plugins.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	_ "google.golang.org/genproto/googleapis/api/annotations" // registers google/api/annotations.proto
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/wheelworkhq/wheelwork/tools/openapi"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string) error {
	var names []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "third_party" { // no code is made of the imports of others
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".proto") {
			name, _ := filepath.Rel(root, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(names)

	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{root}},
			protocompile.ResolverFunc(linkedIn),
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return err
	}
	if err := describe(root, files); err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	for _, p := range plugins {
		req := &pluginpb.CodeGeneratorRequest{
			Parameter: proto.String(p.parameter),
			// Without it the generated header would say "protoc (unknown)".
			CompilerVersion: &pluginpb.Version{Major: proto.Int32(6), Minor: proto.Int32(33), Patch: proto.Int32(0)},
		}
		seen := map[string]bool{}
		for _, f := range files {
			if strings.HasPrefix(f.Path(), p.below) {
				req.FileToGenerate = append(req.FileToGenerate, f.Path())
				req.ProtoFile = appendWithImports(req.ProtoFile, f, seen)
			}
		}
		if err := generate(ctx, root, p.name, req); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// document is the description of HTTP/JSON, below the root.
const document = "v1/openapi.json"

// describe writes the document of the files below v1, which alone are served over HTTP.
func describe(root string, files linker.Files) error {
	var set []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	for _, f := range files {
		if strings.HasPrefix(f.Path(), "v1/") {
			set = appendWithImports(set, f, seen)
		}
	}
	text, err := openapi.Write(set)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, document), text, 0o644)
}

// plugins are run in this order; each writes below the same root, what the
// files below a folder of it make. Only v1 is served over HTTP.
var plugins = []struct{ name, below, parameter string }{
	{"protoc-gen-go", "", "paths=source_relative"},
	{"protoc-gen-go-grpc", "", "paths=source_relative"},
	{"protoc-gen-grpc-gateway", "v1/", "paths=source_relative"},
}

// linkedIn finds the .proto files whose generated code is part of this program.
func linkedIn(path string) (protocompile.SearchResult, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Desc: f}, nil
}

// appendWithImports appends f after all that it imports, as plugins expect.
func appendWithImports(out []*descriptorpb.FileDescriptorProto, f protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return out
	}
	seen[f.Path()] = true
	imports := f.Imports()
	for i := range imports.Len() {
		out = appendWithImports(out, imports.Get(i).FileDescriptor, seen)
	}
	return append(out, protodesc.ToFileDescriptorProto(f))
}

func generate(ctx context.Context, root, plugin string, req *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return err
	}
	if resp.Error != nil {
		return errors.New(resp.GetError())
	}
	for _, f := range resp.File {
		if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
