package plugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
)

// Config describes a plugin. Handlers is required.
type Config struct {
	Handlers map[string]Func // by name; a job without a handler name uses "main"
	Version  string          // for people
	// Concurrency is the number of tasks that run at once, at most 1024; default 64. With
	// 1, the program's standard output and standard error go to the log of the run.
	Concurrency int
}

// Constants of the handshake with a host.
const (
	coreVersion     = 1 // go-plugin's core protocol version
	protocolVersion = 1
	cookieKey       = "WHEELWORK_PLUGIN"
	cookieValue     = "f4b1d3b6-handlers-for-jobs"
	maxMessage      = 16 << 20
)

// Serve serves the handlers to the host that started the program, until the host shuts
// the plugin down or is gone. It does not return.
func Serve(cfg Config) {
	if err := serve(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(cfg Config) error {
	if os.Getenv(cookieKey) != cookieValue {
		return errors.New("this program is a plugin of Wheelwork: allow it with --plugins of `wheelwork host`, which starts it")
	}
	if !slices.Contains(strings.Split(os.Getenv("PLUGIN_PROTOCOL_VERSIONS"), ","), fmt.Sprint(protocolVersion)) {
		return fmt.Errorf("the host speaks the protocol versions %s, this plugin %d: build it with a newer SDK", os.Getenv("PLUGIN_PROTOCOL_VERSIONS"), protocolVersion)
	}
	if len(cfg.Handlers) == 0 {
		return errors.New("Config.Handlers is empty: a plugin without handlers has nothing to do")
	}
	if cfg.Concurrency < 0 || cfg.Concurrency > 1024 {
		return fmt.Errorf("Config.Concurrency is %d, it must be 1 to 1024", cfg.Concurrency)
	}
	config, cert, err := mutualTLS(os.Getenv("PLUGIN_CLIENT_CERT"))
	if err != nil {
		return err
	}
	lis, err := listen(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxRecvMsgSize(maxMessage))
	pluginv1.RegisterPluginServer(s, &service{cfg: cfg})
	h := health.NewServer()
	h.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(s, h)
	s.RegisterService(&controller, s)
	// The host holds the other end of standard input and never writes to it. End of file
	// means that the host is dead, so the results have no reader.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if _, err := fmt.Printf("%d|%d|%s|%s|grpc|%s\n", coreVersion, protocolVersion, lis.Addr().Network(), lis.Addr(), base64.RawStdEncoding.EncodeToString(cert)); err != nil {
		return err
	}
	return s.Serve(lis)
}

// listen opens the listener whose address the host receives.
func listen(dir string) (net.Listener, error) {
	if runtime.GOOS == "windows" {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	if dir == "" {
		return nil, errors.New("PLUGIN_UNIX_SOCKET_DIR is empty: the host says there where the socket goes")
	}
	return net.Listen("unix", filepath.Join(dir, "plugin.sock"))
}

// mutualTLS accepts only the host with the given certificate. It also returns the
// certificate by which the host recognises this program.
func mutualTLS(client string) (*tls.Config, []byte, error) {
	hosts := x509.NewCertPool()
	if !hosts.AppendCertsFromPEM([]byte(client)) {
		return nil, nil, errors.New("PLUGIN_CLIENT_CERT holds no certificate: a plugin speaks with its host alone")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(30, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: hosts, MinVersion: tls.VersionTLS12,
	}, cert, nil
}

// controller is go-plugin's service by which a host shuts a plugin down.
var controller = grpc.ServiceDesc{
	ServiceName: "plugin.GRPCController",
	HandlerType: (*stopper)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Shutdown", Handler: func(server any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := decode(&emptypb.Empty{}); err != nil {
			return nil, err
		}
		go server.(stopper).GracefulStop() // GracefulStop waits for this call too, so it needs its own goroutine
		return &emptypb.Empty{}, nil
	}}},
}

type stopper interface{ GracefulStop() }
