package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/node/local"
)

// TestTokensAreNotPrinted checks that the message of a ready process contains no token,
// because terminals are recorded, shared and scrolled back.
func TestTokensAreNotPrinted(t *testing.T) {
	const token, link = "ww_a-permanent-token", "http://127.0.0.1:1/login?code=once"
	for name, say := range map[string]func(*cli){
		"dev": func(c *cli) {
			c.sayReady("/it's here")(node.Ready{URL: "http://127.0.0.1:1", Token: token, HostToken: token, LoginURL: link})
		},
		"cluster up": func(c *cli) {
			c.sayCluster(local.Ready{URLs: []string{"http://127.0.0.1:1"}, Token: token, TokenFile: "/it's here/token", LoginURL: link})
		},
	} {
		var out, errOut bytes.Buffer
		say(&cli{out: &out, err: &errOut, format: formatTable, color: "never"})
		if text := out.String() + errOut.String(); strings.Contains(text, token) || !strings.Contains(text, link) || !strings.Contains(text, `$(cat '/it'\''s here/token')`) {
			t.Errorf("%s says:\n%s", name, text)
		}
	}
}
