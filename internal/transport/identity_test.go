package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// issue writes a certificate for this machine, which is its own authority, and its key.
func issue(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestRenewIdentity renews the certificate of a server and then, in its client, the authority and
// the token: one connection of the client follows. A file that cannot be used changes nothing.
func TestRenewIdentity(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	cert, key := issue(t, t.TempDir())
	g := access.New()
	g.Allow("the first token", access.Admin)
	d := NewServer(g, Limits{}, log)
	apiv1.RegisterJobsServer(d.GRPC, apiv1.UnimplementedJobsServer{})
	ln, err := Listen("127.0.0.1:0", cert, key, nil, false, Limits{}, log)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Serve(ln, nil) }()
	defer func() {
		d.Close(time.Second)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	who, err := NewIdentity("the first token", cert)
	if err != nil {
		t.Fatal(err)
	}
	dial := func() *grpc.ClientConn {
		conn, err := who.Dial(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() }) //nolint:errcheck // a test's
		return conn
	}
	call := func(conn *grpc.ClientConn, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, opts...)
		return err
	}
	list := func(conn *grpc.ClientConn) codes.Code {
		_, err := apiv1.NewJobsClient(conn).ListJobs(t.Context(), &apiv1.ListJobsRequest{})
		return status.Code(err)
	}
	open := dial()
	if err := call(open); err != nil || list(open) != codes.Unimplemented {
		t.Fatalf("with the first certificate and token: %v, %v", err, list(open))
	}

	cert2, key2 := issue(t, t.TempDir())
	if _, err := ln.Renew(cert2, key); err == nil || !strings.Contains(err.Error(), "read --tls-cert and --tls-key") {
		t.Errorf("a certificate with the key of another one: %v", err)
	}
	if _, err := ln.Renew(cert2, ""); err == nil || !strings.Contains(err.Error(), "go together") {
		t.Errorf("a certificate without a key: %v", err)
	}
	commit, err := ln.Renew(cert2, key2)
	if err != nil {
		t.Fatal(err)
	}
	if err := call(dial()); err != nil {
		t.Errorf("a renewal that is prepared, and not in effect: %v", err)
	}
	commit()
	if err := call(open); err != nil {
		t.Errorf("the open connection: %v", err)
	}
	next := dial()
	if err := call(next); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "authority") {
		t.Errorf("the client does not know the new authority, and gets %v", err)
	}

	none := filepath.Join(t.TempDir(), "none.pem")
	if _, err := who.Renew("x", none); err == nil || !strings.Contains(err.Error(), "read --ca-cert") || who.Token() != "the first token" {
		t.Errorf("an authority that is not there: %v, and the token is %s", err, who.Token())
	}
	g.Replace(access.Token{Text: "the second token", Role: access.Admin})
	if code := list(open); code != codes.Unauthenticated {
		t.Errorf("the first token gets %v from a server that has removed it", code)
	}
	if commit, err = who.Renew("the second token", cert2); err != nil {
		t.Fatal(err)
	}
	commit()
	if err := call(next, grpc.WaitForReady(true)); err != nil {
		t.Errorf("the client with the new authority: %v", err)
	}
	if code := list(open); code != codes.Unimplemented {
		t.Errorf("the second token gets %v", code)
	}
}

// TestSetLimits replaces the limits of a server that works.
func TestSetLimits(t *testing.T) {
	d := NewServer(access.New(), Limits{Streams: 3, Header: 10_000}, slog.New(slog.DiscardHandler))
	c := newPort(nil, nil, nil, Limits{Unknown: 3}, slog.New(slog.DiscardHandler))
	l := Limits{Streams: 5, Inflated: 70_000, Unknown: 5, Header: 20_000, Idle: time.Hour}
	d.SetLimits(l)
	c.SetLimits(l)
	if now := d.Limits(); now.Streams != 5 || now.Body != 4<<20 || now.Header != 10_000 || now.Idle != 2*time.Minute {
		t.Errorf("the limits are %+v: Header and Idle must stay", now)
	}
	if n := c.conns.limits.Load().Unknown; n != 5 {
		t.Errorf("the port allows %d connections without a token", n)
	}
	if err := d.sizes.check(nil, 70_001, &apiv1.ApplyJobRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message over the new limit: %v", err)
	}
}
