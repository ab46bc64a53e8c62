package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/internal/version"
)

// Keys says whether a backup includes the key files.
type Keys int

// The values of Keys. The zero value leaves them out.
const (
	KeysLeftOut Keys = iota
	KeysIncluded
	KeysOnly // and nothing else: an export of keys
)

// Order has the contents of a backup and its readers.
type Order struct {
	Recipients encryption.Recipients // without any the backup is not encrypted
	Keys       Keys
}

// ErrPlaintextKeys means that a caller wants keys in a backup that is not encrypted, and has
// not accepted that.
var ErrPlaintextKeys = errors.New("keys are written to an encrypted backup only: name a public key of age with --recipient, or the server's with --backup-recipient, or accept with --plaintext-keys that each reader of the file has the keys")

// OrderOf checks the request of a caller. own are the recipients of the server, which apply
// if the caller names none. Keys are included if the backup is encrypted, and otherwise
// only if the caller accepts that they are not.
func OrderOf(req *apiv1.BackupRequest, own encryption.Recipients) (Order, error) {
	named, err := encryption.ParseRecipients(req.Recipients)
	if err != nil {
		return Order{}, err
	}
	o := Order{Recipients: named}
	if !named.Any() {
		o.Recipients = own
	}
	switch req.Keys {
	case apiv1.BackupKeys_BACKUP_KEYS_UNSPECIFIED:
		if o.Recipients.Any() {
			o.Keys = KeysIncluded
		}
	case apiv1.BackupKeys_BACKUP_KEYS_LEFT_OUT:
	case apiv1.BackupKeys_BACKUP_KEYS_INCLUDED:
		o.Keys = KeysIncluded
	case apiv1.BackupKeys_BACKUP_KEYS_ONLY:
		o.Keys = KeysOnly
	default:
		return Order{}, fmt.Errorf("a backup with keys of kind %d is unknown to this server: bring it up to date", req.Keys)
	}
	if o.Keys != KeysLeftOut && !o.Recipients.Any() && !req.PlaintextKeys {
		return Order{}, ErrPlaintextKeys
	}
	return o, nil
}

// Accept is [OrderOf] for a call: its error has a code.
func Accept(req *apiv1.BackupRequest, own encryption.Recipients) (Order, error) {
	o, err := OrderOf(req, own)
	switch {
	case errors.Is(err, ErrPlaintextKeys):
		return o, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return o, status.Error(codes.InvalidArgument, err.Error())
	}
	return o, nil
}

func keyNames() (names []string) {
	for _, k := range keyFiles {
		names = append(names, k.name)
	}
	return names
}

// writeExport writes an export of keys.
func (s *Source) writeExport(w io.Writer) (backup.Summary, error) {
	b, err := backup.NewWriter(w, backup.Info{MadeAt: time.Now().UTC().Truncate(time.Second), Version: version.String(), Server: s.ID, Group: s.Group})
	if err == nil {
		err = s.writeFiles(b, "keys/", keyNames())
	}
	if err != nil {
		return backup.Summary{}, fmt.Errorf("export the keys: %w", err)
	}
	return b.Close()
}

// KeySet is the contents of key files by name.
type KeySet map[string][]byte

// ReadKeys reads the keys of an export of keys, or of a whole backup.
func ReadKeys(ctx context.Context, r io.Reader) (KeySet, error) {
	b, err := backup.NewReader(r)
	if err != nil {
		return nil, err
	}
	set := KeySet{}
	for {
		name, err := b.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if exported := exportedFile.FindStringSubmatch(name); exported != nil {
			name = exported[1]
		}
		if !isKeyFile(name) {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(b, maxKeyFile+1))
		if err != nil {
			return nil, err
		}
		if len(content) > maxKeyFile {
			return nil, fmt.Errorf("%w: its key file %s has more than %d bytes", backup.ErrDamaged, name, maxKeyFile)
		}
		set[name] = content
	}
	if len(set) == 0 {
		return nil, errors.New("it has no keys: give an export that `wheelwork backup --only-keys` has made, or a backup with keys")
	}
	return set, nil
}

// Verified writes a backup to w and reads it back on the way, so that its error means that
// the backup cannot be restored. Of bytes that write has encrypted it returns nothing: the process
// that encrypts them reads them back. progress is as for [Restore].
func Verified(ctx context.Context, w io.Writer, progress func(done, total int64), write func(context.Context, io.Writer) error) (Restored, error) {
	return ReadBack(ctx, w, write, func(ctx context.Context, r io.Reader) (Restored, error) { return checkBack(ctx, r, progress) })
}

// ReadBack writes a backup to w, and gives the same bytes to read on the way. A failed read
// fails the writes after it.
func ReadBack(ctx context.Context, w io.Writer, write func(context.Context, io.Writer) error, read func(context.Context, io.Reader) (Restored, error)) (Restored, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, back := io.Pipe()
	type found struct {
		res Restored
		err error
	}
	checked := make(chan found, 1)
	go func() {
		res, err := read(ctx, r)
		_ = r.CloseWithError(errors.Join(errors.New("the backup cannot be read back"), err)) // writes after the end fail
		checked <- found{res, err}
	}()
	err := write(ctx, io.MultiWriter(w, back))
	_ = back.CloseWithError(err) // nil is its end
	got := <-checked
	if err != nil {
		return got.res, err
	}
	return got.res, got.err
}

func checkBack(ctx context.Context, r io.Reader, progress func(done, total int64)) (Restored, error) {
	in, _, err := encryption.Open(r, encryption.Identities{})
	if errors.Is(err, encryption.ErrEncrypted) {
		_, err = io.Copy(io.Discard, r)
		return Restored{}, err
	}
	if err != nil {
		return Restored{}, err
	}
	return Check(ctx, in, progress)
}
