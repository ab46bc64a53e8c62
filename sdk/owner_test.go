package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
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
	const both = "http://127.0.0.1:1,http://127.0.0.2:1"
	for _, c := range []struct {
		name     string
		given    string
		one, two string // what each names; "": it does what it is asked
		want     error
		asked    int64 // messages that both servers got
	}{
		{"the other one", both, "127.0.0.2:1", "", nil, 2},
		{"each other", both, "127.0.0.2:1", "127.0.0.1:1", sdk.ErrPrecondition, 4},
		{"itself", both, "127.0.0.1:1", "", sdk.ErrPrecondition, 1},
		{"nobody", both, "nobody", "", sdk.ErrPrecondition, 1},
		// It may be anyone's, and would be sent the token.
		{"one that the client was not given", "http://127.0.0.1:1", "127.0.0.2:1", "", sdk.ErrPrecondition, 1},
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
			client, err := sdk.Dial(t.Context(), c.given, sdk.Options{Token: "secret", Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				f := fleets[address]
				if f == nil || !strings.Contains(c.given, address) {
					t.Errorf("the client connects to %s", address)
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

// TestProducerWaitsForATakeover: a server passes commands on to one that is lost. The
// producer sends them again until its patience ends, and not all the time.
func TestProducerWaitsForATakeover(t *testing.T) {
	var asked atomic.Int64
	f := start(t, sdktest.Config{Before: func(*apiv1.ProduceRequest) error {
		asked.Add(1)
		s, err := status.New(codes.Unavailable, "its owner does not answer").WithDetails(&apiv1.Assignment{Unit: "main"})
		if err != nil {
			return err
		}
		return s.Err()
	}})
	client, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", sdk.Options{RetryFor: 500 * time.Millisecond, Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		return f.listener.DialContext(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	if _, err := client.Apply(t.Context(), job("j")); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("apply: %v", err)
	}
	if n := asked.Load(); n < 2 || n > 100 {
		t.Errorf("the server was asked %d times in half a second", n)
	}
}
