package node

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

func TestProfile(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0"} {
		if _, err := Profile(ProfileConfig{Address: address, Readers: func() (string, string) { return "a-token-of-this-test", "" }}); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("Profile(%q) = %v, want a refusal that names loopback", address, err)
		}
	}
	if _, err := Profile(ProfileConfig{Address: "127.0.0.1:0", Readers: func() (string, string) { return "", "" }}); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("without a token: %v", err)
	}
}

// TestProfileIsGuarded reads a profile without the token, and with a Host header of
// another name, as a browser on this machine would after DNS rebinding.
func TestProfileIsGuarded(t *testing.T) {
	const token = "a-token-of-this-test"
	file := filepath.Join(t.TempDir(), "token")
	for name, cfg := range map[string]ProfileConfig{
		"a token": {Readers: func() (string, string) { return token, "" }}, "a file": {Readers: func() (string, string) { return "", file }},
	} {
		address := testkit.FreeAddress(t)
		cfg.Address = address
		end, err := Profile(cfg)
		if err != nil {
			t.Fatal(err)
		}
		get := func(host, authorization string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/debug/pprof/goroutine?debug=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			req.Header.Set("Authorization", authorization)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // it was read
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}
		if name == "a file" {
			if code, _ := get(address, "Bearer "); code != http.StatusUnauthorized {
				t.Errorf("before the file is there: %d", code)
			}
			if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, port, _ := strings.Cut(address, ":")
		for _, c := range []struct {
			host, authorization string
			want                int
		}{
			{address, "Bearer " + token, http.StatusOK},
			{"localhost:" + port, "Bearer " + token, http.StatusOK},
			{"localhost", "Bearer " + token, http.StatusOK},
			{"[::1]:" + port, "Bearer " + token, http.StatusOK},
			{address, "", http.StatusUnauthorized},
			{address, "Bearer ", http.StatusUnauthorized},
			{address, token, http.StatusUnauthorized},
			{address, "Bearer " + token + "x", http.StatusUnauthorized},
			{"evil.example:" + port, "Bearer " + token, http.StatusForbidden},
			{"localhost.evil.example", "Bearer " + token, http.StatusForbidden},
			{"127.0.0.1.evil.example", "Bearer " + token, http.StatusForbidden},
		} {
			code, text := get(c.host, c.authorization)
			if code != c.want || (code != http.StatusOK) == strings.Contains(text, "goroutine profile") {
				t.Errorf("%s: Host %s with %q: %d, want %d\n%.80s", name, c.host, c.authorization, code, c.want, text)
			}
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}
