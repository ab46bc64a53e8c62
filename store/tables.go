package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
)

// tableReaders is the number of tables checked concurrently, which equals the number that
// badger opens concurrently.
const tableReaders = 3

// checkTables verifies every table of the view in dir before badger opens them. Badger
// opens tables on goroutines of its own, where a panic over a damaged table ends the
// process. checkTables also refuses a view without a manifest: badger creates it before
// any other file, and without it would delete all tables. Badger does not verify the
// tables a second time.
func checkTables(dir string) error {
	tables, err := listTables(dir)
	if err != nil {
		return err
	}
	ids := make(chan uint64)
	found := make(chan error, tableReaders)
	var readers sync.WaitGroup
	for range tableReaders {
		readers.Go(func() {
			var err error
			for id := range ids {
				if err == nil { // after an error the remaining names are drained
					err = checkTable(dir, id, tables[id])
				}
			}
			found <- err
		})
	}
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		ids <- id
	}
	close(ids)
	readers.Wait()
	close(found)
	var errs []error
	for err := range found {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listTables returns the tables in the manifest, none for a missing view.
func listTables(dir string) (map[uint64]badger.TableManifest, error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		left, err := filesEnding(dir, ".sst", ".mem", ".vlog")
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%s is missing in %s, and there is %s: %w", badger.ManifestFilename, dir, left[0], ErrCorrupt)
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	m, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return m.Tables, nil
}

func checkTable(dir string, id uint64, m badger.TableManifest) (err error) {
	name := table.NewFilename(id, dir)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is damaged: %w", name, ErrCorrupt)
		}
	}()
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !hasFooter(content) {
		return fmt.Errorf("%s has no footer: %w", name, ErrCorrupt)
	}
	opened, err := table.OpenInMemoryTable(content, id, &table.Options{Compression: m.Compression, BlockSize: tableBlock, ChkMode: options.NoVerification})
	if err == nil {
		err = opened.VerifyChecksum()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", name, ErrCorrupt, err)
	}
	return nil
}

// hasFooter reports whether a table ends with a footer of badger: index, its length (4),
// checksum, its length (4), big endian. Badger ends the process over some bad footers.
func hasFooter(content []byte) bool {
	const most = 64 // largest size of a checksum, in bytes
	be := binary.BigEndian
	at := len(content) - 4
	if at < 0 {
		return false
	}
	sum := be.Uint32(content[at:])
	if sum == 0 || sum > most {
		return false
	}
	if at -= int(sum) + 4; at < 0 {
		return false
	}
	index := be.Uint32(content[at:])
	return index > 0 && int64(index) < int64(at)
}
