package store

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/node/offline"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/store"
)

func (c *commands) repair() *cobra.Command {
	var data string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "repair [DIR]",
		Short: "Remove damaged parts from the history of a stopped server",
		Long: `Remove damaged and missing parts from the history of runs, the idempotency keys, the
revisions of definitions, audit events and the lines of runs of a stopped server, so
that the rest can be used. The command first shows what will be lost, and asks. For a server of a
cluster it repairs the stores of all partitions.

The original of each file that it changes goes to store/quarantine/ in the data
directory, or to units/NAME/store/quarantine/, and is never deleted. If you have a
copy of the file, restore that instead.

The command does not repair the database: the server rebuilds a damaged one when it
starts.`,
		Example: `  wheelwork store repair /var/lib/wheelwork --dry-run
  wheelwork store repair /var/lib/wheelwork`,
		Args: command.OptionalArgument("DIR"),
	}
	addData(cmd, &data)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be lost")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readDataArgument(cmd, args, &data); err != nil {
			return err
		}
		if err := hasStore(data); err != nil {
			return err
		}
		stores := offline.Stores(data)
		found, err := eachStore(stores, func(dir string) (store.Repaired, error) {
			parts, _, err := store.Verify(dir)
			return store.Repaired{Parts: parts}, err
		})
		if err != nil {
			return process.InUse(data, err)
		}
		if dryRun || found.Sound {
			found.DryRun = dryRun
			return c.printRepaired(found)
		}
		if !yes {
			c.Note("Damaged in %s:\n  %s\nWhat was there is lost with a repair; the originals are kept in quarantine/ in the directory of each store.",
				data, strings.Join(found.Damages, "\n  "))
			if err := command.Confirm(cmd, "Repair it"); err != nil {
				return err
			}
		}
		done, err := eachStore(stores, store.Repair)
		if err != nil {
			return process.InUse(data, err)
		}
		return c.printRepaired(done)
	}
	return cmd
}

// eachStore calls do for each store of a data directory and combines the results.
func eachStore(stores *offline.StoreSet, do func(dir string) (store.Repaired, error)) (all repaired, err error) {
	for _, name := range stores.Names() {
		r, err := do(stores.Dir(name))
		if err != nil {
			return all, err
		}
		one := repairedStore{Name: name, Dir: stores.Dir(name), Damages: append([]string{}, lostParts(name, r.Parts)...), Quarantine: r.Quarantine}
		all.Stores = append(all.Stores, one)
		all.Damages = append(all.Damages, one.Damages...)
	}
	all.Sound = len(all.Damages) == 0
	// The fields that describe one store describe the first one with damage.
	first := all.Stores[max(0, slices.IndexFunc(all.Stores, func(s repairedStore) bool { return len(s.Damages) > 0 }))]
	all.Dir, all.Quarantine = first.Dir, first.Quarantine
	return all, nil
}

// repaired is the result of a repair or of its dry run.
type repaired struct {
	Dir        string          `json:"dir"` // of the first store with damage
	DryRun     bool            `json:"dry_run"`
	Sound      bool            `json:"sound"`      // before: there was nothing to do
	Damages    []string        `json:"damages"`    // in all stores
	Quarantine string          `json:"quarantine"` // in dir; "": no file was touched
	Stores     []repairedStore `json:"stores"`     // of a cluster's server one for each unit
}

// repairedStore is one of them.
type repairedStore struct {
	Name       string   `json:"name"` // "": the server's own, or that of the first unit
	Dir        string   `json:"dir"`
	Damages    []string `json:"damages"`
	Quarantine string   `json:"quarantine"` // in dir; "": no file was touched
}

func (c *commands) printRepaired(r repaired) error {
	result := "repaired"
	switch {
	case r.Sound:
		result = "sound, nothing to do"
	case r.DryRun:
		result = "damaged, not repaired yet"
	}
	r.Damages = append([]string{}, r.Damages...)
	return c.PrintOne([]string{"dir", "result", "damaged", "originals"}, output.Object(r, func() []output.Cell {
		dirs, originals := r.Dir, r.Quarantine
		if len(r.Stores) > 1 {
			dirs, originals = "", ""
			for _, s := range r.Stores {
				dirs += s.Dir + "\n"
				if s.Quarantine != "" {
					originals += filepath.Join(s.Dir, s.Quarantine) + "\n"
				}
			}
		}
		return []output.Cell{{Text: strings.TrimSpace(dirs)}, {Text: result}, {Text: strings.Join(r.Damages, "\n")}, {Text: strings.TrimSpace(originals)}}
	}))
}

// lostParts lists the parts of a store that a repair removes.
func lostParts(name string, parts []store.Part) (lost []string) {
	for _, p := range parts {
		for _, d := range p.Damage {
			if d.Repairable {
				lost = append(lost, fmt.Sprintf("%s: %s", path.Join(name, p.Name), d))
			}
		}
	}
	return lost
}
