package app

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// keyRow is the output about a key of a key file. Other tools rely on the field names.
type keyRow struct {
	ID    string `json:"id"`
	Seals bool   `json:"seals"` // it is the newest
}

var keyColumns = []string{"key", "seals"}

func (r keyRow) record() output.Record {
	return output.Object(r, func() []output.Cell {
		return []output.Cell{{Text: r.ID}, {Text: map[bool]string{true: "yes", false: "no, it only opens"}[r.Seals]}}
	})
}

// keyFile returns the commands about the file with the keys of the secrets.
func (c *commands) keyFile() *cobra.Command {
	return command.Group("key", "Change the file with the keys that seal secrets, on the machine of a server", c.addKey(), c.listKeys(), c.removeKey())
}

func (c *commands) addKey() *cobra.Command {
	return &cobra.Command{
		Use:   "add FILE",
		Short: "Add a new key to a key file, or make the file",
		Long: `Add a new key to a key file, secret.key in the data directory or the file of
--secret-key-file, or make the file. The server uses it after a reload: the new key
seals, and the others still open what they have sealed.

To replace a key: add a new one, reload the server, seal all secrets with the new key
with "wheelwork secret reseal", remove the old key, and reload again. In a cluster copy
the file to all servers before each reload; a new key seals when all of them have it.`,
		Example: `  wheelwork secret key add /var/lib/wheelwork/secret.key`,
		Args:    command.Arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := credential.AddSecretKey(args[0])
			if err != nil {
				return err
			}
			keys, err := credential.SecretKeys(args[0], false)
			if err != nil {
				return err
			}
			if len(keys.IDs()) > 1 { // otherwise the file is new
				c.Note("reload the server; then `wheelwork secret reseal` seals all secrets with the key %s", id)
			}
			return c.PrintOne(keyColumns, keyRow{id, true}.record())
		},
	}
}

func (c *commands) listKeys() *cobra.Command {
	return &cobra.Command{
		Use:   "list FILE",
		Short: "List the ids of the keys in a key file, the oldest first",
		Args:  command.Arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := credential.SecretKeys(args[0], false)
			if err != nil {
				return err
			}
			var rows []keyRow
			ids := keys.IDs()
			for i, id := range ids {
				rows = append(rows, keyRow{id, i == len(ids)-1})
			}
			return c.PrintAll(keyColumns, output.Each(rows, keyRow.record))
		},
	}
}

func (c *commands) removeKey() *cobra.Command {
	return &cobra.Command{
		Use:   "remove FILE KEY",
		Short: "Remove an old key from a key file",
		Long: `Remove an old key from a key file, by its id. Do it after "wheelwork secret reseal". A
server refuses to reload a file without a key that still seals a secret. Backups from
before the reseal need the old key: they hold it if they hold keys.`,
		Example: `  wheelwork secret key remove /var/lib/wheelwork/secret.key 630dcd2966c4336a`,
		Args:    command.Arguments("FILE", "KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := credential.RemoveSecretKey(args[0], args[1]); err != nil {
				return err
			}
			c.Note("key %s: removed; reload the server", args[1])
			return nil
		},
	}
}

// resealed is the output of "secret reseal". Other tools rely on the field names.
type resealed struct {
	Key        string   `json:"key"`
	Apps       int      `json:"apps"`
	Secrets    int      `json:"secrets"`
	Resealed   int      `json:"resealed"`
	Unreadable []string `json:"unreadable,omitempty"` // APP/NAME
}

func (c *commands) reseal() *cobra.Command {
	return &cobra.Command{
		Use:   "reseal",
		Short: "Seal the secrets of all apps with the newest key of the server",
		Long: `Seal the secrets of all apps with the newest key of the server. Values, versions and
times of the secrets stay. An interrupted command can be repeated. It needs an
administrator of the cluster. See "wheelwork secret key add".`,
		Args: command.Arguments(),
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			apps, err := client.Apps(ctx)
			if err != nil {
				return err
			}
			var all resealed
			for _, app := range apps {
				r, err := client.ResealSecrets(ctx, app.GetName())
				if err != nil {
					return err
				}
				if all.Key != "" && all.Key != r.GetKey() {
					return fmt.Errorf("the newest key changed from %s to %s: repeat the command when all servers have reloaded", all.Key, r.GetKey())
				}
				all.Key = r.GetKey()
				all.Apps++
				all.Secrets += int(r.GetSecrets())
				all.Resealed += int(r.GetResealed())
				for _, name := range r.GetUnreadable() {
					all.Unreadable = append(all.Unreadable, app.GetName()+"/"+name)
					c.Note("secret %s of app %s cannot be read: set it again, or add the key to the key file with which it was sealed", name, app.GetName())
				}
			}
			err = c.PrintOne([]string{"key", "apps", "secrets", "resealed", "unreadable"}, output.Object(all, func() []output.Cell {
				return []output.Cell{{Text: all.Key}, {Text: strconv.Itoa(all.Apps)}, {Text: strconv.Itoa(all.Secrets)}, {Text: strconv.Itoa(all.Resealed)}, {Text: strconv.Itoa(len(all.Unreadable))}}
			}))
			if err == nil && len(all.Unreadable) > 0 {
				err = command.Fail("failed", "%d secrets cannot be read, and stay as they are", len(all.Unreadable))
			}
			return err
		}),
	}
}
