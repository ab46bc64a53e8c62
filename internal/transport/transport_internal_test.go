package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestProcessesSpeakTLS13 connects to a server that speaks no TLS newer than 1.2, and to
// one that does.
func TestProcessesSpeakTLS13(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	creds, err := readAuthority(ca)
	if err != nil {
		t.Fatal(err)
	}
	for newest, want := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		client, server := net.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- tls.Server(server, &tls.Config{
				Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MaxVersion: newest, NextProtos: []string{"h2"},
			}).HandshakeContext(context.Background())
			server.Close() //nolint:errcheck // the handshake said what was to be said
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, _, err := creds.ClientHandshake(ctx, "127.0.0.1:1", client)
		cancel()
		client.Close() //nolint:errcheck // a test's
		<-done
		if (err == nil) != want {
			t.Errorf("with %s: %v", tls.VersionName(newest), err)
		}
	}
	if _, err := readAuthority(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("an authority that is not there was taken")
	}
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readAuthority(ca); err == nil {
		t.Error("an authority without a certificate was taken")
	}
}
