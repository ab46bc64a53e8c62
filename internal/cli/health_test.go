package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	state := http.StatusOK
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" || r.Header.Get("Authorization") != "" {
			t.Errorf("asked for %s with %q", r.URL, r.Header.Get("Authorization"))
		}
		w.WriteHeader(state)
	}))
	check := func(want int, says string) {
		t.Helper()
		var out, errOut bytes.Buffer
		code := execute(t.Context(), []string{"health", "--url", process.URL, "--token", "a-token-of-this-test"}, strings.NewReader(""), &out, &errOut, func(string) string { return "" })
		if code != want || !strings.Contains(out.String()+errOut.String(), says) {
			t.Errorf("exit code %d, want %d: %s%s", code, want, &out, &errOut)
		}
	}
	check(exitOK, "ok")
	state = http.StatusServiceUnavailable
	check(exitFail, "503")
	process.Close()
	check(exitFail, "does not answer")
}
