package access_test

import (
	"crypto/sha256"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// fleet is a state with join tokens and machines, and the time.
type fleet struct {
	t     *testing.T
	state *access.State
	now   time.Time
	pin   authority.Pin
}

func newFleet(t *testing.T) *fleet {
	return &fleet{t, access.NewState(), time.Unix(1_800_000_000, 0), authority.Pin{1, 2, 3}}
}

func (f *fleet) apply(changes []access.Change, err error) error {
	for _, c := range changes {
		f.state.Apply(c)
	}
	return err
}

func (f *fleet) token(q *apiv1.CreateJoinTokenRequest) *apiv1.JoinToken {
	f.t.Helper()
	q.Kind = "host"
	by := access.By{Principal: newIssuer(f.t).admin, Now: f.now, Random: &bytesOf{f.t.Name() + f.now.String()}}
	changes, token, err := f.state.Machines.CreateJoinToken(by, q, f.pin)
	if f.apply(changes, err) != nil {
		f.t.Fatal(err)
	}
	return token
}

// bytesOf are bytes that a seed decides.
type bytesOf struct{ seed string }

func (b *bytesOf) Read(p []byte) (int, error) {
	sum := sha256.Sum256([]byte(b.seed))
	b.seed = string(sum[:])
	return copy(p, sum[:]), nil
}

func keyOf(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }

// join lets a machine join with the key of a name.
func (f *fleet) join(token, id, key string) (authority.Machine, error) {
	changes, m, err := f.state.Machines.Join(&apiv1.JoinRequest{Token: token, Id: id, Name: "press " + id}, keyOf(key), "10.0.0.9", f.now, authority.DefaultLife)
	return m, f.apply(changes, err)
}

func (f *fleet) renew(id, key string, ended time.Time) error {
	changes, _, err := f.state.Machines.Renew(id, keyOf(key), ended, f.now, authority.DefaultLife)
	return f.apply(changes, err)
}

// TestJoinTokens checks the form of join tokens, which machines can join with one, how often and how long.
func TestJoinTokens(t *testing.T) {
	f := newFleet(t)
	two := f.token(&apiv1.CreateJoinTokenRequest{Apps: []string{"shop", "billing", "shop"}, Labels: map[string]string{"zone": "a"}, Executors: []string{"modules"}, Uses: 2, Ttl: "10m"})
	if pin, err := access.ParseJoinToken(two.Token); err != nil || pin != f.pin || !slices.Equal(two.Apps, []string{"billing", "shop"}) {
		t.Errorf("%v, %v", two, err)
	}
	for _, wrong := range []string{"", "wwk_abc", two.Token[:20], two.Token + "a", two.Token[:10] + "1" + two.Token[11:], strings.ToUpper(two.Token)} {
		if _, err := access.ParseJoinToken(wrong); err == nil {
			t.Errorf("%q is a join token", wrong)
		}
	}
	m, err := f.join(two.Token, "host-1", "k1")
	if err != nil || m.ID != "host-1" || len(m.Apps) != 2 || m.Labels["zone"] != "a" || m.Executors[0] != "modules" {
		t.Fatal(m, err)
	}
	for name, x := range map[string]struct {
		token, id, key string
		want           codes.Code
	}{
		"no token":                    {"", "host-9", "k9", codes.Unauthenticated},
		"another token":               {strings.Replace(two.Token, "a", "b", 1), "host-9", "k9", codes.Unauthenticated},
		"the id of another machine":   {two.Token, "host-1", "k9", codes.AlreadyExists},
		"the key of another machine":  {two.Token, "host-9", "k1", codes.AlreadyExists},
		"an id that is a path":        {two.Token, "../x", "k9", codes.InvalidArgument},
		"an id that is empty":         {two.Token, "", "k9", codes.InvalidArgument},
		"an id with a line break":     {two.Token, "a\nb", "k9", codes.InvalidArgument},
		"the same machine once again": {two.Token, "host-1", "k1", codes.OK},
	} {
		if _, err := f.join(x.token, x.id, x.key); status.Code(err) != x.want {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	if left := f.state.Machines.JoinTokens(f.now)[0].UsesLeft; left != 1 {
		t.Errorf("%d uses left after one machine has joined twice", left)
	}
	if _, err := f.join(two.Token, "host-2", "k2"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.join(two.Token, "host-3", "k3"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a third machine: %v", err)
	}
	if _, err := f.join(two.Token, "host-2", "k2"); err != nil {
		t.Errorf("a repeated answer after the last use: %v", err)
	}

	f.now = f.now.Add(time.Second)
	other := f.token(&apiv1.CreateJoinTokenRequest{Apps: []string{"payments"}})
	if m, err := f.join(other.Token, "host-2", "k2"); err != nil || m.Apps[0] != "payments" {
		t.Errorf("a machine joins again with another token: %v, %v", m, err)
	}
	if _, err := f.join(other.Token, "host-5", "k5"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("that token is used once: %v", err)
	}
	f.now = f.now.Add(time.Second)
	late := f.token(&apiv1.CreateJoinTokenRequest{Ttl: "1s"})
	revoked := f.token(&apiv1.CreateJoinTokenRequest{Uses: 2})
	if err := f.apply(f.state.Machines.RevokeJoinToken(revoked.Id)); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Second)
	for _, ended := range []string{late.Token, revoked.Token} {
		if _, err := f.join(ended, "host-4", "k4"); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a token that has ended: %v", err)
		}
	}
	if err := f.apply(f.state.Machines.RevokeJoinToken(revoked.Id)); status.Code(err) != codes.NotFound {
		t.Errorf("a token is revoked twice: %v", err)
	}
	by := access.By{Principal: newIssuer(t).admin, Now: f.now, Random: &bytesOf{"x"}}
	for _, q := range []*apiv1.CreateJoinTokenRequest{
		{Kind: ""},
		{Kind: "host", Ttl: "8d"},
		{Kind: "host", Ttl: "0s"},
		{Kind: "host", Uses: -1},
		{Kind: "host", Uses: 1_000_000},
		{Kind: "host", Apps: []string{"a b"}},
		{Kind: "host", Apps: []string{""}},
		{Kind: "host", Labels: map[string]string{"": "a"}},
		{Kind: "host", Executors: []string{strings.Repeat("a", 300)}},
	} {
		if _, _, err := f.state.Machines.CreateJoinToken(by, q, f.pin); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", q, err)
		}
	}
}

// TestCertificates renews, renames and revokes machines, and lets one join again that has lost its key.
func TestCertificates(t *testing.T) {
	f := newFleet(t)
	token := f.token(&apiv1.CreateJoinTokenRequest{Uses: 100, Ttl: "7d"})
	if _, err := f.join(token.Token, "host-1", "k1"); err != nil {
		t.Fatal(err)
	}
	ended := f.now.Add(authority.DefaultLife)
	f.now = f.now.Add(16 * time.Hour)
	if err := f.renew("host-1", "k1", ended); err != nil {
		t.Fatal(err)
	}
	all := f.state.Machines.Certificates()
	if len(all) != 1 || !all[0].ExpiresAt.AsTime().Equal(f.now.Add(authority.DefaultLife)) || !all[0].RenewedAt.AsTime().Equal(f.now) || all[0].Name != "press host-1" || all[0].Address != "10.0.0.9" {
		t.Errorf("%v", all)
	}
	ended = f.now.Add(authority.DefaultLife)
	f.now = ended.Add(24 * time.Hour) // the machine was off for a day
	for name, x := range map[string]struct {
		id, key string
		ended   time.Time
		want    codes.Code
	}{
		"another key":               {"host-1", "k2", ended, codes.Unauthenticated},
		"an unknown machine":        {"host-2", "k1", ended, codes.Unauthenticated},
		"more than seven days late": {"host-1", "k1", f.now.Add(-authority.Late - time.Second), codes.Unauthenticated},
		"a day late":                {"host-1", "k1", ended, codes.OK},
	} {
		if err := f.renew(x.id, x.key, x.ended); status.Code(err) != x.want {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	if _, err := f.join(token.Token, "host-1", "k-new"); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another key joins under the id of a machine: %v", err)
	}
	changes, m, err := f.state.Machines.RenameMachine("press host-1", "north")
	if f.apply(changes, err) != nil || m.Name != "north" {
		t.Errorf("%v, %v", m, err)
	}
	for _, name := range []string{"", strings.Repeat("a", 101), "a\x1bb"} {
		if _, _, err := f.state.Machines.RenameMachine("host-1", name); status.Code(err) != codes.InvalidArgument {
			t.Errorf("the name %q: %v", name, err)
		}
	}

	// A revoked machine cannot renew, and joins with another key.
	if err := f.apply(f.state.Machines.RevokeCertificate(&apiv1.RevokeCertificateRequest{Id: "north", Kind: "server"}, time.Now())); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a host is revoked as a server: %v", err)
	}
	if err := f.apply(f.state.Machines.RevokeCertificate(&apiv1.RevokeCertificateRequest{Id: "north", Kind: "host"}, time.Now())); err != nil {
		t.Fatal(err)
	}
	if err := f.renew("host-1", "k1", ended); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked machine renews: %v", err)
	}
	if err := f.apply(f.state.Machines.RevokeCertificate(&apiv1.RevokeCertificateRequest{Id: "host-1"}, time.Now())); status.Code(err) != codes.NotFound {
		t.Errorf("a machine is revoked twice: %v", err)
	}
	for _, id := range []string{"host-1", "host-9"} {
		if _, err := f.join(token.Token, id, "k-new"); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a revoked machine joins as %s with the token that it knows: %v", id, err)
		}
	}
	f.now = f.now.Add(time.Second)
	token = f.token(&apiv1.CreateJoinTokenRequest{Uses: 100})
	if _, err := f.join(token.Token, "host-1", "k-new"); err != nil {
		t.Errorf("a revoked machine joins again: %v", err)
	}
	for _, key := range []string{"b", "c"} {
		if changes, _, err := f.state.Machines.Join(&apiv1.JoinRequest{Token: token.Token, Id: "host-" + key, Name: "twin"}, keyOf(key), "", f.now, time.Hour); f.apply(changes, err) != nil {
			t.Fatal(err)
		}
	}
	if err := f.apply(f.state.Machines.RevokeCertificate(&apiv1.RevokeCertificateRequest{Id: "twin"}, time.Now())); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("one of two machines with a name is revoked: %v", err)
	}

	// The rows are loaded again as they were stored.
	again := access.NewState()
	for _, m := range f.state.Machines.Certificates() {
		changes, _, err := f.state.Machines.RenameMachine(m.Id, m.Name)
		if err != nil {
			t.Fatal(err)
		}
		kind, id, row := changes[0].Row()
		b, err := proto.Marshal(row)
		if err == nil {
			err = again.Load(kind, id, b)
		}
		if err != nil || !changes[0].OfCredentials() {
			t.Error(err)
		}
	}
	if got := again.Machines.Certificates(); len(got) != 3 || !proto.Equal(got[0], f.state.Machines.Certificates()[0]) {
		t.Errorf("%v", got)
	}
}

