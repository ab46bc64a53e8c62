package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// SecretKeyFile holds the key that seals secrets, unless the operator stores it elsewhere.
	SecretKeyFile = "secret.key"
	// AuthorityFile has the certificate of the authority that signs those of machines, and AuthorityKeyFile
	// its key, if the server is not in a cluster. A server of a cluster has both in SealedAuthorityFile, sealed with
	// the keys of the secrets: it needs a certificate before it reaches etcd, where the authority is too.
	AuthorityFile       = "ca.crt"
	AuthorityKeyFile    = "ca.key"
	SealedAuthorityFile = "ca.sealed"
	// KeylessFile is in a directory that was restored from a backup without the key of its
	// secrets. A server starts there although it cannot read them.
	KeylessFile = "restored-without-key"
	// LegacyFile is in a directory whose administrator's token (the file token) is refused.
	LegacyFile = "legacy-tokens"
	// BackupsFile has the state of the backups that a server makes by itself. A server of a
	// cluster keeps that in etcd.
	BackupsFile = "backups.json"
	// DrillDir is where a server restores its own encrypted backups to try them.
	DrillDir = "backup-drill"
	// PartitionsDir has one directory for each partition but the first.
	PartitionsDir = "units"
)

// Partitions returns the names of the further partitions whose stores are in a data
// directory, in the order of their numbers.
func Partitions(dir string) (names []string, err error) {
	found, err := filepath.Glob(filepath.Join(dir, PartitionsDir, "*", "store"))
	for _, f := range found {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	slices.SortFunc(names, func(a, b string) int { // .2 before .10
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return names, err
}

// rebuildRequest is the file in the directory of a partition's store that asks the next
// start to rebuild the projection. Whether that loses something shows only the journal,
// which is in etcd.
const rebuildRequest = "rebuild"

// acceptsLoss is the content of that file if the operator accepts that records are lost.
const acceptsLoss = "accept-loss"

// RequestRebuild asks the next start to rebuild the projection of the store in a
// directory.
func RequestRebuild(store string, acceptLoss bool) error {
	text := ""
	if acceptLoss {
		text = acceptsLoss
	}
	return WriteFile(filepath.Join(store, rebuildRequest), []byte(text+"\n"), 0o600)
}

// RebuildRequested reports whether an operator requested a rebuild of the projection of a
// store, and whether the operator accepts that records are lost. done removes the request.
func RebuildRequested(store string) (requested, acceptLoss bool, done func() error, err error) {
	path := filepath.Join(store, rebuildRequest)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil, nil
	}
	return err == nil, strings.TrimSpace(string(text)) == acceptsLoss, func() error { return os.Remove(path) }, err
}

// IngressSegment is the size of a segment of the ingress, in bytes. It is smaller than a
// segment of the journal, because most servers have little in their ingress.
const IngressSegment = 16 << 20
