package node

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestProfile(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0"} {
		if _, err := Profile(address); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("Profile(%q) = %v, want a refusal that names loopback", address, err)
		}
	}
	ln, stop := freeAddress(t)
	stop()
	end, err := Profile(ln)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + ln + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress(t *testing.T) (address string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String(), func() { ln.Close() }
}
