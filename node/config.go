package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/authority"
	"github.com/wheelworkhq/wheelwork/access/oidc"
	"github.com/wheelworkhq/wheelwork/backup/planned"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/verifier"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/store"
)

// ServerConfig configures a process that is a server.
type ServerConfig struct {
	Data       string // default "wheelwork-data"
	Listen     string // default 127.0.0.1:7700
	Advertise  string // host:port at which others reach it; default: the address on which it listens
	Nameserver string // host:port, several with commas in a cluster; default: the server is its own nameserver
	TokenFile  string // file with the token of hosts; "": no host joins
	// ServerTokenFile holds the token of nameserver and servers; "": they use that of
	// hosts, on this machine only.
	ServerTokenFile string
	CACert          string // to verify the nameserver; "": no TLS towards it
	ReadyFile       string // written when ready; "": none
	Certificates    CertificatesConfig
	SecretKey       string // file with the key that seals secrets; default secret.key in Data, made if missing
	// NewSecretKey starts a server even if secrets were sealed with another key.
	NewSecretKey bool
	// BackupRecipients are public keys of age, for which the server encrypts backups whose
	// callers name none.
	BackupRecipients []string
	Backups          BackupsConfig // which backups it makes by itself
	Etcd             EtcdConfig
	Cluster          ClusterConfig
	Placement

	Writer string        // how the logs are written: auto (default), pwrite, direct or mmap
	Sync   mq.SyncPolicy // what an acknowledgement means; default always

	Retain Retention

	Verifier verifier.Config // the upload verifier; its zero value works in this process

	Limits  transport.Limits    // on what callers may take
	MaxApps int                 // bound of the apps of each partition; default 1 000
	Streams access.StreamLimits // on the open streams of an app and of a caller

	Logger *slog.Logger
	Ready  func(Ready) // called when ready; may be nil
	Reload <-chan Reload[ServerConfig]

	fail context.CancelCauseFunc // ends the server

	auditEvery time.Duration // how often refused calls become audit events, and ends of audit logs are anchored; 0: every minute, and every 10 s

	People PeopleConfig // how people sign in
	Alerts AlertsConfig // what messages of alerts may reach
}

// BackupsConfig says which backups a server makes by itself.
type BackupsConfig struct {
	Dir  string           // the directory; "": it makes none
	At   planned.Schedule // when; its zero value: at a call only
	Keep int              // backups that stay in the directory; default 7
}

// Placement says where a server is, and how much it takes.
type Placement struct {
	// Zone is where the server is. A partition prefers servers in the zone of its hosts,
	// which is their label "zone".
	Zone string
	// Capacity is relative to the cluster's other servers. Default: the number of its
	// processors.
	Capacity float64
}

// CertificatesConfig says which certificates a server shows and signs.
type CertificatesConfig struct {
	Cert, Key string // files with the certificate for browsers and programs, and its key; "": there is none
	// TLS says when the server serves with TLS without Cert, with a certificate of its own
	// authority. "" and "auto": beyond this machine; "on": always; "off": never; "both": always, and
	// without TLS too, on this machine.
	TLS string
	// JoinToken, or "@" and the name of a file with it, lets a server join a cluster at its first start, by the server
	// at the address JoinServer, several with commas. It gets a certificate and the keys of the secrets.
	JoinToken  string
	JoinServer string
	// Life is how long the certificates of machines are valid; default 24 hours. Servers of a cluster should
	// have the same.
	Life time.Duration
}

func (c *CertificatesConfig) check() error {
	c.Life = cmp.Or(c.Life, authority.DefaultLife)
	if !slices.Contains([]string{"", "auto", "on", "off", "both"}, c.TLS) {
		return fmt.Errorf("--tls %q: want auto, on, off or both", c.TLS)
	}
	if err := authority.CheckLife(c.Life); err != nil {
		return fmt.Errorf("--certificate-life: %w", err)
	}
	return nil
}

// secure reports whether the server serves with TLS.
func (cfg *ServerConfig) secure() bool {
	return cfg.Certificates.Cert != "" || cfg.Certificates.TLS == "on" || cfg.both() || cfg.Certificates.TLS != "off" && transport.CheckLoopback(cfg.Listen) != nil
}

// both reports whether the server serves clients with TLS and clients without.
func (cfg *ServerConfig) both() bool { return cfg.Certificates.TLS == "both" }

// PeopleConfig says how people sign in to a server.
type PeopleConfig struct {
	// LegacyTokens says whether the administrator's token in the data directory is accepted.
	LegacyTokens LegacyTokens
	// PublicURL is the address at which people reach this installation, for example that of a proxy:
	// https, or http on this machine, see [PublicOrigin]. Default: that of the listener.
	PublicURL string
	// Setup is called once with the address of the page on which a visitor makes the first
	// administrator, if there is none. nil: there is no such page.
	Setup func(link string)
	// OIDC is the provider that signs people in. Without an issuer there is none. Without a callback it
	// is a page of PublicURL.
	OIDC oidc.Config
	// OIDCSecretFile has the secret of this installation at the provider; "": it is in OIDC, or there is
	// none.
	OIDCSecretFile string
	// AuthProxy says how an authenticating proxy names people. It needs trusted proxies in the limits.
	AuthProxy AuthProxy
}

// Retention is how long a server keeps ended runs, logs and dead letters.
type Retention struct {
	Runs        time.Duration // ended runs after their end; default 7 days
	Logs        time.Duration // lines of runs after they were stored; default 7 days
	DeadLetters time.Duration // dead letters after they became that; default for ever
}

// DefaultRetention is the default of Retention.Runs and Retention.Logs, and MinRetention
// the shortest one.
const (
	DefaultRetention = 7 * 24 * time.Hour
	MinRetention     = time.Minute
)

func (r Retention) ofStore() store.Retention {
	return store.Retention{Runs: cmp.Or(r.Runs, DefaultRetention), Logs: cmp.Or(r.Logs, DefaultRetention)}
}
