package node

import (
	"context"
	"log/slog"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// reloads reads the certificate of a port again for each request, until ctx ends. A request
// that fails changes nothing. done is called after each request; it may be nil.
func reloads(ctx context.Context, requests <-chan func(), ln *transport.Port, cert, key string, log *slog.Logger) error {
	for {
		select {
		case done := <-requests:
			err := credential.CheckKeyFile("--tls-key", key)
			if err == nil {
				var commit func()
				if commit, err = ln.Renew(cert, key); err == nil {
					commit()
				}
			}
			switch {
			case err != nil:
				log.Error("the certificate was not reloaded, and the process keeps the one that it has", "error", err)
			case ln.Secure:
				log.Info("reloaded the certificate; every other setting needs a restart")
			default:
				log.Warn("nothing was reloaded: the process has no certificate, and every setting needs a restart")
			}
			if done != nil {
				done()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
