package store

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
)

// A Loader receives the rows of a store. The load skips the rows of a nil function. A
// value is valid until the function returns. An error ends the load.
type Loader struct {
	Job    func(app, name string, value []byte) error
	Stats  func(app, name string, value []byte) error // of jobs; after all jobs
	Run    func(app string, id [16]byte, value []byte) error
	Module func(app, name, version string, value []byte) error
	Row    func(key string, value []byte) error
}

// Load streams all rows as they are now: modules, jobs, their stats, live runs and small
// rows, each kind in the order of keys. It reads ahead while the functions of l work.
func (s *Store) Load(l Loader) error {
	read, free := make(chan *rows), make(chan *rows, 3)
	for range cap(free) {
		free <- &rows{}
	}
	var abandoned atomic.Bool // the receiver wants no more rows
	failed := make(chan error, 1)
	go func() {
		defer close(read)
		failed <- s.readAhead(l, read, free, &abandoned)
	}()
	var err error
	for r := range read {
		if err == nil {
			if err = r.each(l.row); err != nil {
				abandoned.Store(true)
			}
		}
		free <- r
	}
	if err = cmp.Or(err, <-failed); err != nil {
		return fmt.Errorf("store: load: %w", err)
	}
	return nil
}

// rows are some rows of one kind that were read and not handed to the Loader yet.
type rows struct {
	kind  byte
	bytes []byte
	ends  []int // offsets in bytes: end of a key, of its value, of the next key and so on
}

// rowsBytes is the size in bytes at which rows are handed over.
const rowsBytes = 64 << 10

func (s *Store) readAhead(l Loader, read chan<- *rows, free <-chan *rows, abandoned *atomic.Bool) error {
	return s.db.View(func(txn *badger.Txn) error {
		for _, kind := range []byte{kindModule, kindJob, kindStats, kindRun, kindRow} {
			if !l.wants(kind) {
				continue
			}
			r := (<-free).reset(kind)
			err := scan(txn, []byte{kind}, []byte{kind}, func(key, value []byte) error {
				r.add(key, value)
				if len(r.bytes) >= rowsBytes {
					read <- r
					r = (<-free).reset(kind)
				}
				if abandoned.Load() {
					return errStop
				}
				return nil
			})
			read <- r
			if err != nil || abandoned.Load() {
				return err
			}
		}
		return nil
	})
}

func (r *rows) reset(kind byte) *rows {
	r.kind, r.bytes, r.ends = kind, r.bytes[:0], r.ends[:0]
	return r
}

func (r *rows) add(key, value []byte) {
	r.bytes = append(r.bytes, key...)
	r.ends = append(r.ends, len(r.bytes))
	r.bytes = append(r.bytes, value...)
	r.ends = append(r.ends, len(r.bytes))
}

// each hands the rows to fn in order until fn fails.
func (r *rows) each(fn func(kind byte, key, value []byte) error) error {
	from := 0
	for i := 0; i < len(r.ends); i += 2 {
		mid, to := r.ends[i], r.ends[i+1]
		if err := fn(r.kind, r.bytes[from:mid:mid], r.bytes[mid:to:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (l *Loader) wants(kind byte) bool {
	switch kind {
	case kindModule:
		return l.Module != nil
	case kindJob:
		return l.Job != nil
	case kindStats:
		return l.Stats != nil
	case kindRun:
		return l.Run != nil
	}
	return l.Row != nil
}

// row calls the function for a row.
func (l *Loader) row(kind byte, key, value []byte) error {
	switch kind {
	case kindModule:
		app, name, version, err := parseModuleKey(key)
		if err != nil {
			return err
		}
		return l.Module(app, name, version, value)
	case kindJob:
		app, name, err := parseJobKey(key)
		if err != nil {
			return err
		}
		return l.Job(app, name, value)
	case kindStats:
		app, name, err := parseJobKey(key)
		if err != nil {
			return err
		}
		return l.Stats(app, name, value)
	case kindRun:
		app, id, err := parseRunKey(key)
		if err != nil {
			return err
		}
		return l.Run(app, id, value)
	}
	return l.Row(parseRowKey(key), value)
}

// errStop ends a scan without an error.
var errStop = errors.New("stop")

// scan calls fn for the rows whose key begins with prefix, from the key from on.
func scan(txn *badger.Txn, prefix, from []byte, fn func(key, value []byte) error) error {
	opt := badger.DefaultIteratorOptions
	// Values are stored with their keys. Prefetching them would start a goroutine for
	// each.
	opt.Prefix, opt.PrefetchValues = prefix, false
	it := txn.NewIterator(opt)
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		item := it.Item()
		err := item.Value(func(value []byte) error { return fn(item.Key(), value) })
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Job returns the value of a job.
func (s *Store) Job(app, name string) (value []byte, ok bool, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(jobKey(app, name))
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		ok = true
		value, err = item.ValueCopy([]byte{})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("store: job: %w", err)
	}
	return value, ok, nil
}

// Jobs returns the names of up to limit jobs of an app, in order. The names begin with
// prefix and come after the name after; "" starts at the first page. more reports whether
// there is a next page. The default limit is 50.
func (s *Store) Jobs(app, prefix, after string, limit int) (names []string, more bool, err error) {
	if limit <= 0 {
		limit = 50
	}
	within := jobKey(app, prefix)
	from := within
	if after >= prefix && after != "" {
		from = append(jobKey(app, after), 0) // the next possible name
	}
	err = s.db.View(func(txn *badger.Txn) error {
		return scanKeys(txn, within, from, func(key []byte) error {
			if more = len(names) == limit; more {
				return errStop
			}
			_, name, err := parseJobKey(key)
			names = append(names, name)
			return err
		})
	})
	if err != nil {
		return nil, false, fmt.Errorf("store: jobs: %w", err)
	}
	return names, more, nil
}

// scanKeys is scan without values.
func scanKeys(txn *badger.Txn, prefix, from []byte, fn func(key []byte) error) error {
	opt := badger.DefaultIteratorOptions
	opt.Prefix, opt.PrefetchValues = prefix, false
	it := txn.NewIterator(opt)
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		if err := fn(it.Item().Key()); errors.Is(err, errStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Modules returns all modules of an app, ordered by name and version.
func (s *Store) Modules(app string) (values [][]byte, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		return scan(txn, modulesKey(app), modulesKey(app), func(_, value []byte) error {
			values = append(values, append([]byte{}, value...))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("store: modules: %w", err)
	}
	return values, nil
}

// Rows calls fn, in order, for the small rows whose key is prefix followed by a text from
// from (inclusive) to to (exclusive). An empty bound is no bound. The value is valid
// until fn returns. An error ends the walk and is returned.
func (s *Store) Rows(prefix, from, to string, fn func(key string, value []byte) error) error {
	err := s.db.View(func(txn *badger.Txn) error {
		return scan(txn, rowKey(prefix), rowKey(prefix+from), func(key, value []byte) error {
			k := parseRowKey(key)
			if to != "" && k[len(prefix):] >= to {
				return errStop
			}
			return fn(k, value)
		})
	})
	if err != nil {
		return fmt.Errorf("store: rows: %w", err)
	}
	return nil
}
