package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) kvCommand() *cobra.Command {
	return group("kv", "See and change the values that handlers keep", c.kvGet(), c.kvPut(), c.kvList(), c.kvDelete())
}

// maxValueFile bounds the file of a value; the server accepts 64 KiB.
const maxValueFile = 64 << 10

var valueColumns = []string{"bucket", "key", "version", "size", "updated at"}

func valueRecord(v *sdk.Value) record {
	return message(v, func() []cell {
		return []cell{
			{v.GetBucket(), none},
			{v.GetKey(), none},
			{strconv.FormatUint(v.GetVersion(), 10), none},
			{bytesText(v.GetSize()), none},
			{moment(v.GetUpdatedAt()), none},
		}
	})
}

func (c *cli) kvGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get BUCKET KEY",
		Short: "Print a value; -o json shows its version and time as well",
		Args:  arguments("BUCKET", "KEY"),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			v, err := client.Value(ctx, c.app, args[0], args[1])
			if err != nil {
				return err
			}
			if c.format != formatTable {
				return c.printOne(valueColumns, valueRecord(v))
			}
			value := append([]byte(v.GetValue()), v.GetValueBytes()...)
			if len(v.GetValueBytes()) == 0 && !bytes.HasSuffix(value, []byte("\n")) {
				value = append(value, '\n')
			}
			_, err = c.out.Write(value)
			return err
		}),
	}
}

// addExpect adds the flag with the version that a change expects. The returned function
// reads it.
func addExpect(cmd *cobra.Command) func() uint64 {
	var expect uint64
	cmd.Flags().Uint64Var(&expect, "expect-version", 0, "only if the value has this version; 0: only if there is none (default whatever is there)")
	return func() uint64 {
		if !cmd.Flags().Changed("expect-version") {
			return sdk.AnyVersion
		}
		return expect
	}
}

func (c *cli) kvPut() *cobra.Command {
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
			return arguments("BUCKET", "KEY")(cmd, args)
		}
		return arguments("BUCKET", "KEY", "VALUE")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 3) == (file != "") {
			return usage(cmd, "give VALUE or --file, and not both")
		}
		value := []byte(args[len(args)-1])
		if file != "" {
			var err error
			if value, err = c.readBounded(file, maxValueFile); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			v, err := client.PutValue(ctx, c.app, args[0], args[1], value, expect())
			if err != nil {
				return err
			}
			return c.printOne(valueColumns, valueRecord(v))
		})(cmd, args)
	}
	return cmd
}

func (c *cli) kvList() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "list [BUCKET]",
		Short: "List the buckets of an app, or the entries of one",
		Example: `  wheelwork kv list
  wheelwork kv list rates --prefix e`,
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin so")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return arguments("BUCKET")(cmd, args)
	}
	cmd.RunE = c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		if len(args) == 1 {
			return c.printAll(valueColumns, records(client.Values(ctx, c.app, args[0], prefix), valueRecord))
		}
		all, err := client.Buckets(ctx, c.app)
		if err != nil {
			return err
		}
		c.note("%s of %s", bytesText(all.GetBytes()), bytesText(all.GetQuota()))
		return c.printAll([]string{"bucket", "entries", "size"}, func(yield func(record, error) bool) {
			for _, b := range all.GetBuckets() {
				r := message(b, func() []cell {
					return []cell{{b.GetName(), none}, {strconv.FormatInt(b.GetEntries(), 10), none}, {bytesText(b.GetBytes()), none}}
				})
				if !yield(r, nil) {
					return
				}
			}
		})
	})
	return cmd
}

func (c *cli) kvDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete BUCKET KEY",
		Short: "Delete a value",
		Args:  arguments("BUCKET", "KEY"),
	}
	expect := addExpect(cmd)
	cmd.RunE = c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		if err := client.DeleteValue(ctx, c.app, args[0], args[1], expect()); err != nil {
			return err
		}
		c.note("%s/%s: deleted", args[0], args[1])
		return nil
	})
	return cmd
}

// sizeOf parses a size in the notation of people.
func sizeOf(text string) (int64, error) {
	n := strings.TrimSpace(text)
	unit := 1.0
	for _, u := range []struct {
		suffix string
		bytes  float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}} {
		if rest, ok := strings.CutSuffix(n, u.suffix); ok {
			n, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(n, 64)
	if err != nil || !(v > 0) || v*unit > math.MaxInt64/2 {
		return 0, errors.New("want a size, as 512KiB, 64MiB or 1GiB")
	}
	return int64(v * unit), nil
}