// TestEnroll makes servers known, and revokes one.
func TestEnroll(t *testing.T) {
	f := newFleet(t)
	one, two := [32]byte{1}, [32]byte{2}
	server := func(id string) authority.Machine { return authority.Machine{Kind: authority.Server, ID: id} }
	enroll := func(by *access.Principal, m authority.Machine, key [32]byte) error {
		return f.apply(f.state.Machines.Enroll(by, m, "", key, f.now.Add(time.Hour), f.now))
	}
	revoke := func(id string) error {
		return f.apply(f.state.Machines.RevokeCertificate(&apiv1.RevokeCertificateRequest{Id: id, Kind: "server"}, f.now))
	}
	if err := enroll(nil, authority.Machine{Kind: authority.Host, ID: "host-1"}, one); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a host enrolls itself: %v", err)
	}
	if err := enroll(nil, server("srv-1"), one); err != nil {
		t.Fatal(err)
	}
	if err := revoke("srv-1"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the only server is revoked: %v", err)
	}
	first := server("srv-1")
	if err := enroll(&access.Principal{Machine: &first}, server("srv-2"), two); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a server enrolls another one: %v", err)
	}
	if err := enroll(nil, server("srv-2"), two); err != nil {
		t.Fatal(err)
	}
	if err := revoke("srv-2"); err != nil {
		t.Fatal(err)
	}
	if err := enroll(nil, server("srv-2"), two); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked server enrolls itself again: %v", err)
	}
	all := f.state.Machines.Certificates()
	if len(all) != 2 || all[0].RevokedAt != nil || all[1].RevokedAt == nil {
		t.Errorf("%v", all)
	}
	for _, c := range f.state.Credentials() {
		if revoked := c.Of.Name == "srv-2"; (c.Invalid != "") != revoked || !c.Until.IsZero() || c.Of.Process.Name != "server" {
			t.Errorf("%+v", c)
		}
	}
	if err := revoke("srv-1"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the last server that was not revoked is revoked: %v", err)
	}
}

