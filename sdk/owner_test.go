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

// elsewhere returns the refusal of a server that does not own an app.
func elsewhere(t *testing.T, address string) error {
	t.Helper()
	s, err := status.New(codes.FailedPrecondition, "the app is on another server: use "+address).WithDetails(&apiv1.Assignment{Server: "s", Address: address})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// TestRefusalsThatNameAServer checks that the client follows a named server once. Two
// servers that name each other do not keep the command. The client accepts the refusal of
// a server that names itself or no server.
func TestRefusalsThatNameAServer(t *testing.T) {
	const both = "http://127.0.0.1:1,http://127.0.0.2:1"
	for _, c := range []struct {
		name     string
		given    string
		one, two string // the server that each names; "": it executes commands
		want     error
		asked    int64 // messages that both servers received
	}{
		{"the other one", both, "127.0.0.2:1", "", nil, 2},
		{"each other", both, "127.0.0.2:1", "127.0.0.1:1", sdk.ErrPrecondition, 4},
		{"itself", both, "127.0.0.1:1", "", sdk.ErrPrecondition, 1},
		{"nobody", both, "nobody", "", sdk.ErrPrecondition, 1},
		// The address may belong to an attacker, and would receive the token.
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
			if c.want == nil { // later commands go to the owner at once
				if _, err := client.Apply(ctx, job("k")); err != nil || asked.Load() != c.asked+1 {
					t.Errorf("the next one: %v, %d messages", err, asked.Load())
				}
			}
		})
	}
}

// TestProducerWaitsForATakeover uses a server that forwards commands to a lost one. The
// producer repeats them until RetryFor ends, with pauses.
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
