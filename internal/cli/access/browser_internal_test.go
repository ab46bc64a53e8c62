package access

import (
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
)

// TestConsoleOfTheServer prefers the public URL of a server to the address that the command calls, if a browser may
// open it.
func TestConsoleOfTheServer(t *testing.T) {
	for _, tt := range []struct{ called, public, want string }{
		{"http://127.0.0.1:7700/", "", "http://127.0.0.1:7700"},
		{"https://10.0.0.1:7700,https://10.0.0.2:7700", "", "https://10.0.0.1:7700"},
		{"https://10.0.0.1:7700", "https://wheel.example", "https://wheel.example"},
		{"https://10.0.0.1:7700", "http://localhost:8080", "http://localhost:8080"},
		{"https://10.0.0.1:7700", "file:///etc/passwd", "https://10.0.0.1:7700"},
		{"https://10.0.0.1:7700", "--help", "https://10.0.0.1:7700"},
		{"https://10.0.0.1:7700", "https://", "https://10.0.0.1:7700"},
		{"https://10.0.0.1:7700", "https://wheel.example\x1b[2J", "https://10.0.0.1:7700"},
	} {
		c := &commands{Server: &connect.Server{URL: tt.called}}
		if got := c.console(tt.public); got != tt.want {
			t.Errorf("called %s, public %q: %s, want %s", tt.called, tt.public, got, tt.want)
		}
	}
}
