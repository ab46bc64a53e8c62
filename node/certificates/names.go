package certificates

import (
	"net"
	"net/netip"
	"net/url"
	"os"
)

// Names returns the names and addresses under which browsers and programs may reach a server: of this machine, of
// the addresses at which it listens and that it tells others, and of the URLs that people use. Each may be "".
func Names(public []string, addresses ...string) []string {
	all := []string{"localhost", "127.0.0.1", "::1"}
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			continue
		}
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() { // it listens on all addresses
			all = append(all, ofInterfaces()...)
			continue
		}
		all = append(all, host)
	}
	if name, err := os.Hostname(); err == nil {
		all = append(all, name)
	}
	for _, address := range public {
		if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
			all = append(all, u.Hostname())
		}
	}
	return all
}

// ofInterfaces returns the addresses of this machine.
func ofInterfaces() (all []string) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the certificate has fewer addresses
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			all = append(all, n.IP.String())
		}
	}
	return all
}
