package delivery

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("%v: %q", err, line)
		}
		all = append(all, m)
	}
	return all
}

// TestFile appends to a file, over restarts after which its end has any length, and to a new file after
// it was moved.
func TestFile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	path, state := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "state")
	from := &server{}
	run := func(to Receiver, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f := follower(t, from, to, state)
		f.Once = true
		if err := errors.Join(f.Run(t.Context()), to.Close()); err != nil {
			t.Fatal(err)
		}
	}
	from.add("main", "first")
	run(NewFile(path, true))
	if _, err := NewFile(path, true); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	for n := range 100 {
		from.add("main", strings.Repeat("x", r.IntN(100)))
		if n == 50 {
			from.add("main", strings.Repeat("y", 300<<10))
		}
		before, err := os.ReadFile(state)
		if err != nil {
			t.Fatal(err)
		}
		old, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		run(NewFile(path, false))
		now, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		// As if the process had been killed while it wrote.
		if err := errors.Join(os.Truncate(path, old.Size()+r.Int64N(now.Size()-old.Size())), os.WriteFile(state, before, 0o600)); err != nil {
			t.Fatal(err)
		}
		run(NewFile(path, false))
	}
	if doubles, seams := checkOrder(t, read(t, path), from.next, 2); doubles > 2 || seams > 2 { // those of n == 50
		t.Errorf("%d doubles in %d places", doubles, seams)
	}
	to, err := NewFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	from.add("main", "before")
	f := follower(t, from, to, state)
	f.Once = true
	if err := f.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	from.add("main", "after")
	if err := errors.Join(f.Run(t.Context()), to.Close()); err != nil {
		t.Fatal(err)
	}
	if all := read(t, path); len(all) != 1 || all[0]["object"] != "after" {
		t.Errorf("the new file has %v", all)
	}
	if all := read(t, path+".1"); all[len(all)-1]["object"] != "before" {
		t.Errorf("the moved file ends with %v", all[len(all)-1])
	}
}

// TestStreamEnds checks that the command ends when its output cannot be written.
func TestStreamEnds(t *testing.T) {
	from := &server{}
	from.add("main", "j")
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (&Follower{From: from, To: NewStream(w), Size: 1, Note: t.Logf}).Run(t.Context()); !errors.As(err, new(*FinalError)) {
		t.Error(err)
	}
}

// TestSyslog sends messages to a receiver that ends its connections, over TCP and over TLS.
func TestSyslog(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	for _, scheme := range []string{"tcp", "tls"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		to, err := NewSyslog(scheme + "://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if scheme == "tls" {
			l = tls.NewListener(l, web.TLS)
			to.(*syslog).secure.RootCAs = web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		}
		testSyslog(t, l, to)
	}
	for address, ok := range map[string]bool{"tls://siem.example:6514": true, "tcp://localhost:514": true, "tcp://siem.example:514": false, "udp://localhost:514": false, "tls://siem.example": false, "localhost:514": false} {
		if _, err := NewSyslog(address); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
	stranger := tls.NewListener(must(net.Listen("tcp", "127.0.0.1:0"))(t), web.TLS) // its certificate is not one of the system's
	defer stranger.Close()                                                          //nolint:errcheck // nothing is read
	go func() {
		for {
			c, err := stranger.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1)) //nolint:errcheck // the handshake fails
			c.Close()               //nolint:errcheck // nothing was read
		}
	}()
	to, err := NewSyslog("tls://" + stranger.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	from := &server{}
	from.add("main", "j")
	if n, err := to.Deliver(t.Context(), from.logs["main"]); n != 0 || err == nil {
		t.Errorf("%d events went to a receiver that is not known: %v", n, err)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// testSyslog sends messages to a receiver that ends each connection after three of them.
func testSyslog(t *testing.T, l net.Listener, to Receiver) {
	t.Helper()
	defer l.Close() //nolint:errcheck // only reads
	messages, gone := make(chan string, 100), make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for range 3 {
				n := 0
				if _, err := fmt.Fscanf(in, "%d ", &n); err != nil {
					break
				}
				b := make([]byte, n)
				if _, err := io.ReadFull(in, b); err != nil {
					break
				}
				messages <- string(b)
			}
			c.Close() //nolint:errcheck // only reads
			gone <- struct{}{}
		}
	}()
	from := &server{}
	from.add("main", "plain")
	from.add("main", "two\nlines, and ü")
	from.add("main", "denied")
	from.logs["main"][2].Outcome = "denied"
	events := from.logs["main"]
	for range 2 {
		if n, err := to.Deliver(t.Context(), slices.Clone(events)); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		<-gone // the receiver has ended the connection
		<-to.(*syslog).ended
		for i, priority := range []string{"<110>1 ", "<110>1 ", "<108>1 "} {
			m := <-messages
			parts := strings.SplitN(m, " ", 8)
			var x map[string]any
			if err := json.Unmarshal([]byte(parts[7]), &x); err != nil || !strings.HasPrefix(m, priority) || parts[3] != "wheelwork" || parts[5] != "job.changed" || x["object"] != events[i].Object || x["sequence"] != fmt.Sprint(i+1) {
				t.Errorf("%q, %v, %v", m, err, x)
			}
		}
	}
	to.Close() //nolint:errcheck // the receiver has ended the connection
}
