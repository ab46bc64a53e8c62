package app

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// maxValueFile bounds the file of a value; the server accepts 64 KiB.
const maxValueFile = 64 << 10

var valueColumns = []string{"bucket", "key", "version", "size", "updated at"}

func valueRecord(v *sdk.Value) output.Record {
	return output.Message(v, func() []output.Cell {
		return []output.Cell{
			{Text: v.GetBucket()},
			{Text: v.GetKey()},
			{Text: strconv.FormatUint(v.GetVersion(), 10)},
			{Text: output.Bytes(v.GetSize())},
			{Text: output.Time(v.GetUpdatedAt())},
		}
	})
}

func (c *commands) getValue() *cobra.Command {
	return &cobra.Command{
		Use:   "get BUCKET KEY",
		Short: "Print a value; -o json shows its version and time as well",
		Args:  command.Arguments("BUCKET", "KEY"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			v, err := client.Value(ctx, c.App, args[0], args[1])
			if err != nil {
				return err
			}
			if c.Format != output.Table {
				return c.PrintOne(valueColumns, valueRecord(v))
			}
			value := append([]byte(v.GetValue()), v.GetValueBytes()...)
			if len(v.GetValueBytes()) == 0 && !bytes.HasSuffix(value, []byte("\n")) {
				value = append(value, '\n')
			}
			_, err = c.Out.Write(value)
			return err
		}),
	}
}

// addExpect adds the flag with the version that a change expects. The returned function
// reads it.
func addExpect(cmd *cobra.Command) func() uint64 {
	var expect uint64
	cmd.Flags().Uint64Var(&expect, "expect-version", 0, "only if the value has this version; 0: only if it does not exist (default any version)")
	return func() uint64 {
		if !cmd.Flags().Changed("expect-version") {
			return sdk.AnyVersion
		}
		return expect
	}
}

func (c *commands) putValue() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "put BUCKET KEY [VALUE]",
		Short: "Set a value",
		Long:  `Set a value, from the command line or, with --file, from a file of at most 64 KiB.`,
		Example: `  wheelwork kv put rates eur 1.08
  wheelwork kv put config app.json --file app.json
  wheelwork kv put rates eur 1.09 --expect-version 7`,
		Args: cobra.RangeArgs(2, 3),
	}
	cmd.Flags().StringVar(&file, "file", "", "`file` with the value; - is standard input")
	expect := addExpect(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) < 3 {
			return command.Arguments("BUCKET", "KEY")(cmd, args)
		}
		return command.Arguments("BUCKET", "KEY", "VALUE")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 3) == (file != "") {
			return command.Usage(cmd, "give VALUE or --file, and not both")
		}
		value := []byte(args[len(args)-1])
		if file != "" {
			var err error
			if value, err = readBounded(cmd.InOrStdin(), file, maxValueFile); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			v, err := client.PutValue(ctx, c.App, args[0], args[1], value, expect())
			if err != nil {
				return err
			}
			return c.PrintOne(valueColumns, valueRecord(v))
		})(cmd, args)
	}
	return cmd
}

func (c *commands) listValues() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "list [BUCKET]",
		Short: "List the buckets of an app, or the entries of one",
		Example: `  wheelwork kv list
  wheelwork kv list rates --prefix e`,
		Args: command.OptionalArgument("BUCKET"),
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys with this prefix")
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		if len(args) == 1 {
			return c.PrintAll(valueColumns, output.Records(client.Values(ctx, c.App, args[0], prefix), valueRecord))
		}
		all, err := client.Buckets(ctx, c.App)
		if err != nil {
			return err
		}
		c.Note("%s of %s", output.Bytes(all.GetBytes()), output.Bytes(all.GetQuota()))
		return c.PrintAll([]string{"bucket", "entries", "size"}, output.Each(all.GetBuckets(), func(b *apiv1.ListBucketsResponse_Bucket) output.Record {
			return output.Message(b, func() []output.Cell {
				return []output.Cell{{Text: b.GetName()}, {Text: strconv.FormatInt(b.GetEntries(), 10)}, {Text: output.Bytes(b.GetBytes())}}
			})
		}))
	})
	return cmd
}

func (c *commands) deleteValue() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete BUCKET KEY",
		Short: "Delete a value",
		Args:  command.Arguments("BUCKET", "KEY"),
	}
	expect := addExpect(cmd)
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		if err := client.DeleteValue(ctx, c.App, args[0], args[1], expect()); err != nil {
			return err
		}
		c.Note("%s/%s: deleted", args[0], args[1])
		return nil
	})
	return cmd
}
