package module

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) keygen() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Create a key that signs modules",
		Long: `Create an ed25519 key. The private key goes to FILE, in PEM form and readable only by
you; keep it where you make releases. The command prints the public key, which apps
and hosts trust. It does not replace a file that exists.`,
		Example: `  wheelwork module keygen release.key
  wheelwork app set shop --require-signed --trust "$(wheelwork module keygen release.key -o json | jq -r .key)"`,
		Args: command.Arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			public, private, err := ed25519.GenerateKey(nil)
			if err != nil {
				return err
			}
			text, err := modules.EncodePrivateKey(private)
			if err != nil {
				return err
			}
			if err := writeKey(args[0], text); err != nil {
				return err
			}
			made := struct {
				Key  string `json:"key"`
				File string `json:"file"`
			}{modules.KeyText(public), args[0]}
			return c.PrintOne([]string{"public key", "file"}, output.Object(made, func() []output.Cell { return []output.Cell{{Text: made.Key}, {Text: made.File}} }))
		},
	}
}

// writeKey creates a file that only its owner can read. It fails if the file exists.
func writeKey(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: choose another name, because a key in use must not be lost", file)
	}
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func readKey(file string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	key, err := modules.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the key %s: %w", file, err)
	}
	return key, nil
}

// signatureFile is the output file of `module sign`.
type signatureFile struct {
	Digest    string `json:"digest"`
	Key       string `json:"key"`
	Signature []byte `json:"signature"`
}

func (c *commands) sign() *cobra.Command {
	var key, manifest, out string
	cmd := &cobra.Command{
		Use:   "sign FILE.wasm|NAME@VERSION",
		Short: "Sign a module",
		Long: `Sign a file, which writes FILE.wasm.sig for "module push --signature", or a version on
the server, which adds the signature there. The command signs the SHA-256 of the bytes
that the server stores: sign with the manifest that you push the module with. It
downloads a version on the server and hashes it here; compare the digest that it
prints with the digest of your build.`,
		Example: `  wheelwork module sign totals.wasm --key release.key
  wheelwork module sign totals@1 --key release.key`,
		Args: command.Arguments("FILE.wasm|NAME@VERSION"),
	}
	cmd.Flags().StringVar(&key, "key", "", "`file` with the private key")
	cmd.Flags().StringVar(&manifest, "manifest", "", "JSON `file` that the module will be pushed with")
	cmd.Flags().StringVar(&out, "out", "", "`file` for the signature (default FILE.wasm.sig)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if key == "" {
			return command.Usage(cmd, "--key is missing")
		}
		private, err := readKey(key)
		if err != nil {
			return err
		}
		if isVersion(args[0]) {
			if manifest != "" || out != "" {
				return command.Usage(cmd, "--manifest and --out are for files")
			}
			return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
				return c.signVersion(ctx, client, private, args[0])
			})(cmd, args)
		}
		return c.signFile(cmd.Context(), private, args[0], manifest, out)
	}
	return cmd
}

// isVersion reports whether an argument names a version on the server rather than a local
// file.
func isVersion(arg string) bool {
	if _, err := os.Stat(arg); err == nil || strings.HasSuffix(arg, ".wasm") || strings.ContainsRune(arg, os.PathSeparator) {
		return false
	}
	_, _, err := sdk.SplitModule(arg)
	return err == nil
}

func (c *commands) signFile(ctx context.Context, key ed25519.PrivateKey, file, manifest, out string) error {
	code, err := readModule(file)
	if err != nil {
		return err
	}
	text, err := readManifest(manifest)
	if err != nil {
		return err
	}
	kept, err := keptBytes(ctx, code, text)
	if err != nil {
		return err
	}
	signed, err := sign(key, kept)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(signed, "", "  ")
	if err != nil {
		return err
	}
	if out == "" {
		out = file + ".sig"
	}
	if err := os.WriteFile(out, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the signature: %w", err)
	}
	c.Note("%s: written", out)
	return c.printSigned(signed)
}

func (c *commands) signVersion(ctx context.Context, client *sdk.Client, key ed25519.PrivateKey, ref string) error {
	code, err := client.DownloadModule(ctx, c.App, ref)
	if err != nil {
		return err
	}
	signed, err := sign(key, code)
	if err != nil {
		return err
	}
	if _, err := client.SignModule(ctx, c.App, ref, &sdk.Signature{Key: signed.Key, Signature: signed.Signature}); err != nil {
		return err
	}
	return c.printSigned(signed)
}

func (c *commands) printSigned(s signatureFile) error {
	return c.PrintOne([]string{"digest", "key"}, output.Object(s, func() []output.Cell { return []output.Cell{{Text: s.Digest}, {Text: s.Key}} }))
}

func sign(key ed25519.PrivateKey, code []byte) (signatureFile, error) {
	digest := modules.Digest(code)
	s, err := modules.Sign(key, digest)
	return signatureFile{digest, s.Key, s.Signature}, err
}

// keptBytes returns the bytes that a server stores for an upload. They contain the
// manifest, either the uploaded one or the module's own.
func keptBytes(ctx context.Context, code []byte, manifest string) ([]byte, error) {
	return wasm.Pack(ctx, code, manifest)
}

// readSignatures reads the signatures of an upload from files, and adds one made with the
// key if it is set.
func readSignatures(ctx context.Context, upload sdk.Upload, files []string, key string) ([]*sdk.Signature, error) {
	var all []*sdk.Signature
	if len(files) == 0 && key == "" {
		return nil, nil
	}
	kept, err := keptBytes(ctx, upload.Code, upload.Manifest)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the signature: %w", err)
		}
		var s signatureFile
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("read the signature: %s is not what `wheelwork module sign` writes: %w", file, err)
		}
		if err := (modules.Signature{Key: s.Key, Signature: s.Signature}).Verify(modules.Digest(kept)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, &sdk.Signature{Key: s.Key, Signature: s.Signature})
	}
	if key == "" {
		return all, nil
	}
	private, err := readKey(key)
	if err != nil {
		return nil, err
	}
	s, err := sign(private, kept)
	return append(all, &sdk.Signature{Key: s.Key, Signature: s.Signature}), err
}

// signersOf returns the keys that have signed a version.
func signersOf(m *sdk.Module) []string {
	var keys []string
	for _, s := range m.GetSignatures() {
		keys = append(keys, s.GetKey())
	}
	return keys
}
