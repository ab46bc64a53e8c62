package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// LegacyTokens says whether a server accepts the administrator's token in the file token of its data
// directory, which never expires and belongs to no person. Tokens of machines are not concerned.
type LegacyTokens string

// The values of LegacyTokens. Off is remembered in the data directory.
const (
	LegacyAuto LegacyTokens = ""    // as remembered; off for a new directory of a server that listens beyond loopback
	LegacyOn   LegacyTokens = "on"  // accepted
	LegacyOff  LegacyTokens = "off" // refused

	legacyAlways LegacyTokens = "always" // accepted, whatever is remembered: of a process for one machine
)

// acceptsLegacy decides whether the administrator's token of a data directory is accepted, and
// remembers a refusal. It comes before the token is made.
func acceptsLegacy(d *datadir.Dir, how LegacyTokens, listen string) (bool, error) {
	path := d.Join(datadir.LegacyFile)
	exists := func(path string) (bool, error) {
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	switch how {
	case LegacyOn:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		return true, nil
	case legacyAlways:
		return true, nil
	case LegacyAuto:
		refused, err := exists(path)
		if err != nil || refused {
			return false, err
		}
		had, err := exists(d.Join("token"))
		if err != nil || had || transport.CheckLoopback(listen) == nil {
			return true, err
		}
	case LegacyOff:
	default:
		return false, fmt.Errorf("legacy tokens %q: want on or off", how)
	}
	return false, datadir.WriteFile(path, []byte("off\n"), 0o600)
}
