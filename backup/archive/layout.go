package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

var (
	storeFile     = regexp.MustCompile(`^store/(snapshots/[0-9]{10}-[0-9]{2}\.snap|(history|keys|revisions|audit|logs)/[0-9]{20}\.seg)$`)
	moduleFile    = regexp.MustCompile(`^modules/([0-9a-f]{64})$`)
	partitionFile = regexp.MustCompile(`^(units/[^/]+/)(.+)$`)
	ingressFile   = regexp.MustCompile(`^ingress/([0-9]{20})$`)
)

// The files of a backup, by their names in it:
//
//	store/...          the store at one moment: see store.Copy
//	modules/HEX        the code of a module, by its sha256
//	units/NAME/...     store and modules of a further partition, each copied at its own moment
//	placement.json     of a cluster with several partitions: see placement
//	split              if an app is in several partitions: programs that cannot read that refuse this file
//	ingress/SEQUENCE   the records of the ingress queue's log; the name is the sequence of the first one
//	token, host-token  of the administrator and of workers
//	legacy-tokens      if the administrator's token is refused
//	secret.key         seals secrets; absent if the operator keeps it elsewhere
//
// keptFiles are those that a server keeps at the top of its data directory.
var keptFiles = []string{"token", "host-token", datadir.LegacyFile, datadir.SecretKeyFile}

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
