package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/store"
)

func (c *cli) storeRepair() *cobra.Command {
	var data string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Give up what is damaged in the history of a stopped server",
		Long: `Give up what is damaged or missing in the history of runs, the idempotency keys
and the lines of runs of a stopped server, so that the rest can be used. It says
first what will be lost, and asks.

The original of every file that it touches goes to store/quarantine/ in the data
directory and is never deleted. A copy of the file, if there is one, is better.

The database is not repaired: the server makes a damaged one again when it starts.`,
		Example: `  wheelwork store repair --data /var/lib/wheelwork --dry-run
  wheelwork store repair --data /var/lib/wheelwork`,
		Args: arguments(),
	}
	addData(cmd, &data)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be lost")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := hasStore(data); err != nil {
			return err
		}
		dir := filepath.Join(data, "store")
		parts, _, err := store.Verify(dir)
		if err != nil {
			return inUse(data, err)
		}
		lost := givenUp(parts)
		if dryRun || len(lost) == 0 {
			return c.printStoreRepaired(storeRepaired{Dir: dir, DryRun: dryRun, Sound: len(lost) == 0, Damages: lost})
		}
		if !yes {
			c.note("Damaged in %s:\n  %s\nWhat was there is lost with a repair; the originals are kept in %s.", dir, strings.Join(lost, "\n  "), filepath.Join(dir, "quarantine"))
			if err := c.confirm("Repair it"); err != nil {
				return err
			}
		}
		r, err := store.Repair(dir)
		if err != nil {
			return inUse(data, err)
		}
		return c.printStoreRepaired(storeRepaired{Dir: dir, Damages: givenUp(r.Parts), Quarantine: r.Quarantine})
	}
	return cmd
}

// storeRepaired is what a repair did or would do.
type storeRepaired struct {
	Dir        string   `json:"dir"`
	DryRun     bool     `json:"dry_run"`
	Sound      bool     `json:"sound"` // before: there was nothing to do
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
		return []cell{{r.Dir, none}, {result, none}, {strings.Join(r.Damages, "\n"), none}, {r.Quarantine, none}}
	}))
}

// givenUp lists what a repair gives up.
func givenUp(parts []store.Part) (lost []string) {
	for _, p := range parts {
		for _, d := range p.Damage {
			if d.Repairable {
				lost = append(lost, fmt.Sprintf("%s: %s", p.Name, d))
			}
		}
	}
	return lost
}
