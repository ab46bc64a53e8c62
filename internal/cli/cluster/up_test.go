package cluster

import (
	"bytes"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/node/local"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// TestTokensAreNotPrinted checks that the message of a ready cluster contains no token,
// because terminals are recorded, shared and scrolled back.
func TestTokensAreNotPrinted(t *testing.T) {
	const token, link = "ww_a-permanent-token", "http://127.0.0.1:1/login?code=once"
	var said bytes.Buffer
	root := &cobra.Command{}
	root.SetOut(&said)
	root.SetErr(&said)
	c := &commands{Printer: output.New(root, func(string) string { return "" })}
	c.printReady(local.Ready{URLs: []string{"http://127.0.0.1:1"}, Token: token, TokenFile: "/it's here/token", LoginURL: link})
	if strings.Contains(said.String(), "CA_CERT") {
		t.Errorf("without TLS it says:\n%s", said.String())
	}
	if text := said.String(); strings.Contains(text, token) || !strings.Contains(text, link) || !strings.Contains(text, `$(cat '/it'\''s here/token')`) {
		t.Errorf("wheelwork cluster up says:\n%s", text)
	}
	said.Reset()
	c.printReady(local.Ready{URLs: []string{"https://127.0.0.1:1"}, TokenFile: "token", CACert: "/a dir/ca.crt"})
	if !strings.Contains(said.String(), "export WHEELWORK_CA_CERT='/a dir/ca.crt'\n") {
		t.Errorf("with TLS it says:\n%s", said.String())
	}
}
