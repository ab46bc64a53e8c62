package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/node/certificates"
)

// This file gives a server its certificate: before its member of etcd starts, which may need one, and then while the server runs.

// serverCertificate is the certificate of a server.
type serverCertificate struct {
	data *datadir.Dir
	id   string // of the server
	own  *transport.Machine
	of   *certificates.Server
}

// openCertificate opens the certificate of a server with TLS. A server with a join token joins first. If the member of
// etcd in the server needs a certificate, cfg names its files then.
func openCertificate(ctx context.Context, d *datadir.Dir, cfg *ServerConfig, log *slog.Logger) (*serverCertificate, error) {
	id, err := datadir.Identity(d.Join("server-id"), "srv-")
	if err != nil {
		return nil, err
	}
	if cfg.CACert == "" && cfg.Certificates.Cert == "" && !cfg.both() {
		cfg.CACert = d.Join(datadir.AuthorityFile)
	}
	s := &serverCertificate{data: d, id: id, own: &transport.Machine{}}
	c := cfg.Cluster
	names := certificates.Names([]string{cfg.People.PublicURL, cfg.People.OIDC.Callback}, cfg.Listen, cfg.Advertise, c.Listen, c.Advertise, c.Peer, c.PeerAdvertise)
	if s.of, err = certificates.OpenServer(d, id, names, s.own, log); err != nil {
		return nil, err
	}
	switch token := cfg.Certificates.JoinToken; {
	case token == "":
	case s.of.HasJoined():
		log.Info("this server has joined before: the join token is not used")
	default:
		if err := s.join(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if !cfg.Cluster.On || cfg.Etcd.Cert != "" || !cfg.certifiesMember() {
		return s, nil
	}
	if err := s.ofMember(cfg); err != nil {
		return nil, err
	}
	cfg.Etcd.Cert, cfg.Etcd.Key, cfg.Etcd.CA = s.of.Files()
	cfg.Etcd.serverName = authority.ServerName
	return s, nil
}

// join joins the cluster of the server that cfg names, and takes over what it grants.
func (s *serverCertificate) join(ctx context.Context, cfg *ServerConfig) error {
	switch {
	case cfg.Certificates.JoinServer == "":
		return errors.New("--join-token needs --join-server HOST:PORT, the address of a server of the cluster")
	case !cfg.Cluster.On && len(cfg.Etcd.Endpoints) == 0:
		return errors.New("--join-token is for a server of a cluster: give --cluster too, or --etcd-endpoints")
	}
	grant, err := s.of.JoinCluster(ctx, hostName("", s.id), cfg.Certificates.JoinServer, cfg.Certificates.JoinToken, secretKeyFile(s.data, *cfg))
	if err != nil {
		return err
	}
	if group := groupOf(cfg); group != grant.Group {
		return fmt.Errorf("the cluster is called %s: give --group %[1]s, instead of %s", grant.Group, group)
	}
	if cfg.Cluster.On && len(cfg.Cluster.Join) == 0 {
		for _, endpoint := range grant.EtcdEndpoints {
			if u, err := url.Parse(endpoint); err == nil {
				cfg.Cluster.Join = append(cfg.Cluster.Join, u.Host)
			}
		}
	}
	return nil
}

// ofMember puts a certificate in effect with which the member of etcd starts.
func (s *serverCertificate) ofMember(cfg *ServerConfig) error {
	keys, err := credential.SecretKeys(secretKeyFile(s.data, *cfg), cfg.SecretKey == "")
	if err != nil {
		return err
	}
	ring := keyring.NewRing(keys)
	a, sealed := certificates.Local(s.data, ring)
	if a == nil { // it has joined, and not reached etcd since
		valid, err := s.of.LoadStored()
		switch _, begun := os.Stat(s.data.Join(memberDir)); {
		case err != nil:
			return err
		case valid && begun != nil && len(cfg.Cluster.Join) == 0:
			return errors.New("this server has joined a cluster, and was stopped before it reached the etcd there: start it again with --join-token and --join-server, or with --join")
		case valid:
			return nil
		}
	}
	switch {
	case sealed != nil && !cfg.NewSecretKey:
		return sealed
	case a == nil && (len(cfg.Cluster.Join) > 0 || len(cfg.Cluster.Members) > 1):
		return errors.New("this server has no certificate for the etcd of the cluster: make a join token with `wheelwork join-token create --kind server` and give it with --join-token and --join-server, or give --etcd-cert, --etcd-key and --etcd-ca. Servers that begin a cluster together need the latter; without them begin with one server")
	case a == nil:
		if a, err = certificates.First(s.data, ring); err != nil {
			return err
		}
	}
	return s.of.Sign(a.WithLife(cfg.Certificates.Life))
}

// run tells the installation of the certificate, and renews it, until ctx ends.
func (s *serverCertificate) run(ctx context.Context, to apiv1.MachinesClient) error {
	return s.of.Run(ctx, func(ctx context.Context, certificate string) error {
		_, err := to.EnrollServer(ctx, &apiv1.EnrollServerRequest{Certificate: certificate, Name: hostName("", s.id)})
		return err
	})
}

// untilRevoked returns an error when an operator has revoked the server, and nil when ctx ends.
func (s *serverCertificate) untilRevoked(ctx context.Context, revoked func(id string) bool) error {
	for wait.For(ctx, revokedEvery) {
		if revoked(s.id) {
			return certificates.ErrRevoked
		}
	}
	return nil
}

// revokedEvery is how often a server looks whether it was revoked.
const revokedEvery = 500 * time.Millisecond

// certifiesMember reports whether the member of etcd shows a certificate of the installation, if the operator gives it
// no other: beyond this machine, and wherever TLS is on.
func (cfg *ServerConfig) certifiesMember() bool {
	if cfg.Certificates.TLS == "on" {
		return true
	}
	c := cfg.Cluster
	return slices.ContainsFunc([]string{c.Listen, c.Peer, c.Advertise, c.PeerAdvertise}, func(at string) bool { return at != "" && transport.CheckLoopback(at) != nil })
}
