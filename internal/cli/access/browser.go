package access

import (
	"context"
	"errors"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	// approvalWait is how long a sign-in waits for a person in a browser.
	approvalWait = 10 * time.Minute
	// claimEvery is how often it tries.
	claimEvery = 2 * time.Second
)

// withBrowser signs in with a page of the console, on which a user approves this command.
func (c *commands) withBrowser(open bool) signIn {
	return func(ctx context.Context, client *sdk.Client) (*sdk.Session, string, error) {
		login := sdk.NewLogin()
		page := c.console(client.Version().GetPublicUrl()) + "/login/command?code=" + url.QueryEscape(login.Code)
		if open && browse(page) == nil {
			c.Note("approve the code %s in the browser; if none has opened, at\n%s", login.Code, page)
		} else {
			c.Note("open this page in a browser on any machine, and approve the code %s:\n%s", login.Code, page)
		}
		for {
			session, token, err := client.ClaimLogin(ctx, login)
			if !errors.Is(err, sdk.ErrNotFound) {
				return session, token, err
			}
			select {
			case <-time.After(claimEvery):
			case <-ctx.Done():
				return nil, "", errors.New("no user has approved the code in time: run the command again")
			}
		}
	}
}

// console returns where people reach the console: at the public URL of the server, or else where this command
// reaches the server. A public URL that is no web address does not count, because a browser would open it.
func (c *commands) console(public string) string {
	if u, err := url.Parse(public); err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") {
		return strings.TrimRight(public, "/")
	}
	first, _, _ := strings.Cut(c.URL, ",")
	return strings.TrimRight(first, "/")
}

// browse opens a page in the browser of this machine.
func browse(page string) error {
	command := []string{"xdg-open", page}
	switch runtime.GOOS {
	case "darwin":
		command[0] = "open"
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", page}
	}
	// The browser outlives this command.
	browser := exec.Command(command[0], command[1:]...)
	if err := browser.Start(); err != nil {
		return err
	}
	go browser.Wait() //nolint:errcheck // the page is printed too
	return nil
}
