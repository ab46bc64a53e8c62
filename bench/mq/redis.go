package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// openRedis starts a Redis on its own socket. Each producer has a connection, and Redis
// syncs once for all commands that it read together.
func openRedis(ctx context.Context, dir string) (_ store, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return store{}, skipped("redis-server is not installed")
	}
	at, err := os.MkdirTemp("", "redis-") // socket paths are limited to about 100 bytes
	if err != nil {
		return store{}, err
	}
	r := &redis{socket: filepath.Join(at, "s")}
	r.cmd = exec.CommandContext(ctx, path, "--port", "0", "--unixsocket", r.socket, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxclients", fmt.Sprint(maxProducers+100))
	var says bytes.Buffer
	r.cmd.Stdout, r.cmd.Stderr = &says, &says
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(syscall.SIGTERM) }
	r.cmd.WaitDelay = 10 * time.Second
	if err := r.cmd.Start(); err != nil {
		return store{}, errors.Join(err, os.RemoveAll(at))
	}
	if err := r.dial(ctx, 1); err != nil {
		err = errors.Join(err, r.close()) // the process has ended, so says is complete
		return store{}, fmt.Errorf("redis-server does not serve: %w\n%s", err, says.Bytes())
	}
	return store{run: r.run, close: r.close}, nil
}

type redis struct {
	cmd    *exec.Cmd
	socket string
	conns  []redisConn
}

type redisConn struct {
	net.Conn
	in *bufio.Reader
}

// dial opens connections until there are n. The first one retries until the server
// accepts it.
func (r *redis) dial(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	for len(r.conns) < n {
		c, err := new(net.Dialer).DialContext(ctx, "unix", r.socket)
		if err == nil {
			r.conns = append(r.conns, redisConn{c, bufio.NewReader(c)})
			continue
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

func (r *redis) run(ctx context.Context, l load, window time.Duration) (result, error) {
	if err := r.dial(ctx, l.producers); err != nil {
		return result{}, err
	}
	return closedLoop(func(i int, bodies [][]byte) producer {
		c := r.conns[i]
		commands := make([][]byte, len(bodies))
		for j, body := range bodies {
			commands[j] = xadd(body)
		}
		return func() error {
			for _, command := range commands {
				if err := c.do(command); err != nil {
					return err
				}
			}
			return nil
		}
	})(ctx, l, window)
}

// do sends one XADD and reads its answer, the ID of the entry:
// "$15\r\n1700000000000-0\r\n".
func (c redisConn) do(command []byte) error {
	if _, err := c.Write(command); err != nil {
		return err
	}
	length, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if length[0] != '$' {
		return fmt.Errorf("redis answered %q", length)
	}
	_, err = c.in.ReadSlice('\n')
	return err
}

// xadd returns the command that appends body to a stream.
func xadd(body []byte) []byte {
	var b bytes.Buffer
	b.WriteString("*5\r\n")
	for _, word := range []string{"XADD", "s", "*", "b", string(body)} {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.Bytes()
}

func (r *redis) close() error {
	for _, c := range r.conns {
		_ = c.Close()
	}
	err := r.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return errors.Join(err, r.cmd.Wait(), os.RemoveAll(filepath.Dir(r.socket)))
}
