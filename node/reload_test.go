package node_test

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

	"github.com/wheelworkhq/wheelwork/node"
)

// TestReloadCertificate renews the certificate of a nameserver while a connection is open, and
// then damages it.
func TestReloadCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	renew := func(serial int64) {
		t.Helper()
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew(1)
	requests := make(chan func())
	names := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Nameserver(ctx, node.NameserverConfig{Listen: "127.0.0.1:0", TokenFile: hostToken(t), TLSCert: cert, TLSKey: key, Reload: requests, Ready: ready})
	})
	reload := func() {
		done := make(chan struct{})
		requests <- func() { close(done) }
		<-done
	}
	connect := func(want int64) *tls.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", names.GRPC, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // the test compares serial numbers
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() }) //nolint:errcheck // a test's connection
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("the certificate %d was shown, want %d", got, want)
		}
		return conn
	}
	open := connect(1)
	renew(2)
	connect(1)
	reload()
	connect(2)
	if err := os.WriteFile(cert, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload()
	connect(2)
	if _, err := open.Write([]byte("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if _, err := open.Read(answer); err != nil || string(answer[:8]) != "HTTP/1.1" {
		t.Errorf("the connection from before the renewal answers %q, %v", answer, err)
	}
}
