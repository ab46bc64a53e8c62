package host

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

// heard returns the module states that the host reports, up to the first report with the
// state last.
func (s *script) heard(last string) []string {
	var all []string
	for m := range s.up {
		for _, x := range m.Modules {
			all = append(all, x.State+" "+x.Digest[7:11]+" "+x.Error)
			if x.State == last {
				return all
			}
		}
	}
	return all
}

// TestPrefetch checks that a module is loaded before its first task, and that its state
// is reported to the server, again on each new stream.
func TestPrefetch(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(nil)
		<-b.server.hello
		digest := modules.Digest(b.server.code)
		b.server.down <- &apiv1.WorkDown{Prefetch: []*apiv1.Prefetch{{App: "a", Digest: digest}, {App: "a", Digest: digest}}}
		if got := <-b.engine.loaded; got != digest {
			t.Errorf("loaded %s", got)
		}
		if got := strings.Join(b.server.heard("ready"), ", "); !strings.HasSuffix(got, "ready "+digest[7:11]+" ") {
			t.Errorf("the server heard %q", got)
		}
		synctest.Wait()
		if len(b.engine.loaded) != 0 {
			t.Error("loaded twice")
		}
		b.server.end <- struct{}{}
		<-b.server.hello
		if got := b.server.heard("ready"); len(got) != 1 || got[0] != "ready "+digest[7:11]+" " {
			t.Errorf("a new stream heard %q", got)
		}
		if _, err := os.Stat(filepath.Join(b.dir, "modules", "sha256", digest[7:9], digest[7:])); err != nil {
			t.Errorf("the module is not in the cache: %v", err)
		}
		stop()
	})
}

// TestPrefetchThatFails checks that the server gets the reason.
func TestPrefetchThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(nil)
		<-b.server.hello
		other := modules.Digest([]byte("something else")) // the server sends other bytes
		b.server.down <- &apiv1.WorkDown{Prefetch: []*apiv1.Prefetch{{App: "a", Digest: other}}}
		got := strings.Join(b.server.heard("failed"), ", ")
		if !strings.Contains(got, "failed "+other[7:11]+" fetch: the server sent sha256:") {
			t.Errorf("the server heard %q", got)
		}
		stop()
	})
}

// TestDamagedCacheIsFetchedAgain changes a file of the cache: the module must neither run
// nor stay in the cache.
func TestDamagedCacheIsFetchedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		digest := modules.Digest(b.server.code)
		store, err := modules.Open(filepath.Join(b.dir, "modules"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(b.server.code); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(b.dir, "modules", "sha256", digest[7:9], digest[7:])
		if err := os.WriteFile(path, []byte("modu1e"), 0o600); err != nil {
			t.Fatal(err)
		}
		stop := b.start(nil)
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Prefetch: []*apiv1.Prefetch{{App: "a", Digest: digest}}}
		<-b.engine.loaded
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b.server.code) {
			t.Errorf("the cache holds %q, %v", got, err)
		}
		stop()
	})
}

// TestCacheIsBounded puts more into the cache than fits.
func TestCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	store, err := modules.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{cfg: Config{Modules: store, ModuleBytes: 2500}}
	var last string
	for i := range 5 {
		code := bytes.Repeat([]byte{byte(i)}, 1000)
		last = modules.Digest(code)
		if err := h.cache(last, code); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := store.List(); err != nil || len(all) != 2 || !store.Has(last) {
		t.Errorf("%d modules are in a cache for two, %v; the last is: %v", len(all), err, store.Has(last))
	}
	large := bytes.Repeat([]byte{9}, 5000) // larger than the cache, but needed
	if err := h.cache(modules.Digest(large), large); err != nil || !store.Has(modules.Digest(large)) {
		t.Errorf("a module that is larger than the cache: %v", err)
	}
}

// prover is a server that returns the signatures of modules.
type prover struct {
	apiv1.WorkerClient
	proof *apiv1.ModuleProof
	err   error
	asked int
}

func (p *prover) GetModuleProof(context.Context, *apiv1.GetModuleProofRequest, ...grpc.CallOption) (*apiv1.ModuleProof, error) {
	p.asked++
	return p.proof, p.err
}

// signer is a key pair.
type signer struct {
	private ed25519.PrivateKey
	key     string
}

func newSigner(t *testing.T) signer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer{private, modules.KeyText(public)}
}

func (s signer) sign(t *testing.T, digest string) *apiv1.Signature {
	t.Helper()
	x, err := modules.Sign(s.private, digest)
	if err != nil {
		t.Fatal(err)
	}
	return &apiv1.Signature{Key: x.Key, Signature: x.Signature}
}

