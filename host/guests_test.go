package host

import (
	"bytes"
	"context"
	"net/url"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// drawGrants draws grants whose parts often match.
func drawGrants(t *rapid.T, what string) *apiv1.Grants {
	some := func(name string, of ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(of), 0, 3).Draw(t, what+name)
	}
	g := &apiv1.Grants{
		Secrets: some("secrets", "a", "b", "c"),
		Enqueue: some("enqueue", "*", "job", "other", "shop/job", "home/job"),
	}
	for _, host := range some("hosts", "example.com", "*.example.com", "api.example.com", "*.api.example.com", "example.com:443", "example.com:8443", "[::1]:80") {
		g.Http = append(g.Http, &apiv1.HttpGrant{
			Host: host, Methods: some("methods", "GET", "POST", "PUT"), Paths: some("paths", "/", "/v1", "/v1/", "/v1/a", "/v10"),
			Private: rapid.Bool().Draw(t, what+"private"),
		})
	}
	for _, name := range some("kv", "x", "y") {
		g.Kv = append(g.Kv, &apiv1.BucketGrant{Name: name, Write: rapid.Bool().Draw(t, what+"write")})
	}
	return g
}

// mayPrivate reports whether a grant allows a request to a private address.
func mayPrivate(g *runtime.Grants, method string, u *url.URL) bool {
	return g != nil && slices.ContainsFunc(g.HTTP, func(h runtime.HTTPGrant) bool { return h.Private && h.Covers(method, u) })
}

// TestEffectiveGrantsMeanBoth compares job.Effective, with which the server combines
// requested and granted capabilities, with the host's interpretation of grants: the
// result allows exactly the requests that both allow.
func TestEffectiveGrantsMeanBoth(t *testing.T) {
	var cache grantCache
	rapid.Check(t, func(t *rapid.T) {
		requested, granted := drawGrants(t, "requested "), drawGrants(t, "granted ")
		for _, g := range []*apiv1.Grants{requested, granted} {
			if err := job.CheckGrants(g); err != nil {
				t.Fatal(err)
			}
		}
		before := proto.CloneOf(requested)
		e := job.Effective(requested, granted)
		if !proto.Equal(before, requested) {
			t.Fatalf("the request was changed to %v", requested)
		}
		if err := job.CheckGrants(proto.CloneOf(e)); err != nil {
			t.Fatalf("what is left is refused: %v", err)
		}
		r, g, both := grantsOf(requested), grantsOf(granted), cache.of(job.EncodeGrants(e))
		if again := cache.of(job.EncodeGrants(e)); again != both {
			t.Fatal("tasks of one module do not share their grants")
		}
		for _, at := range []string{"example.com", "www.example.com", "api.example.com", "x.api.example.com", "example.com:8443", "example.com:443", "[::1]", "evil.com", "notexample.com"} {
			for _, scheme := range []string{"http", "https"} {
				for _, path := range []string{"", "/", "/v1", "/v1/a", "/v1/a/b", "/v10", "/v10/a"} {
					u, err := url.Parse(scheme + "://" + at + path)
					if err != nil {
						t.Fatal(err)
					}
					for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE"} {
						want := r.Request(method, u) != nil && g.Request(method, u) != nil
						if got := both.Request(method, u) != nil; got != want {
							t.Fatalf("%s %s is allowed: %v, want %v\nrequested %v\ngranted %v\neffective %v", method, u, got, want, requested, granted, e)
						}
						if mayPrivate(both, method, u) != (mayPrivate(r, method, u) && mayPrivate(g, method, u)) {
							t.Fatalf("%s %s at a private address: requested %v\ngranted %v\neffective %v", method, u, requested, granted, e)
						}
					}
				}
			}
		}
		for _, name := range []string{"x", "y", "z"} {
			for _, write := range []bool{false, true} {
				want := r.Bucket(name, write) && g.Bucket(name, write)
				if got := both.Bucket(name, write); got != want || job.MayUse(e, name, write) != want {
					t.Fatalf("bucket %s, write %v: %v, want %v", name, write, got, want)
				}
			}
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			want := r.Secret(name) && g.Secret(name)
			if both.Secret(name) != want || job.MayKnow(e, name) != want {
				t.Fatalf("secret %s: want %v", name, want)
			}
		}
		for _, to := range [][2]string{{"home", "job"}, {"home", "other"}, {"home", "third"}, {"shop", "job"}, {"shop", "other"}} {
			if host, server := both.Target("home", to[0], to[1]), job.MayEnqueue(e, "home", to[0], to[1]); host != server {
				t.Fatalf("job %v: the host says %v, the server %v of %v", to, host, server, e.GetEnqueue())
			}
			if both.Target("home", to[0], to[1]) && !(r.Target("home", to[0], to[1]) && g.Target("home", to[0], to[1])) {
				t.Fatalf("job %v is allowed by %v, asked %v, granted %v", to, e.GetEnqueue(), requested.Enqueue, granted.Enqueue)
			}
		}
	})
}

