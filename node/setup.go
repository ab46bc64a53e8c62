package node

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/console"
	"github.com/wheelworkhq/wheelwork/internal/credential"
)

// setup makes the first administrator for a visitor with a code. The code is valid until the process
// ends; the API refuses a second administrator.
type setup struct {
	code  string
	token string // of this process, with the role setup
	conn  *grpc.ClientConn
}

func newSetup() *setup {
	return &setup{code: strings.ToLower(rand.Text()), token: credential.NewToken("in_")}
}

// console returns what the console needs; nil: it has no page.
func (s *setup) console() *console.Setup {
	if s == nil {
		return nil
	}
	return &console.Setup{Code: s.code, Make: func(ctx context.Context, name, password string) error {
		_, err := apiv1.NewAccessClient(s.conn).Setup(ctx, &apiv1.SetupRequest{Name: name, Password: password})
		return err
	}}
}

// announce calls tell once if there is no administrator when the server can say so. It returns when ctx
// ends.
func (s *setup) announce(ctx context.Context, tell func()) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		resp, err := apiv1.NewAccessClient(s.conn).Setup(call, &apiv1.SetupRequest{Check: true})
		cancel()
		if err == nil {
			if resp.Missing {
				tell()
			}
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}