// TestCheckSigned checks which modules the host may load, independently of the server.
func TestCheckSigned(t *testing.T) {
	ours, theirs, digest := newSigner(t), newSigner(t), modules.Digest([]byte("code"))
	by := func(all ...signer) (sigs []*apiv1.Signature) {
		for _, s := range all {
			sigs = append(sigs, s.sign(t, digest))
		}
		return sigs
	}
	forged := theirs.sign(t, digest)
	forged.Key = ours.key
	trust := modules.TrustID([]string{ours.key})
	for _, tt := range []struct {
		name     string
		trust    string
		operator []string
		proof    *apiv1.ModuleProof
		err      error
		ok       bool
		asks     int // calls of GetModuleProof for two loads
	}{
		{name: "nobody asks", ok: true},
		{name: "signed", trust: trust, proof: &apiv1.ModuleProof{Required: true, Keys: []string{ours.key}, Signatures: by(theirs, ours)}, ok: true, asks: 1},
		{name: "not signed", trust: trust, proof: &apiv1.ModuleProof{Required: true, Keys: []string{ours.key}}, asks: 2},
		{name: "signed by others", trust: trust, proof: &apiv1.ModuleProof{Required: true, Keys: []string{ours.key}, Signatures: by(theirs)}, asks: 2},
		{name: "forged", trust: trust, proof: &apiv1.ModuleProof{Required: true, Keys: []string{ours.key}, Signatures: []*apiv1.Signature{forged}}, asks: 2},
		{name: "nobody is trusted", trust: trust, proof: &apiv1.ModuleProof{Required: true, Signatures: by(ours)}, asks: 2},
		{name: "a null in the list", trust: trust, proof: &apiv1.ModuleProof{Required: true, Keys: []string{ours.key}, Signatures: []*apiv1.Signature{nil}}, asks: 2},
		{name: "the keys changed", trust: "older", proof: &apiv1.ModuleProof{Required: true, Keys: []string{ours.key}, Signatures: by(ours)}, ok: true, asks: 2},
		{name: "required no more", trust: trust, proof: &apiv1.ModuleProof{}, ok: true, asks: 2},
		{name: "the operator's", operator: []string{ours.key}, proof: &apiv1.ModuleProof{Signatures: by(ours)}, ok: true, asks: 1},
		{name: "not the operator's", operator: []string{ours.key}, proof: &apiv1.ModuleProof{Signatures: by(theirs)}, asks: 2},
		{name: "the app's and not the operator's", trust: trust, operator: []string{theirs.key}, proof: &apiv1.ModuleProof{Required: true, Keys: []string{ours.key}, Signatures: by(ours)}, asks: 2},
		{name: "no answer", trust: trust, err: status.Error(codes.Unavailable, "gone"), asks: 2},
	} {
		p := &prover{proof: tt.proof, err: tt.err}
		h := &Host{cfg: Config{TrustedKeys: tt.operator}, modules: newModuleTable()}
		for range 2 {
			err := h.checkSigned(t.Context(), func() apiv1.WorkerClient { return p }, want{"a", digest, tt.trust})
			if (err == nil) != tt.ok {
				t.Errorf("%s: %v", tt.name, err)
			}
			if err != nil && tt.err == nil && !errors.Is(err, errNotSigned) {
				t.Errorf("%s: %v is not told from other failures", tt.name, err)
			}
		}
		if p.asked != tt.asks {
			t.Errorf("%s: asked %d times, want %d", tt.name, p.asked, tt.asks)
		}
	}
	h := &Host{modules: newModuleTable()}
	if err := h.checkSigned(t.Context(), func() apiv1.WorkerClient { return nil }, want{"a", digest, trust}); err == nil || !strings.Contains(err.Error(), "no server is connected") {
		t.Errorf("without a server: %v", err)
	}
}

func TestModuleTableIsBounded(t *testing.T) {
	h := &Host{modules: newModuleTable(), tell: func(*apiv1.ModuleState) {}}
	for i := range 2 * maxModules {
		digest := modules.Digest([]byte{byte(i), byte(i >> 8)})
		h.prefetch([]*apiv1.Prefetch{{App: "a", Digest: digest}})
		h.report(&apiv1.ModuleState{Digest: digest, State: "ready"})
	}
	if len(h.modules.ahead) > maxModules || len(h.modules.states) > maxModules {
		t.Errorf("%d to prefetch and %d states", len(h.modules.ahead), len(h.modules.states))
	}
}

func TestHostRefusesWrongKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(func(cfg *Config) {
			cfg.TrustedKeys = []string{newSigner(t).key}
			bad := *cfg
			bad.TrustedKeys = []string{"ed25519:AAAA"}
			if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "is not a public key") {
				t.Errorf("a key that is none: %v", err)
			}
		})
		<-b.server.hello
		stop()
	})
}
