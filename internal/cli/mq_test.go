package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
)

// patience bounds each wait of these scripts for an action of the program.
const patience = 20 * time.Second

// program is the process that a script has started.
type program struct {
	cmd *exec.Cmd
}

func (p *program) end() error {
	if p.cmd == nil {
		return nil
	}
	cmd := p.cmd
	p.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return cmd.Wait()
}

// TestMQ runs the scripts against servers that they start and stop, and against the files
// of stopped servers.
func TestMQ(t *testing.T) {
	type key struct{}
	running := func(ts *testscript.TestScript) *program { return ts.Value(key{}).(*program) }
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/mq",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", raceOptions)
			p := &program{}
			e.Values[key{}] = p
			e.Defer(func() {
				if err := p.end(); err != nil {
					t.Errorf("the end of the server: %v", err)
				}
			})
			e.Setenv("TZ", "UTC")
			e.Setenv("DATA", filepath.Join(e.WorkDir, "data"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  func(ts *testscript.TestScript, _ bool, _ []string) { startServer(ts, running(ts)) },
			"end":    func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(running(ts).end()) },
			"accept": acceptTrigger,
			"tail":   tailOnce,
			"until":  until,
			"flip":   flipBit,
		},
	})
}

// startServer is the script command "serve": it starts a server on $DATA and returns when it is
// ready.
func startServer(ts *testscript.TestScript, p *program) {
	p.cmd = exec.Command("wheelwork", "dev", "--data", ts.Getenv("DATA"), "--listen", "127.0.0.1:0", "-o", "json")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	var ready node.Ready
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		ts.Fatalf("wheelwork dev did not become ready: %v", err)
	}
	ts.Setenv("WHEELWORK_URL", ready.URL)
	ts.Setenv("WHEELWORK_TOKEN", ready.Token)
}

// acceptTrigger is the script command "accept JOB": the server accepts a trigger of a job
// that does not exist. It returns when the trigger is a dead letter, and sets $LETTER to
// its id.
func acceptTrigger(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+ts.Getenv("WHEELWORK_TOKEN"))
	conn, err := grpc.NewClient(strings.TrimPrefix(ts.Getenv("WHEELWORK_URL"), "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	stream, err := apiv1.NewProducerClient(conn).Produce(ctx)
	ts.Check(err)
	trigger := &apiv1.TriggerJobRequest{App: "default", Name: args[0]}
	ts.Check(stream.Send(&apiv1.ProduceRequest{
		Number: 1, Ack: "accepted", Commands: []*apiv1.Command{{Kind: &apiv1.Command_Trigger{Trigger: trigger}}},
	}))
	answer, err := stream.Recv()
	ts.Check(err)
	if r := answer.Results[0]; r.Result != "accepted" || r.Code != 0 {
		ts.Fatalf("the server answered %v", r)
	}
	for q := apiv1.NewQueuesClient(conn); ; {
		page, err := q.ListDeadLetters(ctx, &apiv1.ListDeadLettersRequest{Filter: &apiv1.DeadLetterFilter{Key: "default/" + args[0]}})
		ts.Check(err)
		if len(page.Letters) > 0 {
			ts.Setenv("LETTER", page.Letters[len(page.Letters)-1].Id)
			return
		}
	}
}

// until is the script command "until PATTERN ARGS...": it repeats the program until the
// output matches.
func until(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	var out bytes.Buffer
	for end := time.Now().Add(patience); time.Now().Before(end); {
		out.Reset()
		if execute(context.Background(), args[1:], strings.NewReader(""), &out, &out, ts.Getenv) == exitOK && want.Match(out.Bytes()) {
			return
		}
	}
	ts.Fatalf("%v printed no %q, last:\n%s", args[1:], args[0], &out)
}

// interrupter cancels at the first write.
type interrupter struct {
	bytes.Buffer
	once   sync.Once
	cancel func()
}

func (i *interrupter) Write(b []byte) (int, error) {
	i.once.Do(i.cancel)
	return i.Buffer.Write(b)
}

// tailOnce is the script command "tail ARGS...": it runs mq tail until the first output,
// and then cancels it like Ctrl-C, which is not a failure.
func tailOnce(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out := &interrupter{cancel: cancel}
	var errOut bytes.Buffer
	if code := execute(ctx, append([]string{"mq", "tail"}, args...), strings.NewReader(""), out, &errOut, ts.Getenv); code != exitOK || errOut.Len() > 0 {
		ts.Fatalf("exit code %d after Ctrl-C: %s", code, &errOut)
	}
	_, err := io.Copy(ts.Stdout(), &out.Buffer)
	ts.Check(err)
}

// flipBit is the script command "flip FILE TEXT": it inverts a bit of the first
// occurrence of the text.
func flipBit(ts *testscript.TestScript, _ bool, args []string) {
	raw, err := os.ReadFile(args[0])
	ts.Check(err)
	at := bytes.Index(raw, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("there is no %q in %s", args[1], args[0])
	}
	raw[at] ^= 1
	ts.Check(os.WriteFile(args[0], raw, 0o600))
}
