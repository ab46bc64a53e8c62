package serve

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/runtime/plugin"
)

func (c *commands) signPlugin() *cobra.Command {
	var keyFile, out string
	cmd := &cobra.Command{
		Use:   "sign FILE",
		Short: "Sign a plugin's program, so that hosts that trust the key run it",
		Long: `Sign a plugin's program with an ed25519 key (PKCS #8 in PEM form). The signature goes
to FILE.sig, where a host looks for it, and the public key, which the host's
operator writes under keys in the file of --plugins, to standard output.`,
		Example: `  openssl genpkey -algorithm ed25519 -out signing.pem
  wheelwork plugin sign images --key signing.pem`,
		Args: command.Arguments("FILE"),
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "PEM `file` with the private key")
	cmd.Flags().StringVar(&out, "out", "", "`file` for the signature (default FILE.sig)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if keyFile == "" {
			return command.Usage(cmd, "--key is missing")
		}
		key, err := privateKey(keyFile)
		if err != nil {
			return fmt.Errorf("--key: %w", err)
		}
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		signature, err := plugin.Sign(f, key)
		if err != nil {
			return err
		}
		if out == "" {
			out = args[0] + ".sig"
		}
		if err := os.WriteFile(out, signature, 0o644); err != nil {
			return err
		}
		public := keyPrefix + base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
		return c.PrintOne([]string{"file", "key"}, output.Object(struct {
			File string `json:"file"`
			Key  string `json:"key"`
		}{out, public}, func() []output.Cell { return []output.Cell{{Text: out}, {Text: public}} }))
	}
	return cmd
}

// keyPrefix is the prefix of a key's text; it names the algorithm.
const keyPrefix = "ed25519:"

func publicKey(text string) (ed25519.PublicKey, error) {
	raw, ok := strings.CutPrefix(text, keyPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(raw)
	if !ok || err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%.80q is not a public key: want %s and 44 characters of base64, as `wheelwork plugin sign` prints", text, keyPrefix)
	}
	return key, nil
}

func privateKey(file string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil {
		return nil, fmt.Errorf("%s holds no private key in PEM form", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of another kind: want ed25519", file)
	}
	return key, nil
}
