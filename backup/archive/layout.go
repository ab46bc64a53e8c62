package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

var (
	storeFile     = regexp.MustCompile(`^store/(snapshots/[0-9]{10}-[0-9]{2}\.snap|(history|keys|revisions|audit|logs)/[0-9]{20}\.seg)$`)
	moduleFile    = regexp.MustCompile(`^modules/([0-9a-f]{64})$`)
	partitionFile = regexp.MustCompile(`^(units/[^/]+/)(.+)$`)
	ingressFile   = regexp.MustCompile(`^ingress/([0-9]{20})$`)
	exportedFile  = regexp.MustCompile(`^keys/([^/]+)$`)
)

// The files of a backup, by their names in it:
//
//	store/...          the store at one moment: see store.Copy
//	modules/HEX        the code of a module, by its sha256
//	units/NAME/...     store and modules of a further partition, each copied at its own moment
//	placement.json     of a cluster with several partitions: see placement
//	split              if an app is in several partitions: programs that cannot read that refuse this file
//	ingress/SEQUENCE   the records of the ingress queue's log; the name is the sequence of the first one
//	legacy-tokens      if the administrator's token is refused
//	keyFiles           if the backup includes keys
//
// An export of keys has these files alone, as keys/NAME. Programs that look for a backup
// refuse it because of the names.

// settingFiles are the files at the top of a data directory that are no secrets.
var settingFiles = []string{datadir.LegacyFile}

// keyFile is a file with keys at the top of a data directory.
type keyFile struct {
	name    string
	without string // what a data directory without it leads to, for the reader of a message; "": some directories have none
}

// keyFiles are all key files that a backup may include: another one joins here.
var keyFiles = []keyFile{
	{"token", "the server makes another token for the administrator; users and the tokens of `wheelwork token create` are not affected"},
	{"host-token", "the server makes another token for workers: give it to them"},
	{datadir.AuthorityFile, ""},
	{datadir.AuthorityKeyFile, ""},
	{datadir.SealedAuthorityFile, ""},
	{datadir.SecretKeyFile, "the server makes another key, with which it cannot read the secrets that apps have, and names them when it starts: set these again, or bring the key back. If --secret-key-file named it, start the server with that file and nothing is lost"},
}

// maxKeyFile is in bytes.
const maxKeyFile = 1 << 20

func isKeyFile(name string) bool {
	return slices.ContainsFunc(keyFiles, func(k keyFile) bool { return k.name == name })
}

// Missing is a key file that a data directory does not have.
type Missing struct {
	Name    string
	Without string // what that leads to
}

// MissingKeys returns the key files that each data directory has, and that are not in names.
func MissingKeys(names []string) (all []Missing) {
	for _, k := range keyFiles {
		if k.without != "" && !slices.Contains(names, k.name) {
			all = append(all, Missing{k.name, k.without})
		}
	}
	return all
}

const (
	placementFile = "placement.json"
	splitFile     = "split"
)

// Placement describes all partitions of a backup that has several.
type Placement struct {
	Units []placedPartition `json:"units"`
	// Rows are the rows of the cluster's table in etcd that outlive servers. The backup
	// of a stopped data directory has none: there the owner of a partition knows what the
	// partition holds.
	Rows map[string]string `json:"rows,omitempty"`
}

// Splits reports whether an app is, or was, in several partitions.
func (p *Placement) Splits() bool {
	for key := range p.Rows {
		if strings.HasPrefix(key, cluster.RowSlot) || strings.HasPrefix(key, cluster.RowSplit) {
			return true
		}
	}
	return false
}

type placedPartition struct {
	Name    string `json:"name"`
	Applied uint64 `json:"applied"`
}

// ReadPlacement reads the placement that a restore has saved in a data directory. ok is
// false if there is none: the owners of the partitions know their apps.
func ReadPlacement(dir string) (p Placement, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, placementFile))
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, false, fmt.Errorf("read which app is in which partition: %w", err)
	}
	return p, true, nil
}

// RemovePlacement removes the saved placement.
func RemovePlacement(dir string) error {
	if err := os.Remove(filepath.Join(dir, placementFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
