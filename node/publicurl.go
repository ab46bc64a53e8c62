package node

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// PublicOrigin returns the address at which people reach an installation in the form in which browsers name
// the origin of a request: in lower case, without a path and without the port that its scheme implies. Its error
// names the fault of the address.
func PublicOrigin(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return "", errors.New("want an address with a scheme and a host, as https://wheelwork.example")
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case u.User != nil:
		return "", errors.New("it has a user, which links to the console must not have")
	case len(u.Path) > 1 || u.RawQuery != "" || u.ForceQuery || strings.Contains(address, "#"):
		return "", errors.New("it has a path, a query or a fragment: the console is at the root of its host")
	case strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`%"'<>\^{|}`+"`", r) }):
		return "", errors.New("its host has characters that a host cannot have: write an international name in its form that begins with xn--")
	case port != "" && (err != nil || number == 0):
		return "", errors.New("its port is not a number from 1 to 65535")
	case u.Scheme == "http" && !loopback(host):
		return "", errors.New("passwords, tokens and the cookies of sessions would cross the network unencrypted: write https://, http:// is for this machine alone")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if number != 0 && (u.Scheme != "https" || number != 443) && (u.Scheme != "http" || number != 80) {
		host += ":" + strconv.FormatUint(number, 10)
	}
	return u.Scheme + "://" + host, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// usePublicURL brings the public URL into the form of [PublicOrigin], and makes the page of the OpenID callback
// one of it, if there is no other one.
func (p *PeopleConfig) usePublicURL() (err error) {
	if p.PublicURL == "" {
		return nil
	}
	given := p.PublicURL
	if p.PublicURL, err = PublicOrigin(given); err != nil {
		return fmt.Errorf("the public URL is %.200q: %w", given, err)
	}
	if p.OIDC.Issuer != "" && p.OIDC.Callback == "" {
		p.OIDC.Callback = strings.TrimRight(given, "/") + CallbackPath // as the provider knows it
	}
	return nil
}
