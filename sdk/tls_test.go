package sdk_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

func TestTLS(t *testing.T) {
	// httptest provides a certificate for 127.0.0.1 and its authority.
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := sdktest.NewServer(sdktest.Config{Token: "secret"})
	defer server.Close()
	go server.Serve(tls.NewListener(l, &tls.Config{ //nolint:errcheck // ends with the server
		Certificates: lender.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	}))
	roots := x509.NewCertPool()
	roots.AddCert(lender.Certificate())
	address := l.Addr().String()

	client, err := sdk.Dial(t.Context(), "https://"+address, sdk.Options{Token: "secret", TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	if _, err := client.Apply(t.Context(), job("a")); err != nil {
		t.Error(err)
	}

	if _, err := sdk.Dial(t.Context(), "https://"+address, sdk.Options{Token: "secret"}); !errors.Is(err, sdk.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that nobody knows: %v", err)
	}
	if _, err := sdk.Dial(t.Context(), "http://"+address, sdk.Options{Token: "secret"}); err == nil {
		t.Error("no TLS towards a server that has it: no error")
	}
}
