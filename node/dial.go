package node

import (
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
		if err := checkPeer(one, caCert); err != nil {
			return "", nil, err
		}
		all = append(all, one)
	}
	if len(all) == 1 {
		return all[0], nil, nil
	}
	return several + ":///" + strings.Join(all, ","), []grpc.DialOption{grpc.WithResolvers(severalResolver{})}, nil
}

// transport returns the credentials for a connection to another process of the
// installation: TLS 1.3, or no TLS if caCert is "".
func transport(caCert string) (credentials.TransportCredentials, error) {
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
