package memconn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/wheelworkhq/wheelwork/internal/memconn"
)

// connect returns both ends of a connection.
func connect(t *testing.T, size int) (client, server net.Conn) {
	t.Helper()
	l := memconn.Listen(size)
	defer l.Close() //nolint:errcheck // it never fails
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return client, <-accepted
}

// TestBytesArrive checks that each end reads in order what the other end writes, in both
// directions at once, although the buffer is smaller than the data.
func TestBytesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connect(t, 100)
		text := make([]byte, 10_000)
		for i := range text {
			text[i] = byte(rand.Uint32())
		}
		var wg sync.WaitGroup
		for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
			wg.Go(func() {
				if n, err := ends[0].Write(text); n != len(text) || err != nil {
					t.Errorf("%d bytes were written, %v", n, err)
				}
			})
			wg.Go(func() {
				got := make([]byte, len(text))
				if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, text) {
					t.Errorf("other bytes came, %v", err)
				}
			})
		}
		wg.Wait()
	})
}

// TestClose checks that bytes written before a close still arrive, followed by the end.
// Readers and writers of the closed end, and writers to it, get an error, also when they
// were already blocked.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connect(t, 4)
		if _, err := client.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 2)
		go func() { _, err := client.Read(make([]byte, 1)); waits <- err }()
		go func() { _, err := client.Write([]byte("x")); waits <- err }() // the buffer is full
		synctest.Wait()
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-waits; !errors.Is(err, net.ErrClosed) {
				t.Errorf("who waited at the closed end got %v", err)
			}
		}
		if got, err := io.ReadAll(server); string(got) != "last" || err != nil {
			t.Errorf("%q came, %v", got, err)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("who wrote to the closed end got %v", err)
		}
	})
}

// TestNobodyAccepts checks that a dial ends with its context and with the listener.
func TestNobodyAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memconn.Listen(1)
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 2)
		go func() { _, err := l.DialContext(ctx); ends <- err }()
		synctest.Wait()
		cancel()
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { _, err := l.Dial(); ends <- err }()
		synctest.Wait()
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if err := <-ends; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestDialsAtOnce shows why this package exists: with gRPC's connections the race
// detector ends the process here.
func TestDialsAtOnce(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			l := memconn.Listen(1)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 100 {
						if _, err := l.Dial(); err != nil {
							t.Error(err)
						}
					}
				})
				wg.Go(func() {
					for range 100 {
						if _, err := l.Accept(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
