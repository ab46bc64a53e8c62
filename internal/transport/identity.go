package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Identity is how a process calls other processes of its installation: the token that it sends,
// and the authority by which it verifies them. Both can be replaced while its connections are
// open: a call sends the token, and a handshake uses the authority, that was set last.
type Identity struct {
	secure bool // it verifies the others by TLS; fixed
	token  atomic.Pointer[string]
	verify atomic.Pointer[credentials.TransportCredentials]
	own    *Machine // shows a certificate, and sends no token; nil: it has none. It is fixed
}

// Identity returns the identity of a machine with a certificate.
func (m *Machine) Identity() *Identity {
	i := &Identity{secure: true, own: m}
	none, creds := "", toMachines(m.clientConfig())
	i.token.Store(&none)
	i.verify.Store(&creds)
	return i
}

// NewIdentity returns an identity. caCert is the file with the authority; "": no TLS, on this
// machine only.
func NewIdentity(token, caCert string) (*Identity, error) {
	i := &Identity{secure: caCert != ""}
	creds, err := readAuthority(caCert)
	if err != nil {
		return nil, err
	}
	i.token.Store(&token)
	i.verify.Store(&creds)
	return i, nil
}

// Renew reads the authority, and returns the function that puts it in effect together with the
// token. Whether an identity uses TLS is fixed: without a file, or without TLS, the authority
// stays.
func (i *Identity) Renew(token, caCert string) (commit func(), err error) {
	if i.own != nil {
		return func() {}, nil
	}
	if !i.secure || caCert == "" {
		return func() { i.token.Store(&token) }, nil
	}
	creds, err := readAuthority(caCert)
	if err != nil {
		return nil, err
	}
	return func() {
		i.token.Store(&token)
		i.verify.Store(&creds)
	}, nil
}

// Token returns the token in effect.
func (i *Identity) Token() string { return *i.token.Load() }

// Dial returns a connection to another process of the installation. address may be several
// addresses with commas, see [peerTarget].
func (i *Identity) Dial(address string) (*grpc.ClientConn, error) {
	target, more, err := peerTarget(address, i.secure)
	if err != nil {
		return nil, err
	}
	opts := append(append(append(DialOptions(), Spoken.DialOptions()...), more...),
		grpc.WithTransportCredentials(verified{i}), grpc.WithPerRPCCredentials(bearer{i.Token, i.secure}))
	return grpc.NewClient(target, opts...)
}

// Dial returns a connection to another process of the installation, with a token and an
// authority that do not change.
func Dial(address, token, caCert string) (*grpc.ClientConn, error) {
	i, err := NewIdentity(token, caCert)
	if err != nil {
		return nil, err
	}
	return i.Dial(address)
}

// verified are the credentials of connections that are verified by the authority in effect.
type verified struct{ *Identity }

var _ credentials.TransportCredentials = verified{}

// ClientHandshake implements [credentials.TransportCredentials].
func (v verified) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return (*v.verify.Load()).ClientHandshake(ctx, authority, c)
}

// ServerHandshake implements [credentials.TransportCredentials].
func (verified) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are of a client")
}

// Info implements [credentials.TransportCredentials].
func (v verified) Info() credentials.ProtocolInfo { return (*v.verify.Load()).Info() }

// Clone implements [credentials.TransportCredentials]. The copy follows the same identity.
func (v verified) Clone() credentials.TransportCredentials { return v }

// OverrideServerName implements [credentials.TransportCredentials].
func (verified) OverrideServerName(string) error {
	return errors.New("the name of a server is that of its address")
}

// readAuthority returns the credentials for a connection to another process of the
// installation: TLS 1.3, or no TLS if caCert is "".
func readAuthority(caCert string) (credentials.TransportCredentials, error) {
	if caCert == "" {
		return insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(caCert)
	if err != nil {
		return nil, fmt.Errorf("read --ca-cert: %w", err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read --ca-cert: %s holds no certificate in PEM form", caCert)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authority}), nil
}

// WithToken sends a token with each call, and refuses to send it without TLS if secure is
// set.
func WithToken(token string, secure bool) grpc.DialOption {
	return grpc.WithPerRPCCredentials(bearer{func() string { return token }, secure})
}

// bearer sends a token with each call.
type bearer struct {
	token  func() string
	secure bool // refuse to send it without TLS
}

var _ credentials.PerRPCCredentials = bearer{}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token := b.token()
	if token == "" { // the certificate of the connection identifies the caller
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (b bearer) RequireTransportSecurity() bool { return b.secure }
