package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/store"
)

// Source is what a backup is made of.
type Source struct {
	ID, Group string
	Dir       *datadir.Dir // nil: the backup has no keys and no settings
	Queue     *queue.Queue // nil: the backup has no ingress
	Parts     []Part       // at least one
	// Rows reads the rows of the cluster's table that outlive servers; nil: there are
	// none.
	Rows func(context.Context) (map[string]string, error)
}

// Part is one store, with the modules of its apps.
type Part struct {
	Partition string         // the partition; "" if the store has no name
	Prefix    string         // the prefix of its files in the backup: "", or units/NAME/
	Modules   *modules.Store // nil: copy writes them, or the backup has none
	Copy      CopyFunc
}

// CopyFunc copies a store as store.Copy does, at a moment at which the store holds
// everything that was acknowledged before the call.
type CopyFunc func(ctx context.Context, begin func(store.Copied) error, create func(name string) (io.Writer, error)) error

// CopyOf copies a store of this process, after settle has returned.
func CopyOf(st *store.Store, settle func(context.Context) error) CopyFunc {
	return func(ctx context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
		if err := settle(ctx); err != nil {
			return err
		}
		_, err := st.Copy(ctx, begin, func(name string, _ int64) (io.Writer, error) { return create("store/" + name) })
		return err
	}
}

// Write writes a backup, which holds everything that was acknowledged before the call. It
// notes the position of the ingress before it copies the stores: a command that passes
// from the ingress to a store meanwhile is in both, and is applied once, as after a crash
// between the two. With [KeysOnly] it writes an export of keys.
func (s *Source) Write(ctx context.Context, w io.Writer, keys Keys) (sum backup.Summary, err error) {
	if keys == KeysOnly {
		return s.writeExport(w)
	}
	var waiting *queue.Copy
	if s.Queue != nil {
		waiting = s.Queue.Copy()
		defer waiting.Close()
	}
	var b *backup.Writer
	var placed Placement
	if s.Rows != nil {
		if placed.Rows, err = s.Rows(ctx); err != nil {
			return sum, err
		}
	}
	for _, p := range s.Parts {
		begin := func(c store.Copied) (err error) {
			placed.Units = append(placed.Units, placedPartition{p.Partition, c.Applied})
			if b != nil {
				return nil
			}
			info := backup.Info{
				MadeAt: time.Now().UTC().Truncate(time.Second), Version: version.String(),
				Server: s.ID, Group: s.Group, Applied: c.Applied, Bytes: c.Bytes + s.moduleBytes(), Modules: p.Modules != nil,
			}
			if len(s.Parts) > 1 {
				info.Units, info.Modules = len(s.Parts), true
			}
			b, err = backup.NewWriter(w, info)
			return err
		}
		err = p.Copy(ctx, begin, func(name string) (io.Writer, error) { return b.Create(p.Prefix + name) })
		if err == nil {
			err = p.writeModules(ctx, b)
		}
		if err != nil {
			break
		}
	}
	if err == nil && len(s.Parts) > 1 {
		err = s.writePlacement(ctx, b, placed)
	}
	if err == nil && waiting != nil {
		err = writeIngress(b, waiting)
	}
	if err == nil && s.Dir != nil {
		err = s.writeFiles(b, "", settingFiles)
	}
	if err == nil && s.Dir != nil && keys == KeysIncluded {
		err = s.writeFiles(b, "", keyNames())
	}
	if err != nil {
		return sum, fmt.Errorf("make a backup: %w", err)
	}
	return b.Close()
}

func (s *Source) moduleBytes() (n int64) {
	for _, p := range s.Parts {
		if p.Modules == nil {
			continue
		}
		all, err := p.Modules.List()
		if err != nil {
			return n // the number is for a progress bar; reading the modules reports the error
		}
		for _, m := range all {
			n += m.Bytes
		}
	}
	return n
}

// writeModules must follow the copy of the store: by then the modules that the store
// names are on disk.
func (p *Part) writeModules(ctx context.Context, b *backup.Writer) error {
	if p.Modules == nil {
		return nil
	}
	return EachModule(ctx, p.Modules, func(name string, code []byte) error { return writePiece(b, p.Prefix+name, code) })
}

// EachModule calls write with the code of each module and the name that it has in a
// backup.
func EachModule(ctx context.Context, from *modules.Store, write func(name string, code []byte) error) error {
	all, err := from.List()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Digest == "" {
			continue // left by an interrupted write
		}
		code, err := from.Get(m.Digest)
		switch {
		case errors.Is(err, modules.ErrNotFound):
			continue // garbage-collected meanwhile: nothing refers to it
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := write("modules/"+strings.TrimPrefix(m.Digest, "sha256:"), code); err != nil {
			return err
		}
	}
	return nil
}

// writePlacement must follow the copies of the partitions, so that apps placed meanwhile
// are included. An app or slot that was placed before must not have moved, or the copies
// of two partitions would not belong together.
func (s *Source) writePlacement(ctx context.Context, b *backup.Writer, p Placement) error {
	before := p.Rows
	if s.Rows != nil {
		var err error
		if p.Rows, err = s.Rows(ctx); err != nil {
			return err
		}
	}
	for key, was := range before {
		if is, there := p.Rows[key]; !there || is != was {
			return status.Errorf(codes.Unavailable, "an app or a slot moved during the backup (%s): make the backup again", key)
		}
	}
	for key := range p.Rows {
		// A new app is in one partition only. A slot that moved for the first time may be
		// in two of the copies, or in none.
		if _, there := before[key]; !there && s.Rows != nil && strings.HasPrefix(key, cluster.RowSlot) {
			return status.Errorf(codes.Unavailable, "a slot moved for the first time during the backup (%s): make the backup again", key)
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if p.Splits() {
		if err := writePiece(b, splitFile, []byte("form 2\n")); err != nil {
			return err
		}
	}
	return writePiece(b, placementFile, text)
}

func writePiece(b *backup.Writer, name string, content []byte) error {
	w, err := b.Create(name)
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}

func writeIngress(b *backup.Writer, c *queue.Copy) error {
	w, err := b.Create(fmt.Sprintf("ingress/%020d", c.First()))
	if err != nil {
		return err
	}
	var buf []byte
	return c.Each(func(e mq.Entry) error {
		buf = backup.AppendRecord(buf[:0], backup.Record{Queue: e.Queue, Type: e.Type, Body: e.Body})
		_, err := w.Write(buf)
		return err
	})
}

// writeFiles writes the files of the data directory that exist.
func (s *Source) writeFiles(b *backup.Writer, prefix string, names []string) error {
	for _, name := range names {
		content, err := os.ReadFile(s.Dir.Join(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = writePiece(b, prefix+name, content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
