package transport

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Machine is the certificate of this process, which the authority of its installation has signed. New
// connections use the one that was set last. It is safe for concurrent use.
type Machine struct {
	pair     keyPair
	accepted atomic.Pointer[tls.Config] // of the connections of machines
	root     *x509.Certificate          // of the authority; it is set once, before the first connection
}

// NewMachine returns a machine of the authority with a certificate. [Machine.Set] sets its own.
func NewMachine(root *x509.Certificate) *Machine {
	m := &Machine{}
	m.Trust(root)
	return m
}

// Trust sets the authority of a zero Machine.
func (m *Machine) Trust(root *x509.Certificate) {
	m.root = root
	m.accepted.Store(m.serverConfig())
}

// Set puts a certificate in PEM form with its key in effect.
func (m *Machine) Set(certPEM []byte, key crypto.Signer) error {
	leaf, err := authority.ParseCertificate(certPEM)
	if err != nil {
		return err
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: m.pool(), CurrentTime: leaf.NotAfter.Add(-time.Second), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("the certificate of this machine: %w", err)
	}
	public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return errors.New("the key is not the one of this machine's certificate")
	}
	// A machine that joins learns the authority from the chain.
	m.pair.Store(&tls.Certificate{Certificate: [][]byte{leaf.Raw, m.root.Raw}, PrivateKey: key, Leaf: leaf})
	return nil
}

// Root returns the certificate of the authority.
func (m *Machine) Root() *x509.Certificate { return m.root }

// Leaf returns the certificate in effect; nil: there is none.
func (m *Machine) Leaf() *x509.Certificate {
	if pair := m.pair.Load(); pair != nil {
		return pair.Leaf
	}
	return nil
}

func (m *Machine) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(m.root)
	return pool
}

// installation returns the name of the installation in certificates.
func (m *Machine) installation() string { return authority.InstallationOf(m.root) }

// acceptedConfig returns how connections of machines are accepted; nil: there is no authority yet.
func (m *Machine) acceptedConfig() *tls.Config {
	if m == nil {
		return nil
	}
	return m.accepted.Load()
}

func (m *Machine) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.pair.Load(), nil },
		ClientAuth:     tls.VerifyClientCertIfGiven, ClientCAs: m.pool(),
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil // it has a token, or joins
			}
			_, err := authority.MachineOf(state.PeerCertificates[0], m.installation())
			return err
		},
	}
}

// clientConfig returns how this machine connects to servers.
func (m *Machine) clientConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: m.pool(), ServerName: authority.ServerName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair := m.pair.Load(); pair != nil && time.Now().Before(pair.Leaf.NotAfter) {
				return pair, nil
			}
			return &tls.Certificate{}, nil // it is renewed without
		},
		VerifyConnection: func(state tls.ConnectionState) error { return isServer(state, m.installation()) },
	}
}

// toMachines are credentials for connections to servers as a machine.
func toMachines(conf *tls.Config) credentials.TransportCredentials {
	return named{credentials.NewTLS(conf)}
}

// named connects to [authority.ServerName], whatever the address is.
type named struct {
	credentials.TransportCredentials
}

// ClientHandshake implements [credentials.TransportCredentials].
func (n named) ClientHandshake(ctx context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.TransportCredentials.ClientHandshake(ctx, authority.ServerName, c)
}

// Clone implements [credentials.TransportCredentials].
func (n named) Clone() credentials.TransportCredentials { return named{n.TransportCredentials.Clone()} }

// isServer returns an error unless the other end of a connection, whose certificate was verified, is a server
// of an installation: a host cannot take the place of one.
func isServer(state tls.ConnectionState, installation string) error {
	peer, err := authority.MachineOf(state.PeerCertificates[0], installation)
	if err != nil {
		return fmt.Errorf("the certificate of the server: %w", err)
	}
	if peer.Kind != authority.Server {
		return fmt.Errorf("the certificate of the server is one of the %s %s", peer.Kind, peer.ID)
	}
	return nil
}

// PinError says that a server is not the one for which a join token was made. To repeat the call does not help.
type PinError struct{ err error }

// Error implements error.
func (e *PinError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *PinError) Unwrap() error { return e.err }

// Join gives a machine its first certificate from a server, which it recognizes by the pin in its join token.
// address may be several with commas, as for [Identity.Dial]. resp is the answer of the server. The error is a
// [*PinError] if the server is another one.
func Join(ctx context.Context, address string, pin authority.Pin, key crypto.Signer, req *apiv1.JoinRequest) (m *Machine, resp *apiv1.CertificateResponse, err error) {
	var root atomic.Pointer[x509.Certificate]
	var other atomic.Pointer[PinError]
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: authority.ServerName,
		InsecureSkipVerify: true, // VerifyConnection verifies: the authority is not known before
		VerifyConnection: func(state tls.ConnectionState) error {
			found, err := verifyPinned(state, pin)
			if err != nil {
				other.Store(&PinError{err})
				return err
			}
			root.Store(found)
			return nil
		},
	}
	target, more, err := peerTarget(address, true)
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient(target, append(append(append(DialOptions(), Spoken.DialOptions()...), more...), grpc.WithTransportCredentials(toMachines(conf)))...)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close() //nolint:errcheck // it has answered
	if req.Request, err = authority.NewRequest(key); err != nil {
		return nil, nil, err
	}
	resp, err = apiv1.NewMachinesClient(conn).Join(ctx, req)
	if wrong := other.Load(); err != nil && wrong != nil {
		return nil, nil, wrong
	}
	if err != nil {
		return nil, nil, err
	}
	m = NewMachine(root.Load())
	return m, resp, m.Set([]byte(resp.Certificate), key)
}

// verifyPinned returns the authority of a server whose chain has the pinned one.
func verifyPinned(state tls.ConnectionState, pin authority.Pin) (*x509.Certificate, error) {
	var chain [][]byte
	for _, c := range state.PeerCertificates {
		chain = append(chain, c.Raw)
	}
	root, err := pin.Find(chain)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	if _, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: authority.ServerName}); err != nil {
		return nil, err
	}
	return root, isServer(state, authority.InstallationOf(root))
}

// RenewAt returns when a certificate must be renewed: when a third of its life is left.
func RenewAt(leaf *x509.Certificate) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore.Add(authority.Skew))
	return leaf.NotAfter.Add(-life / 3)
}

// Renew asks a server for another certificate with the same key, and returns it in PEM form. It is not in effect
// yet.
func (m *Machine) Renew(ctx context.Context, address string) ([]byte, error) {
	pair := m.pair.Load()
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of the certificate does not sign")
	}
	request, err := authority.NewRequest(key)
	if err != nil {
		return nil, err
	}
	conn, err := m.Identity().Dial(address)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // it has answered
	resp, err := apiv1.NewMachinesClient(conn).RenewCertificate(ctx, &apiv1.RenewCertificateRequest{Certificate: string(authority.EncodeCertificate(pair.Leaf)), Request: request}, grpc.WaitForReady(true))
	return []byte(resp.GetCertificate()), err
}
