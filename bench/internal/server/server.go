// Package server builds the binary and starts `wheelwork dev` with a client of it.
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// Build builds the binary like a release, in a directory, and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/wheelworkhq/wheelwork").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of wheelwork (run this in the folder bench): %w", err)
	}
	binary := filepath.Join(dir, "wheelwork")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/wheelwork")
	cmd.Dir = strings.TrimSpace(string(root))
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, text)
	}
	return binary, nil
}

// Dev is a process of `wheelwork dev` (nameserver, server, console and one host), with a
// client.
type Dev struct {
	*sdk.Client
	URL       string
	Token     string // administrator token
	HostToken string

	cmd   *exec.Cmd
	says  bytes.Buffer // standard error; complete after the process has ended
	pprof string       // HOST:PORT
}

// Start starts a dev on a data directory, without the sample job.
func Start(ctx context.Context, binary, data string, flags ...string) (*Dev, error) {
	profiles, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d := &Dev{pprof: profiles, cmd: exec.CommandContext(ctx, binary, append([]string{
		"dev", "--data", data, "--listen", "127.0.0.1:0", "--pprof", profiles, "--sample=false", "-o", "json",
	}, flags...)...)}
	d.cmd.Stderr = &d.says
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = time.Minute
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	var ready struct {
		URL, Token string
		HostToken  string `json:"host_token"`
	}
	err = json.NewDecoder(out).Decode(&ready)
	d.URL, d.Token, d.HostToken = ready.URL, ready.Token, ready.HostToken
	if err == nil {
		d.Client, err = sdk.Dial(ctx, ready.URL, sdk.Options{Token: ready.Token})
	}
	if err != nil {
		err = errors.Join(err, d.end())
		return nil, fmt.Errorf("wheelwork dev did not become ready: %w", err)
	}
	return d, nil
}

// freeAddress returns a local address without a listener.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// Stop stops the process and waits for its end. It is for a defer: it joins its error to
// *err.
func (d *Dev) Stop(err *error) { *err = errors.Join(*err, d.end()) }

func (d *Dev) end() error {
	if d.Client != nil {
		_ = d.Close() // every answer has arrived or is no longer needed
	}
	// If the process has already ended, Wait reports why.
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("wheelwork dev: %w\n%s", err, d.says.Bytes())
	}
	return nil
}

// Profile requests a page of net/http/pprof, such as "heap?gc=1". The caller closes the
// body.
func (d *Dev) Profile(ctx context.Context, page string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.pprof+"/debug/pprof/"+page, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+d.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // the status is the error
		return nil, fmt.Errorf("profile %s of the server: %s", page, resp.Status)
	}
	return resp, nil
}
