package offline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/backup/planned"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

// Drill opens a restored data directory as a server would: it verifies each store, folds its
// rows to the state of a partition, and looks for the code of every module that the state names.
// It holds the state of one partition at a time in memory. The directory is only good for a drill
// afterwards.
func Drill(ctx context.Context, data string, log *slog.Logger) (found planned.Found, err error) {
	set := Stores(data)
	for _, name := range set.Names() {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		if err := drill(set, name, &found, log); err != nil {
			if name != "" {
				err = fmt.Errorf("the partition %s: %w", filepath.Base(name), err)
			}
			return found, err
		}
	}
	return found, nil
}

func drill(set *StoreSet, name string, found *planned.Found, log *slog.Logger) (err error) {
	parts, _, err := store.Verify(set.Dir(name))
	if err != nil {
		return err
	}
	for _, p := range parts {
		if len(p.Damage) > 0 {
			return fmt.Errorf("the store is damaged, in its part %s: %v", p.Name, p.Damage[0])
		}
	}
	st, err := store.Open(store.Config{Dir: set.Dir(name), Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	dir := filepath.Join(set.data, filepath.FromSlash(name))
	code, err := modules.Open(filepath.Join(dir, "modules"))
	if err != nil {
		return err
	}
	l, err := mq.Open(mq.Config{Dir: filepath.Join(dir, "drill-journal"), First: st.Applied() + 1, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	standby, err := sched.Follow(sched.Config{
		ID: "drill", Journal: local.New(l), Store: st, Modules: code, Logger: log,
		Inspect: func(context.Context, *modules.Upload, string) (sched.ModuleInfo, error) {
			return sched.ModuleInfo{}, errors.New("a drill takes no uploads")
		},
	})
	if err != nil {
		return err
	}
	at, err := standby.CatchUp()
	if err != nil {
		return err
	}
	if len(at.Missing) > 0 {
		return fmt.Errorf("the code of %d modules is missing, among them %s", len(at.Missing), at.Missing[0])
	}
	jobs, live := standby.Size()
	stored, err := code.List()
	if err != nil {
		return err
	}
	found.Partitions++
	found.Jobs += jobs
	found.Live += live
	found.Modules += int64(len(stored))
	return st.Since(0, func([]byte) error {
		found.Ended++
		return nil
	})
}
