package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/credential"
)

func (c *cli) tokenCommand() *cobra.Command {
	return group("token", "Make the tokens that processes know each other by", c.tokenGenerate())
}

// generatedToken is the output about a new token; only the file contains the token.
type generatedToken struct {
	File string `json:"file"`
}

func (c *cli) tokenGenerate() *cobra.Command {
	return &cobra.Command{
		Use:   "generate FILE",
		Short: "Write a new token to a file that only you may read",
		Long: `Write a new token of 160 random bits to a file that only you may read (mode 0600).
No server is needed. A file that exists is not replaced.

Hosts and the processes that they join have one in common (--token-file). The
nameserver and the servers have another one (--server-token-file), which no host gets.`,
		Example: `  wheelwork token generate host-token
  wheelwork token generate server-token`,
		Args: arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := credential.GenerateToken(args[0]); err != nil {
				return err
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return c.printOne([]string{"file"}, object(generatedToken{path}, func() []cell { return []cell{{path, none}} }))
		},
	}
}