// TestServerCertificates: a guard accepts a server that is not enrolled yet, and none whose id has another key or was
// revoked.
func TestServerCertificates(t *testing.T) {
	ca, err := authority.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t)
	f.now = time.Now()
	guard := access.New()
	shows := func(m authority.Machine) (*x509.Certificate, func() error) {
		t.Helper()
		key, err := authority.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		text, err := ca.Issue(key.Public(), m, nil, f.now)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := authority.ParseCertificate(text)
		if err != nil {
			t.Fatal(err)
		}
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: shown{cert: cert}})
		return cert, func() error {
			_, err := guard.Caller(ctx, apiv1.Nameserver_Join_FullMethodName)
			return err
		}
	}
	server := authority.Machine{Kind: authority.Server, ID: "srv-1"}
	cert, own := shows(server)
	_, copied := shows(server)
	_, host := shows(authority.Machine{Kind: authority.Host, ID: "host-1"})
	if err := own(); err != nil {
		t.Errorf("a new server: %v", err)
	}
	if err := host(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a host that never joined: %v", err)
	}
	for _, x := range []struct {
		id  string
		key [32]byte
	}{{"srv-1", authority.KeyDigest(cert)}, {"srv-2", keyOf("two")}} {
		m := authority.Machine{Kind: authority.Server, ID: x.id}
		if err := f.apply(f.state.Machines.Enroll(nil, m, "", x.key, f.now.Add(time.Hour), f.now)); err != nil {
			t.Fatal(err)
		}
	}
	guard.Issue(f.state.Credentials())
	if err := own(); err != nil {
		t.Errorf("an enrolled server: %v", err)
	}
	if err := copied(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("another key for the id of a server: %v", err)
	}
	if err := f.apply(f.state.Machines.RevokeCertificate(&apiv1.RevokeCertificateRequest{Id: "srv-1"}, f.now)); err != nil {
		t.Fatal(err)
	}
	guard.Issue(f.state.Credentials())
	if err := own(); status.Code(err) != codes.Unauthenticated || !guard.Revoked("srv-1") || guard.Revoked("srv-2") {
		t.Errorf("a revoked server: %v", err)
	}
}