func TestGrantsThatCannotBeRead(t *testing.T) {
	var cache grantCache
	if g := cache.of([]byte{0xff, 0xff}); g != nil {
		t.Errorf("broken grants allow %+v", g)
	}
	if g := cache.of(nil); g != nil {
		t.Errorf("no grants allow %+v", g)
	}
	all := &apiv1.Grants{
		Http: []*apiv1.HttpGrant{{Host: "h", Methods: []string{"PUT"}, Paths: []string{"/p"}, Private: true}}, Kv: []*apiv1.BucketGrant{{Name: "b", Write: true}},
		Secrets: []string{"s"}, Enqueue: []string{"j"}, Files: []*apiv1.FileGrant{{Mount: "/m", Dir: "d", Write: true, Bytes: 7}},
	}
	want := &runtime.Grants{
		HTTP: []runtime.HTTPGrant{{Host: "h", Methods: []string{"PUT"}, Paths: []string{"/p"}, Private: true}}, KV: []runtime.Bucket{{Name: "b", Write: true}},
		Secrets: []string{"s"}, Enqueue: []string{"j"}, Files: []runtime.FileGrant{{Mount: "/m", Dir: "d", Write: true, Bytes: 7}},
	}
	if got := cache.of(job.EncodeGrants(all)); !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

func TestRoleVariable(t *testing.T) {
	env := map[string]string{"A": "1"}
	if got := withRole(env, ""); len(got) != 1 {
		t.Errorf("no role: %v", got)
	}
	if got := withRole(env, "reduce"); got["WHEELWORK_ROLE"] != "reduce" || got["A"] != "1" || len(env) != 1 {
		t.Errorf("with a role %v, before %v", got, env)
	}
	if got := withRole(nil, "root"); got["WHEELWORK_ROLE"] != "root" {
		t.Errorf("no environment: %v", got)
	}
}

// confidant implements Guests with one secret.
type confidant struct{ done int }

func (*confidant) Redact(_ *runtime.Task, text []byte) []byte {
	return bytes.ReplaceAll(text, []byte("s3cr3t"), []byte("[secret]"))
}

func (*confidant) Secret(context.Context, *runtime.Task, string) ([]byte, error) {
	return []byte("s3cr3t"), nil
}

func (c *confidant) Done(*runtime.Task) { c.done++ }

// TestWhatIsSaidIsRedacted: the host redacts log lines, progress, and all texts of a
// result except its output.
func TestWhatIsSaidIsRedacted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.engine.run = func(_ context.Context, _ runtime.Task, s runtime.Sink) runtime.Result {
			s.Log(runtime.LevelInfo, []byte("log s3cr3t"))
			s.Progress(1, 2, "progress s3cr3t")
			return runtime.Result{Outcome: runtime.Permanent, Output: []byte("s3cr3t"), Error: "error s3cr3t", Code: "s3cr3t_code", Trace: "trace s3cr3t"}
		}
		c := &confidant{}
		stop := b.start(func(cfg *Config) { cfg.Guests = c })
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1)}}
		var said []string
		var r *apiv1.TaskResult
		for up := range b.server.up { // log lines and progress arrive before the result, or with it
			for _, l := range up.Logs {
				said = append(said, string(l.Lines[0].Text))
			}
			for _, p := range up.Progress {
				said = append(said, p.Message)
			}
			if len(up.Results) > 0 {
				r = up.Results[0]
				break
			}
		}
		slices.Sort(said)
		if !slices.Equal(said, []string{"log [secret]", "progress [secret]"}) {
			t.Errorf("it said %q", said)
		}
		if r.Error != "error [secret]" || r.Code != "[secret]_code" || r.Trace != "trace [secret]" || string(r.Output) != "s3cr3t" || c.done != 1 {
			t.Errorf("result: %v, done %d times", r, c.done)
		}
		stop()
	})
}
