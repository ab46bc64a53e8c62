package offline

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/store"
)

// StoreSet are the stores in the data directory of a stopped server: its own, and
// those of the further partitions of a cluster. A store is read when a part of it is
// first verified.
type StoreSet struct {
	data  string
	names []string // of their directories: "", or units/NAME
	read  map[string][]store.Part
}

// partNames are the names of the parts that [store.Verify] returns.
var partNames = []string{"view", "snapshots", "history", "keys", "revisions", "audit", "logs"}

// Stores finds the stores in a directory. There may be none.
func Stores(data string) *StoreSet {
	c := &StoreSet{data: data, read: map[string][]store.Part{}}
	if _, err := os.Stat(filepath.Join(data, "store")); err == nil {
		c.names = append(c.names, "")
	}
	partitions, err := datadir.Partitions(data)
	if err != nil {
		return c
	}
	for _, partition := range partitions {
		c.names = append(c.names, path.Join(datadir.PartitionsDir, partition))
	}
	return c
}

// Names returns the names of the stores: "" is that of a standalone server, or of the
// first partition of a cluster, units/NAME that of a further partition.
func (c *StoreSet) Names() []string { return c.names }

// Dir returns the directory of a store.
func (c *StoreSet) Dir(name string) string {
	return filepath.Join(c.data, filepath.FromSlash(name), "store")
}

// Parts returns the names of what [StoreSet.Verify] reads.
func (c *StoreSet) Parts() (parts []string) {
	for _, name := range c.names {
		for _, part := range partNames {
			parts = append(parts, path.Join(name, part))
		}
	}
	return parts
}

// Verify reads a part of a store and changes nothing. For a standalone server it also
// compares the projection, which is the part view, with the journal.
func (c *StoreSet) Verify(part string) (store.Part, error) {
	name := strings.TrimSuffix(path.Dir(part), ".")
	parts, ok := c.read[name]
	if !ok {
		var err error
		if parts, err = c.verify(name); err != nil {
			return store.Part{}, err
		}
		c.read[name] = parts
	}
	for _, p := range parts {
		if p.Name == path.Base(part) {
			return p, nil
		}
	}
	return store.Part{}, fs.ErrNotExist
}

func (c *StoreSet) verify(name string) ([]store.Part, error) {
	parts, reach, err := store.Verify(c.Dir(name))
	if err != nil || name != "" { // the journals of further partitions are in etcd
		return parts, err
	}
	report, err := mq.Verify(filepath.Join(c.data, "journal"), nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	span := store.Journal{First: max(report.First, 1), Next: max(report.Next, 1)}
	if datadir.IsClustered(c.data, span) {
		return parts, nil
	}
	var mismatch error
	if reach.Unread == nil {
		mismatch = datadir.CheckSpan(c.data, span, reach.View)
	} else {
		mismatch = datadir.Explain(c.data, reach.Check(span))
	}
	if mismatch != nil {
		parts[0].Damage = append(parts[0].Damage, store.Damage{File: "view", Why: mismatch.Error()})
	}
	return parts, nil
}
