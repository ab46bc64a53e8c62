package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
)

// several is the scheme of an address that lists several, with commas. gRPC uses the
// first that answers, and another one when that connection is lost.
const several = "several"

// severalResolver resolves to the listed addresses, in their order.
type severalResolver struct{}

func (severalResolver) Scheme() string { return several }

// Build implements [resolver.Builder].
func (severalResolver) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	var state resolver.State
	for address := range strings.SplitSeq(target.Endpoint(), ",") {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		// Each server presents a certificate for its own name.
		at := resolver.Address{Addr: address, ServerName: host}
		state.Addresses = append(state.Addresses, at)
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{at}})
	}
	return fixed{}, cc.UpdateState(state)
}

// fixed is a resolver whose result does not change.
type fixed struct{}

// ResolveNow implements [resolver.Resolver].
func (fixed) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements [resolver.Resolver].
func (fixed) Close() {}

// peerTarget checks an address, or several with commas, and returns how gRPC dials it.
func peerTarget(address, caCert string) (target string, opts []grpc.DialOption, err error) {
	var all []string
	for one := range strings.SplitSeq(address, ",") {
		one = strings.TrimSpace(one)
		if err := CheckPeer(one, caCert); err != nil {
			return "", nil, err
		}
		all = append(all, one)
	}
	if len(all) == 1 {
		return all[0], nil, nil
	}
	return several + ":///" + strings.Join(all, ","), []grpc.DialOption{grpc.WithResolvers(severalResolver{})}, nil
}

// Credentials returns the credentials for a connection to another process of the
// installation: TLS 1.3, or no TLS if caCert is "".
func Credentials(caCert string) (credentials.TransportCredentials, error) {
	if caCert == "" {
		return insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(caCert)
	if err != nil {
		return nil, err
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", caCert)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authority}), nil
}

// CheckPeer refuses an address that is not HOST:PORT, and one beyond this machine without
// a CA certificate.
func CheckPeer(address, caCert string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%q is not HOST:PORT: %w", address, err)
	}
	if caCert == "" && CheckLoopback(address) != nil {
		return fmt.Errorf("%s is not on this machine: TLS is required towards it, give --ca-cert", address)
	}
	return nil
}

// Dial returns a connection to another process of the installation, with the token
// of this one. address may be several addresses with commas, see [peerTarget].
func Dial(address, token, caCert string) (*grpc.ClientConn, error) {
	creds, err := Credentials(caCert)
	if err != nil {
		return nil, fmt.Errorf("read --ca-cert: %w", err)
	}
	target, more, err := peerTarget(address, caCert)
	if err != nil {
		return nil, err
	}
	opts := append(append(append(DialOptions(), Spoken.DialOptions()...), more...), grpc.WithTransportCredentials(creds), WithToken(token, caCert != ""))
	return grpc.NewClient(target, opts...)
}

// WithToken sends a token with each call, and refuses to send it without TLS if secure is
// set.
func WithToken(token string, secure bool) grpc.DialOption {
	return grpc.WithPerRPCCredentials(bearer{token, secure})
}

// bearer sends a token with each call.
type bearer struct {
	token  string
	secure bool // refuse to send it without TLS
}

var _ credentials.PerRPCCredentials = bearer{}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }
