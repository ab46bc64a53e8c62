package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// elsewhere is how a server refuses an app of another one.
func elsewhere(t *testing.T, address string) error {
	t.Helper()
	s, err := status.New(codes.FailedPrecondition, "the app is on another server: use "+address).WithDetails(&apiv1.Assignment{Server: "s", Address: address})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// TestRefusalsThatNameAServer: the command goes there, once; two servers that
// each name the other do not keep it; and one that names itself, or nobody, is
// believed.
func TestRefusalsThatNameAServer(t *testing.T) {
	for _, c := range []struct {
		name     string
		one, two string // what each names; "": it does what it is asked
		want     error
		asked    int64 // messages that both servers got
	}{
		{"the other one", "127.0.0.2:1", "", nil, 2},
		{"each other", "127.0.0.2:1", "127.0.0.1:1", sdk.ErrPrecondition, 4},
		{"itself", "127.0.0.1:1", "", sdk.ErrPrecondition, 1},
		{"nobody", "nobody", "", sdk.ErrPrecondition, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int64
			fleets := map[string]*fleet{}
			for name, names := range map[string]string{"127.0.0.1:1": c.one, "127.0.0.2:1": c.two} {
				fleets[name] = start(t, sdktest.Config{Before: func(*apiv1.ProduceRequest) error {
					asked.Add(1)
					switch names {
					case "":
						return nil
					case "nobody":
						return status.Error(codes.FailedPrecondition, "no")
					}
					return elsewhere(t, names)
				}})
			}
			client, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", sdk.Options{Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				f := fleets[address]
				if f == nil {
					return nil, fmt.Errorf("nobody is at %s", address)
				}
				return f.listener.DialContext(ctx)
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close() //nolint:errcheck // every answer has come
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err = client.Apply(ctx, job("j"))
			if !errors.Is(err, c.want) || errors.Is(err, sdk.ErrUnknown) != (c.name == "nobody") {
				t.Errorf("apply: %v, want %v", err, c.want)
			}
			if n := asked.Load(); n != c.asked {
				t.Errorf("%d messages were sent, want %d", n, c.asked)
			}
			if c.want == nil { // and from now on at once
				if _, err := client.Apply(ctx, job("k")); err != nil || asked.Load() != c.asked+1 {
					t.Errorf("the next one: %v, %d messages", err, asked.Load())
				}
			}
		})
	}
}
