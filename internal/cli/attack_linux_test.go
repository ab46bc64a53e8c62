package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	_ "google.golang.org/grpc/encoding/gzip"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
)

// The attacks of this file need no credential, or the weakest one. They run against the
// program in a separate process. Afterwards it must respond, and its memory must be
// bounded.

// target is a server under attack.
type target struct {
	node.Ready
	t *testing.T
}

// attacked starts `wheelwork dev` with a limit on its file descriptors.
func attacked(t *testing.T, files int, more ...string) target {
	t.Helper()
	if testing.Short() {
		t.Skip("bounds the memory of the program, which the race detector multiplies: the tests without -short run it")
	}
	dir := t.TempDir()
	args := append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec wheelwork "$@"`, files), "sh", "dev", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--sample=false", "-o", "json"}, more...)
	cmd := exec.Command("sh", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("wheelwork dev after SIGTERM: %v", err)
		}
	})
	s := target{t: t}
	if err := json.NewDecoder(out).Decode(&s.Ready); err != nil {
		t.Fatalf("wheelwork dev did not become ready: %v", err)
	}
	return s
}

var peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak returns the highest memory use of the process so far, in MiB.
func (s target) peak() int {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	if err != nil {
		s.t.Fatal(err)
	}
	m := peakMemory.FindSubmatch(b)
	if m == nil {
		s.t.Fatalf("the kernel does not tell the memory of a process:\n%s", b)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		s.t.Fatal(err)
	}
	return kib >> 10
}

// maxPeak is the memory that a server may use under an attack, in MiB.
const maxPeak = 150

func (s target) checkPeak() {
	s.t.Helper()
	mib := s.peak()
	s.t.Logf("the process took up to %d MiB", mib)
	if mib > maxPeak {
		s.t.Errorf("the process took %d MiB, more than %d", mib, maxPeak)
	}
}

// checkLives requires a response over a new connection. It usually takes milliseconds;
// the long timeout is for a busy machine.
func (s target) checkLives(when string) {
	s.t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	begin := time.Now()
	resp, err := client.Get(s.URL + "/livez")
	if err != nil {
		s.t.Errorf("%s: %v", when, err)
		return
	}
	resp.Body.Close() //nolint:errcheck // a test's
	s.t.Logf("%s, /livez answers within %v", when, time.Since(begin))
	if resp.StatusCode != http.StatusOK {
		s.t.Errorf("%s: /livez answers %s", when, resp.Status)
	}
}

// TestConnectionsWithoutEnd opens more connections than the process may have files, and
// sends nothing on them.
func TestConnectionsWithoutEnd(t *testing.T) {
	for _, more := range [][]string{nil, {"--max-connections-per-address", "100000"}} {
		s := attacked(t, 200, more...)
		var held []net.Conn
		for range 500 {
			if c, err := net.DialTimeout("tcp", s.GRPC, time.Second); err == nil {
				held = append(held, c)
			}
		}
		s.checkLives("while connections are held")
		for _, c := range held {
			c.Close() //nolint:errcheck // a test's
		}
		s.checkLives("after them")
		s.checkPeak()
	}
}

// zeros is a body of zero bytes.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), z.left))
	z.left -= int64(n)
	for i := range p[:n] {
		p[i] = 'a'
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestBodiesWithoutCredential sends large bodies, by HTTP and compressed by gRPC, without
// a token and with one.
func TestBodiesWithoutCredential(t *testing.T) {
	s := attacked(t, 4096)
	for token, want := range map[string]int{"": http.StatusUnauthorized, s.Token: http.StatusRequestEntityTooLarge} {
		body := io.MultiReader(strings.NewReader(`{"input":"`), &zeros{left: 150 << 20})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/api/v1/apps/default/jobs/x", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Logf("the server closed the connection: %v", err) // the server may close before the client reads its response
			continue
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close() //nolint:errcheck // a test's
		if resp.StatusCode != want {
			t.Errorf("%s %s, want %d", resp.Status, answer, want)
		}
	}

	// 4 million empty nodes of a workflow: 8 MiB, but only some KiB compressed.
	nodes := bytes.Repeat([]byte{1<<3 | 2, 0}, 4<<20)
	workflow := protowire.AppendBytes(protowire.AppendTag(nil, fieldOf(t, (&apiv1.Job{}).ProtoReflect(), "workflow"), protowire.BytesType), nodes)
	bomb := protowire.AppendBytes(protowire.AppendTag(nil, fieldOf(t, (&apiv1.ApplyJobRequest{}).ProtoReflect(), "job"), protowire.BytesType), workflow)
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test's
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "wrong": codes.Unauthenticated, s.Token: codes.ResourceExhausted} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		err := conn.Invoke(ctx, "/wheelwork.v1.Jobs/ApplyJob", &bomb, &emptypb.Empty{}, grpc.UseCompressor("gzip"), grpc.ForceCodec(rawCodec{}))
		if status.Code(err) != want {
			t.Errorf("a compressed message of %d bytes: %v, want %v", len(bomb), err, want)
		}
	}
	s.checkLives("after the bodies")
	s.checkPeak()
}

func fieldOf(t *testing.T, m protoreflect.Message, name protoreflect.Name) protowire.Number {
	t.Helper()
	f := m.Descriptor().Fields().ByName(name)
	if f == nil {
		t.Fatalf("%s has no field %s", m.Descriptor().FullName(), name)
	}
	return f.Number()
}

// rawCodec sends bytes unchanged.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal([]byte, any) error   { return nil }
func (rawCodec) Name() string                  { return "proto" }

// TestStreamsWithoutCredential opens streams endlessly on one connection, sends large
// headers, and leaves connections idle.
func TestStreamsWithoutCredential(t *testing.T) {
	s := attacked(t, 4096, "--idle-timeout", "1s")
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test's
	health := healthv1.NewHealthClient(conn)
	mine, err := health.Watch(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+s.Token), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	open, refused := 0, 0
	for range 20_000 {
		w, err := health.Watch(ctx, &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		switch status.Code(err) {
		case codes.OK:
			open++
		case codes.ResourceExhausted:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if open > 256 || refused == 0 {
		t.Errorf("%d streams without a token are open on one connection", open)
	}
	with := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+s.Token)
	for range 300 { // calls with a credential are not throttled
		if _, err := apiv1.NewClusterClient(conn).GetVersion(with, &apiv1.GetVersionRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	large := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("y", 200<<10))
	if _, err := health.Check(large, &healthv1.HealthCheckRequest{}); err == nil {
		t.Error("headers of 200 KiB were accepted")
	}

	idle, err := net.Dial("tcp", s.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close() //nolint:errcheck // a test's
	fmt.Fprintf(idle, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	idle.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // a test's
	if _, err := io.Copy(io.Discard, idle); err != nil {
		t.Errorf("a connection without requests stays open: %v", err)
	}
	if _, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("the connection with an open stream: %v", err)
	}
	going := make(chan error, 1)
	go func() { _, err := mine.Recv(); going <- err }()
	select {
	case err := <-going:
		t.Errorf("a stream that is open was cut after the idle time: %v", err)
	default:
	}
	s.checkLives("after the streams")
	s.checkPeak()
}
