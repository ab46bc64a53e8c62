package main

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/store"
)

func (c *cli) storeRepair() *cobra.Command {
	var data string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "repair [DIR]",
		Short: "Give up what is damaged in the history of a stopped server",
		Long: `Give up what is damaged or missing in the history of runs, the idempotency keys
and the lines of runs of a stopped server, so that the rest can be used. It says
first what will be lost, and asks. Of the server of a cluster it does so in the
stores of all its units.

The original of every file that it touches goes to store/quarantine/ in the data
directory, or in units/NAME/store/quarantine/, and is never deleted. A copy of the
file, if there is one, is better.

The database is not repaired: the server makes a damaged one again when it starts.`,
		Example: `  wheelwork store repair /var/lib/wheelwork --dry-run
  wheelwork store repair /var/lib/wheelwork`,
		Args: dataArgument,
	}
	addData(cmd, &data)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be lost")
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
			return inUse(data, err)
		}
		if dryRun || found.Sound {
			found.DryRun = dryRun
			return c.printStoreRepaired(found)
		}
		if !yes {
			c.note("Damaged in %s:\n  %s\nWhat was there is lost with a repair; the originals are kept in quarantine/ in the directory of each store.",
				data, strings.Join(found.Damages, "\n  "))
			if err := c.confirm("Repair it"); err != nil {
				return err
			}
		}
		done, err := eachStore(stores, store.Repair)
		if err != nil {
			return inUse(data, err)
		}
		return c.printStoreRepaired(done)
	}
	return cmd
}

// eachStore does something with each store of a data directory and puts together what
// that found.
func eachStore(stores *offline.StoreSet, do func(dir string) (store.Repaired, error)) (all storeRepaired, err error) {
	for _, name := range stores.Names() {
		r, err := do(stores.Dir(name))
		if err != nil {
			return all, err
		}
		one := repairedStore{Name: name, Dir: stores.Dir(name), Damages: append([]string{}, givenUp(name, r.Parts)...), Quarantine: r.Quarantine}
		all.Stores = append(all.Stores, one)
		all.Damages = append(all.Damages, one.Damages...)
	}
	all.Sound = len(all.Damages) == 0
	// The fields that describe one store describe the first one with damage.
	first := all.Stores[max(0, slices.IndexFunc(all.Stores, func(s repairedStore) bool { return len(s.Damages) > 0 }))]
	all.Dir, all.Quarantine = first.Dir, first.Quarantine
	return all, nil
}

// storeRepaired is what a repair did or would do.
type storeRepaired struct {
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

func (c *cli) printStoreRepaired(r storeRepaired) error {
	result := "repaired"
	switch {
	case r.Sound:
		result = "sound, nothing to do"
	case r.DryRun:
		result = "damaged, not repaired yet"
	}
	r.Damages = append([]string{}, r.Damages...)
	return c.printOne([]string{"dir", "result", "damaged", "originals"}, object(r, func() []cell {
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
		return []cell{{strings.TrimSpace(dirs), none}, {result, none}, {strings.Join(r.Damages, "\n"), none}, {strings.TrimSpace(originals), none}}
	}))
}

// givenUp lists what a repair gives up of a store.
func givenUp(name string, parts []store.Part) (lost []string) {
	for _, p := range parts {
		for _, d := range p.Damage {
			if d.Repairable {
				lost = append(lost, fmt.Sprintf("%s: %s", path.Join(name, p.Name), d))
			}
		}
	}
	return lost
}
