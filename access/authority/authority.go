package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"net/url"
	"time"
)

const (
	// ServerName is the name to which machines connect. Each server has a certificate with it beside the
	// one for browsers, so machines need not know the addresses under which a server is reached.
	ServerName = "server.wheelwork.internal"

	// DefaultLife is how long the certificate of a machine is valid. It is renewed when a third of it is left.
	DefaultLife  = 24 * time.Hour
	shortestLife = 10 * time.Second
	longestLife  = 30 * 24 * time.Hour
	// Skew is how much the clocks of two machines may differ: certificates are valid from so long before
	// they were signed.
	Skew = 10 * time.Minute
	// Late is how long after its end a certificate can still be renewed, by a machine that was off.
	Late = 7 * 24 * time.Hour

	authorityLife = 10 * 365 * 24 * time.Hour
	maxPEM        = 64 << 10
)

// Authority signs the certificates of one installation. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	life time.Duration // of the certificates that it signs
}

// WithLife returns the authority with another life of the certificates that it signs.
func (a *Authority) WithLife(life time.Duration) *Authority { return &Authority{a.cert, a.key, life} }

// Life returns how long the certificates that the authority signs are valid.
func (a *Authority) Life() time.Duration { return a.life }

// CheckLife returns an error if certificates must not be valid for so long.
func CheckLife(life time.Duration) error {
	if life < shortestLife || life > longestLife {
		return fmt.Errorf("certificates cannot be valid for %v: want %v to %v", life, shortestLife, longestLife)
	}
	return nil
}

// New makes an authority.
func New(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	id, err := keyDigest(key.Public())
	if err != nil {
		return nil, err
	}
	serial, err := newSerial(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Wheelwork installation " + installation(id)},
		NotBefore: now.Add(-Skew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert, key, DefaultLife}, err
}

// Parse reads an authority and its key in PEM form. The authority may be an operator's own.
func Parse(certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := ParseCertificate(certPEM)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, errors.New("the certificate is not one of an authority: it may not sign others")
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("the key of the authority is not in PEM form")
	}
	var parsed any
	if parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
		if parsed, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
			parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		}
	}
	key, ok := parsed.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("the key of the authority cannot be read: want PKCS #8, EC or PKCS #1 in PEM form, without a password")
	}
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the key is not the one of the authority's certificate")
	}
	return &Authority{cert, key, DefaultLife}, nil
}

// Encode returns the certificate and the key in PEM form.
func (a *Authority) Encode() (certPEM, keyPEM []byte, err error) {
	key, err := EncodeKey(a.key)
	return a.PEM(), key, err
}

// PEM returns the certificate of the authority in PEM form.
func (a *Authority) PEM() []byte { return EncodeCertificate(a.cert) }

// Pool returns a pool with the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Pin returns what a join token has of the authority.
func (a *Authority) Pin() Pin { return PinOf(a.cert) }

// Installation returns the name of the installation in certificates.
func (a *Authority) Installation() string { return InstallationOf(a.cert) }

// InstallationOf returns the name of the installation of an authority's certificate.
func InstallationOf(root *x509.Certificate) string { return installation(KeyDigest(root)) }

// Certificate returns the certificate of the authority.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Issue signs a certificate for the key in a request. Of the request only the key counts. names are further
// names and addresses for browsers, of a server.
func (a *Authority) Issue(key crypto.PublicKey, m Machine, names []string, now time.Time) (certPEM []byte, err error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	serial, err := newSerial(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: m.ID},
		NotBefore: now.Add(-Skew), NotAfter: earlier(now.Add(a.life), a.cert.NotAfter),
		URIs: []*url.URL{m.uri(a.Installation())}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if m.Kind == Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames = []string{ServerName}
		for _, name := range names {
			if ip, err := netip.ParseAddr(name); err == nil {
				template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
			} else if name != "" {
				template.DNSNames = append(template.DNSNames, name)
			}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	return encode("CERTIFICATE", der), nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Machine returns the machine of a certificate that the authority has signed, whether it is valid now or
// not.
func (a *Authority) Machine(cert *x509.Certificate) (Machine, error) {
	if err := cert.CheckSignatureFrom(a.cert); err != nil {
		return Machine{}, errors.New("the certificate was signed by another authority")
	}
	return MachineOf(cert, a.Installation())
}

// ReadRequest returns the key in a request for a certificate, whose sender has proved that it has the private
// key.
func ReadRequest(der []byte) (crypto.PublicKey, error) {
	if len(der) > maxPEM {
		return nil, errors.New("the request for a certificate is too large")
	}
	req, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = req.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("the request for a certificate cannot be read: %w", err)
	}
	key, ok := req.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the request for a certificate has a key of another kind than ECDSA with P-256")
	}
	return key, nil
}

// NewKey makes the key of a machine.
func NewKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// NewRequest returns a request for a certificate, signed with the key of the machine.
func NewRequest(key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// EncodeKey returns a key in PEM form.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encode("PRIVATE KEY", der), nil
}

// EncodeCertificate returns a certificate in PEM form.
func EncodeCertificate(cert *x509.Certificate) []byte { return encode("CERTIFICATE", cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// ParseCertificate reads the first certificate in a text in PEM form.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text[:min(len(text), maxPEM)])
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("there is no certificate in PEM form")
	}
	return x509.ParseCertificate(block.Bytes)
}

// KeyDigest returns the SHA-256 of the key in a certificate, by which servers know the machine. It stays the
// same when the certificate is renewed.
func KeyDigest(cert *x509.Certificate) [sha256.Size]byte {
	return sha256.Sum256(cert.RawSubjectPublicKeyInfo)
}

func keyDigest(key crypto.PublicKey) ([sha256.Size]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return sha256.Sum256(der), err
}

// DigestOf is [KeyDigest] for a key.
func DigestOf(key crypto.PublicKey) ([sha256.Size]byte, error) { return keyDigest(key) }

// installation returns the name of an installation.
func installation(digest [sha256.Size]byte) string { return hex.EncodeToString(digest[:10]) }

// newSerial returns a random serial number of 127 bits.
func newSerial(random io.Reader) (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := io.ReadFull(random, b); err != nil {
		return nil, err
	}
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b), nil
}

// Pin is the SHA-256 of the certificate of an authority.
type Pin [sha256.Size]byte

// PinOf returns the pin of a certificate.
func PinOf(cert *x509.Certificate) Pin { return sha256.Sum256(cert.Raw) }

// Find returns the authority of a chain that a server has shown, if the pin is its own: the last
// certificate.
func (p Pin) Find(chain [][]byte) (*x509.Certificate, error) {
	for _, der := range chain {
		if sum := sha256.Sum256(der); bytes.Equal(sum[:], p[:]) {
			return x509.ParseCertificate(der)
		}
	}
	return nil, errors.New("the server has not shown the authority that the join token is for: the token is of another installation, the address is, or the connection was intercepted")
}
