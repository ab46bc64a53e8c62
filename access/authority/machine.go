package authority

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// The kinds of machines.
const (
	Host   = "host"
	Server = "server"
)

// Machine is what a certificate says of its machine. What is empty is not limited.
type Machine struct {
	Kind      string
	ID        string
	Apps      []string          // that a host serves
	Labels    map[string]string // of a host, by which jobs select it
	Executors []string          // that a host may have, as wasi-p1, plugin:NAME or builtin:exec
}

const scheme = "wheelwork"

// Bounds of what a certificate says: it is sent with each handshake.
const (
	maxClaims = 64
	maxClaim  = 200
)

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Check returns an error if a certificate cannot say this.
func (m *Machine) Check() error {
	switch {
	case m.Kind != Host && m.Kind != Server:
		return fmt.Errorf("the kind of machine is %.40q, want host or server", m.Kind)
	case !idForm.MatchString(m.ID):
		return fmt.Errorf("the id %.100q of the machine has other characters than letters, digits, '.', '_' and '-', or is longer than 100", m.ID)
	case m.Kind == Server && len(m.Apps)+len(m.Labels)+len(m.Executors) > 0:
		return errors.New("apps, labels and executors are of hosts: a server has none")
	}
	return CheckClaims(m.Apps, m.Labels, m.Executors)
}

// CheckClaims returns an error if a certificate cannot have these claims.
func CheckClaims(apps []string, labels map[string]string, executors []string) error {
	if len(apps) > maxClaims || len(labels) > maxClaims || len(executors) > maxClaims {
		return fmt.Errorf("a certificate has at most %d apps, labels and executors each", maxClaims)
	}
	for _, x := range slices.Concat(apps, executors, slices.Collect(maps.Keys(labels)), slices.Collect(maps.Values(labels))) {
		if len(x) > maxClaim {
			return fmt.Errorf("%.40q… has %d bytes, at most %d fit into a certificate", x, len(x), maxClaim)
		}
	}
	for _, x := range slices.Concat(apps, executors, slices.Collect(maps.Keys(labels))) {
		if x == "" {
			return errors.New("an app, an executor or the name of a label is empty")
		}
	}
	return nil
}

// uri returns the machine as a certificate has it.
func (m *Machine) uri(installation string) *url.URL {
	q := url.Values{}
	for _, app := range slices.Sorted(slices.Values(m.Apps)) {
		q.Add("app", app)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		q.Add("label", name+"="+m.Labels[name])
	}
	for _, x := range slices.Sorted(slices.Values(m.Executors)) {
		q.Add("executor", x)
	}
	return &url.URL{Scheme: scheme, Host: installation, Path: "/" + m.Kind + "/" + m.ID, RawQuery: q.Encode()}
}

// MachineOf returns the machine of a certificate of an installation. It does not verify the certificate.
func MachineOf(cert *x509.Certificate, installation string) (Machine, error) {
	m, of, err := read(cert)
	if err == nil && of != installation {
		return Machine{}, fmt.Errorf("the certificate is one of the installation %.40q, and not of %s", of, installation)
	}
	return m, err
}

// Named returns the machine of a certificate that was verified as one of the installation.
func Named(cert *x509.Certificate) (Machine, error) {
	m, _, err := read(cert)
	return m, err
}

// read returns the machine that a certificate names, and its installation.
func read(cert *x509.Certificate) (m Machine, installation string, err error) {
	var found *url.URL
	for _, u := range cert.URIs {
		if u.Scheme != scheme {
			continue
		}
		if found != nil {
			return m, "", errors.New("the certificate names two machines")
		}
		found = u
	}
	if found == nil {
		return m, "", errors.New("the certificate is not one of a machine")
	}
	kind, id, _ := strings.Cut(strings.TrimPrefix(found.Path, "/"), "/")
	q, err := url.ParseQuery(found.RawQuery)
	if err != nil {
		return m, "", errors.New("what the certificate says of its machine cannot be read")
	}
	m = Machine{Kind: kind, ID: id, Apps: q["app"], Executors: q["executor"]}
	for _, pair := range q["label"] {
		name, value, _ := strings.Cut(pair, "=")
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[name] = value
	}
	return m, found.Host, m.Check()
}
