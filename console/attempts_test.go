package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLoginsAreLimited sends 60 wrong tokens at once. Afterwards not even the right one is
// checked, until Retry-After is over.
func TestLoginsAreLimited(t *testing.T) {
	s := newSite(t, newFake().populate())
	login := func(token string) *http.Response {
		resp, _ := s.post(t, "/login", url.Values{"token": {token}}.Encode())
		return resp
	}
	for range 2 * maxAttempts {
		if resp := login(goodToken); resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("a right token: %s", resp.Status)
		}
	}
	var checked, refused atomic.Int32
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			switch resp := login(fmt.Sprint("wrong-", i)); resp.StatusCode {
			case http.StatusUnauthorized:
				checked.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
				if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
					t.Errorf("Retry-After: %q", resp.Header.Get("Retry-After"))
				}
			default:
				t.Errorf("%s", resp.Status)
			}
		})
	}
	all.Wait()
	if n := checked.Load(); n < maxAttempts || n > maxAttempts+2 || n+refused.Load() != 60 {
		t.Errorf("%d wrong tokens are checked and %d refused", n, refused.Load())
	}
	if resp := login(goodToken); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the right token afterwards: %s", resp.Status)
	}
	if resp, _ := s.do(t, "GET", "/login?code=guess", nil); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a code afterwards: %s", resp.Status)
	}
}

func TestAttemptsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		one, same, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff"), netip.MustParseAddr("2001:db8:0:1::1")
		for range maxAttempts {
			if wait := a.take(one); wait != 0 {
				t.Fatalf("wait %v", wait)
			}
		}
		if wait := a.take(same); wait != attemptEvery {
			t.Errorf("an address of the same network waits %v, want %v", wait, attemptEvery)
		}
		if wait := a.take(other); wait != 0 {
			t.Errorf("another network waits %v", wait)
		}
		time.Sleep(attemptEvery)
		if a.take(one) != 0 || a.take(one) == 0 {
			t.Error("after a while there is not exactly one attempt")
		}
		a.giveBack(one)
		if a.take(one) != 0 {
			t.Error("an attempt that was given back is gone")
		}
		for i := range 3 * maxAddresses {
			a.take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		if len(a.free) > maxAddresses {
			t.Errorf("%d addresses are remembered", len(a.free))
		}
	})
}
