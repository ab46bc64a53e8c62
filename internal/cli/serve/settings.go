package serve

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/wheelworkhq/wheelwork/internal/cli/config"
)

// effect says when a change of a setting takes effect. The zero value is at the next restart.
type effect struct {
	reload bool // at a reload
	file   bool // the setting names a file, whose content belongs to the setting
	fixed  bool // at a reload, unless the setting appears or disappears: that takes a restart
}

var (
	restart     = effect{}
	restartFile = effect{file: true}
	reload      = effect{reload: true}
	reloadFile  = effect{reload: true, file: true}
	renewed     = effect{reload: true, file: true, fixed: true}
)

// effects has every setting of dev, server, nameserver and host. The table in docs/install.md
// says the same.
var effects = map[string]effect{
	"token-file": reloadFile, "server-token-file": reloadFile,
	// A process with TLS does not go on without, nor the other way round.
	"tls-cert": renewed, "tls-key": renewed, "ca-cert": renewed,
	"tls": restart, "certificate-life": restart, "join-token": restart, "join-server": restart,
	"log-level":  reload,
	"http-allow": reload, "http-allow-private": reload,
	"max-body": reload, "max-inflated": reload, "min-body-rate": reload, "max-streams": reload, "max-connections": reload,
	"max-connections-per-address": reload, "trusted-proxy": reload, "max-streams-per-app": reload, "max-streams-per-caller": reload,
	"upload-size": reload, "upload-body": reload, "upload-functions": reload, "upload-locals": reload,
	"backup-recipient": reload,

	// A backup that has begun belongs to them.
	"backup-dir": restart, "backup-at": restart, "backup-keep": restart,

	// A partition takes it when it opens.
	"max-apps": restart,

	// A change is remembered in the data directory.
	"legacy-tokens": restart,

	// Cookies that browsers have and the certificate of the server belong to it.
	"public-url": restart,

	// Sign-ins that have begun need the provider to which the browser went.
	"oidc-issuer": restart, "oidc-client-id": restart, "oidc-client-secret-file": restartFile, "oidc-name-claim": restart,
	"oidc-groups-claim": restart, "oidc-scope": restart, "oidc-title": restart,

	// Channels are opened with them.
	"alert-command": restart, "egress-allow": restart,

	// Sessions that have begun belong to the name in the header.
	"auth-proxy-header": restart, "auth-proxy-groups-header": restart,

	// gRPC takes these once.
	"max-header": restart, "idle-timeout": restart,

	"advertise": restart, "data": restart, "listen": restart, "metrics-listen": restart, "name": restart, "nameserver": restart, "pprof": restart,
	"ready-file": restart, "server": restart, "zone": restart, "capacity": restart, "label": restart, "apps": restart, "sample": restart,
	"color": restart, "output": restart, "log-format": restart,
	"log-writer": restart, "sync": restart, "retain-runs": restart, "retain-logs": restart, "retain-dead-letters": restart,
	"secret-key-file": reloadFile, "new-secret-key": restart,
	"slots": restart, "max-sleeping": restart, "module-cache": restart, "compile-cache": restart, "guest-memory": restart,
	"dir": restart, "dir-apps": restart, "sandbox": restart, "trusted-key": restart, "plugins": restartFile, "commands": restartFile,
	"cluster": restart, "cluster-listen": restart, "cluster-peer": restart, "cluster-advertise": restart, "cluster-peer-advertise": restart,
	"cluster-members": restart, "join": restart, "group": restart, "units": restart, "split-rate": restart, "max-hosts-per-sub-app": restart,
	// etcd reads the files of a renewed certificate at its next connection.
	"etcd-endpoints": restart, "etcd-cert": restart, "etcd-key": restart, "etcd-ca": restartFile,
}

// setting is the value of a setting and, if it names a file, the digest of its content.
type setting struct {
	value   string
	content [sha256.Size]byte
}

// snapshot has the settings of a process by name, at one time. A file that no setting names has
// its path as the name.
type snapshot map[string]setting

// maxContent bounds the bytes that are read of a file to compare it.
const maxContent = 4 << 20

// snapshotOf reads the settings and the files that they name.
func snapshotOf(settings []config.Setting) snapshot {
	s := snapshot{}
	for _, x := range settings {
		now := setting{value: x.Value}
		if effects[x.Key].file {
			now.content = digest(x.Value)
		}
		s[x.Key] = now
	}
	return s
}

// addFiles reads files that no setting names.
func (s snapshot) addFiles(paths []string) {
	for _, path := range paths {
		s[path] = setting{path, digest(path)}
	}
}

// digest returns the digest of a file; that of nothing if it cannot be read, which the reader of
// its content reports.
func digest(path string) (sum [sha256.Size]byte) {
	h := sha256.New()
	if f, err := os.Open(path); path != "" && err == nil {
		_, err = io.Copy(h, io.LimitReader(f, maxContent))
		f.Close() //nolint:errcheck // only read
		if err != nil {
			h.Reset()
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// compare returns the names of the settings that a reload puts into effect, and a sentence for
// each other one that has changed.
func compare(now, next snapshot) (took, waiting []string) {
	for _, name := range slices.Sorted(maps.Keys(next)) {
		from, to := now[name], next[name]
		e, known := effects[name]
		switch {
		case from == to:
		case !known, // a file that no setting names
			e.reload && !(e.fixed && (from.value == "") != (to.value == "")):
			took = append(took, name)
		case from.value == to.value:
			waiting = append(waiting, fmt.Sprintf("the file of setting %s changed, %s; restart to apply it", name, to.value))
		default:
			waiting = append(waiting, fmt.Sprintf("setting %s changed from %q to %q; restart to apply it", name, from.value, to.value))
		}
	}
	return took, waiting
}
