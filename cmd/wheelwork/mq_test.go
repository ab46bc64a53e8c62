package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	"github.com/wheelworkhq/wheelwork/mq"
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
			"serve":  func(ts *testscript.TestScript, _ bool, _ []string) { serve(ts, running(ts)) },
			"end":    func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(running(ts).end()) },
			"accept": acceptTrigger,
			"tail":   tailOnce,
			"until":  until,
			"flip":   flipBit,
		},
	})
}

// serve is the script command "serve": it starts a server on $DATA and returns when it is
// ready.
func serve(ts *testscript.TestScript, p *program) {
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
		if run(context.Background(), args[1:], strings.NewReader(""), &out, &out, ts.Getenv) == exitOK && want.Match(out.Bytes()) {
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
	if code := run(ctx, append([]string{"mq", "tail"}, args...), strings.NewReader(""), out, &errOut, ts.Getenv); code != exitOK || errOut.Len() > 0 {
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

// TestFits checks that a journal must end after the last record that its store has
// applied, and must be complete from there on.
func TestFits(t *testing.T) {
	lost := func(first, end uint64) mq.Report { return mq.Report{Damage: []mq.Damage{{First: first, End: end}}} }
	for _, tt := range []struct {
		name    string
		r       mq.Repaired
		applied uint64
		want    string // part of the refusal; "": it fits
	}{
		{"cut behind the store", mq.Repaired{Choice: mq.CutBehind, Found: lost(7, 8), Next: 7}, 6, ""},
		{"cut away what the store has", mq.Repaired{Choice: mq.CutBehind, Found: lost(7, 8), Next: 7}, 7, "choose skip"},
		{"skip what the store has", mq.Repaired{Choice: mq.SkipDamaged, Found: lost(7, 9), Next: 20}, 8, ""},
		{"skip what the store lacks", mq.Repaired{Choice: mq.SkipDamaged, Found: lost(7, 9), Next: 20}, 7, "choose cut"},
		{"nothing is lost", mq.Repaired{Choice: mq.SkipDamaged, Found: lost(9, 9), Next: 20}, 3, ""},
	} {
		err := fits(tt.r, tt.applied)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestBodies(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, tt := range []struct {
		text         string
		body         []byte
		short, whole string
	}{
		{`{"a":1}`, []byte{1}, `{"a":1}`, "{\n  \"a\": 1\n}"},
		{"", []byte("plain\ntext"), "plain\ntext", "plain\ntext"},
		{"", []byte(long), strings.Repeat("é", 160) + "…", long},
		{"", []byte("\x1b[2J"), "1b5b324a", hex.Dump([]byte("\x1b[2J"))},
		{"", make([]byte, 100), strings.Repeat("00", 80) + "…", hex.Dump(make([]byte, 100))},
	} {
		if got := excerpt(tt.text, tt.body); got != tt.short {
			t.Errorf("excerpt of %q: %q, want %q", tt.body, got, tt.short)
		}
		if got := bodyText(tt.text, tt.body); got != tt.whole {
			t.Errorf("%q in full: %q, want %q", tt.body, got, tt.whole)
		}
	}
}

func TestFindLogs(t *testing.T) {
	root := t.TempDir()
	put := func(names ...string) string {
		t.Helper()
		for _, name := range names {
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	put("a [b]/journal/1.seg", "a [b]/ingress/log/1.seg", "host/spool/1.seg", "half/REPAIR", "empty/x")
	for dir, want := range map[string]string{
		"a [b]":             "map[ingress:a [b]/ingress/log journal:a [b]/journal]",
		"a [b]/journal":     "map[journal:a [b]/journal]",
		"a [b]/ingress":     "map[ingress:a [b]/ingress/log]",
		"a [b]/ingress/log": "map[log:a [b]/ingress/log]",
		"host":              "map[spool:host/spool]",
		"half":              "map[half:half]",
		"empty":             "",
		"nothing":           "",
	} {
		p, err := findLogs(filepath.Join(root, dir))
		got := strings.ReplaceAll(fmt.Sprint(p.all()), root+"/", "")
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %s, want %s (%v)", dir, got, want, err)
		}
	}
}
