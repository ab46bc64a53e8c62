package outbound

import (
	"net/netip"
	"slices"
)

// class is the set of addresses that a request may reach. Connections are pooled by
// class, so that a request without access to private addresses never reuses a connection
// of one with access.
type class int

const (
	public    class = iota // addresses of the Internet
	private                // also addresses of this machine and its network
	unlimited              // also link-local addresses: only for a grant that names the address itself
	classes
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

var (
	// near holds the addresses of this machine and of networks around it, and those
	// reserved for tests and documentation. No public name has a reason to resolve to
	// them.
	near = prefixes(
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::/127", "fc00::/7", "fec0::/10", "100::/64", "2001:db8::/32", "3fff::/20",
		// Tunnels and translations: this program cannot check the embedded address.
		"2001::/23", "2002::/16", "64:ff9b:1::/48",
	)
	// linkLocal holds the addresses at which clouds serve credentials without
	// authentication.
	linkLocal = append(prefixes("169.254.0.0/16", "fe80::/10"),
		netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("192.0.0.192/32"))
	// nowhere holds addresses that are never a valid destination.
	nowhere = prefixes("224.0.0.0/4", "255.255.255.255/32", "ff00::/8")
	// translated holds IPv4 addresses in its last four bytes.
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

// reaches reports whether requests of a class may be sent to an address.
func (c class) reaches(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return false
	}
	if v4, ok := embedded(a); ok {
		return c.reaches(v4)
	}
	in := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	switch {
	case in(nowhere):
		return false
	case in(linkLocal):
		return c >= unlimited
	case in(near):
		return c >= private
	}
	return true
}

// embedded returns the IPv4 address that an IPv6 address contains, either for translation
// on the way or in an old notation.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return a, false
	}
	b := a.As16()
	compatible := [12]byte(b[:12]) == [12]byte{} && b[12] != 0
	if !compatible && !translated.Contains(a) {
		return a, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}
