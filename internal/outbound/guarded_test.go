package outbound

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// TestGuard: a server reaches public addresses, and those that its operator names.
func TestGuard(t *testing.T) {
	allow := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.1.0/24")}}
	for address, want := range map[string][2]bool{ // without and with the networks
		"93.184.216.34": {true, true}, "2606:2800:220:1::1": {true, true}, "10.1.2.3": {false, true}, "10.2.0.1": {false, false}, "127.0.0.1": {false, false},
		"::ffff:10.1.2.3": {false, true}, "64:ff9b::10.1.2.3": {false, true}, "169.254.169.254": {false, false}, "169.254.1.9": {false, true}, "224.0.0.1": {false, false},
	} {
		a := netip.MustParseAddr(address)
		if got := [2]bool{(Guard{}).Check(a) == nil, allow.Check(a) == nil}; got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	c := Guard{}.Client()
	defer c.CloseIdleConnections()
	if _, err := c.Get(s.URL); err == nil || !strings.Contains(err.Error(), "--egress-allow") {
		t.Errorf("a request to this machine: %v", err)
	}
	var refused NotAllowedError
	if _, err := c.Get(s.URL); !errors.As(err, &refused) || !refused.Addr.IsLoopback() {
		t.Errorf("a request to this machine: %#v", err)
	}
	c = Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}.Client()
	defer c.CloseIdleConnections()
	r, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
}

// TestGuardOfNamedNetworks: a guard with Only reaches no address beside those that it is given.
func TestGuardOfNamedNetworks(t *testing.T) {
	g := Guard{Only: "--executor-allow", Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("93.184.216.0/24")}}
	for address, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "93.184.216.34": true, "fd12::1": true,
		"93.184.217.34": false, "127.0.0.1": false, "169.254.169.254": false, "fd00:ec2::254": false, "::ffff:169.254.169.254": false,
	} {
		err := g.Check(netip.MustParseAddr(address))
		if (err == nil) != want {
			t.Errorf("%s: %v, want allowed %v", address, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "--executor-allow") {
			t.Errorf("%s: the error %q does not name the flag", address, err)
		}
	}
}
