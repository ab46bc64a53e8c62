package offline

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

// recoveryFor is how long a token of Recover is valid.
const recoveryFor = time.Hour

// Recover makes a token with which its caller is an administrator for an hour, and stores its digest in
// the data directory of a stopped server. The server accepts it from its next start.
func Recover(dir string, now time.Time) (token string, until time.Time, err error) {
	if _, err := os.Stat(filepath.Join(dir, "server-id")); errors.Is(err, fs.ErrNotExist) {
		return "", until, fmt.Errorf("%s is not the data directory of a server: name it with --data", dir)
	} else if err != nil {
		return "", until, err
	}
	d, err := datadir.Open(dir, datadir.ServerForm)
	if err != nil {
		return "", until, err
	}
	defer d.Close() //nolint:errcheck // it was only locked
	if token, err = access.NewToken(rand.Reader); err != nil {
		return "", until, err
	}
	until = now.Add(recoveryFor)
	return token, until, d.WriteRecovery(datadir.Recovery{Digest: access.Digest(token), Until: until})
}
