package transport

import (
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
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
func peerTarget(address string, secure bool) (target string, opts []grpc.DialOption, err error) {
	var all []string
	for one := range strings.SplitSeq(address, ",") {
		one = strings.TrimSpace(one)
		if err := checkPeer(one, secure); err != nil {
			return "", nil, err
		}
		all = append(all, one)
	}
	if len(all) == 1 {
		return all[0], nil, nil
	}
	return several + ":///" + strings.Join(all, ","), []grpc.DialOption{grpc.WithResolvers(severalResolver{})}, nil
}

// CheckPeer refuses an address that is not HOST:PORT, and one beyond this machine without
// a CA certificate.
func CheckPeer(address, caCert string) error { return checkPeer(address, caCert != "") }

func checkPeer(address string, secure bool) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%q is not HOST:PORT: %w", address, err)
	}
	if !secure && CheckLoopback(address) != nil {
		return fmt.Errorf("%s is not on this machine: TLS is required towards it, give --ca-cert", address)
	}
	return nil
}
