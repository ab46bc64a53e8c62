package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
)

// witness is a journal that counts the batches which change access, secrets or grants, and those of them
// without an audit event.
type witness struct {
	journal.Journal
	changes, without atomic.Int64
}

func (w *witness) Append(recs []journal.Record, done func(error)) (uint64, error) {
	changes, events := false, false
	for _, r := range recs {
		m := &apiv1.Record{}
		if err := proto.Unmarshal(r.Body, m); err != nil {
			return 0, err
		}
		switch m.Kind.(type) {
		case *apiv1.Record_AccessPut, *apiv1.Record_AccessDelete, *apiv1.Record_SecretPut, *apiv1.Record_SecretDelete, *apiv1.Record_GrantsPut:
			changes = true
		case *apiv1.Record_Audited:
			events = true
		}
	}
	if changes {
		w.changes.Add(1)
		if !events {
			w.without.Add(1)
		}
	}
	return w.Journal.Append(recs, done)
}

// protected returns all that the changes of TestAuditFailsClosed change, and the number of events.
func (a *audited) protected() string {
	a.t.Helper()
	var all []string
	add := func(m proto.Message, err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			a.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%T %x", m, text))
	}
	principals := apiv1.NewAccessClient(a.c.conn)
	p, err := principals.ListPrincipals(a.admin, &apiv1.ListPrincipalsRequest{})
	add(p, err)
	tokens, err := principals.ListTokens(a.admin, &apiv1.ListTokensRequest{})
	add(tokens, err)
	bindings, err := principals.ListBindings(a.admin, &apiv1.ListBindingsRequest{})
	add(bindings, err)
	secrets, err := apiv1.NewSecretsClient(a.c.conn).ListSecrets(a.admin, &apiv1.ListSecretsRequest{App: "shop"})
	add(secrets, err)
	grants, err := apiv1.NewModuleAccessClient(a.c.conn).ListGrants(a.admin, &apiv1.ListGrantsRequest{App: "shop"})
	add(grants, err)
	return fmt.Sprintf("%d events\n%s", len(a.events(&apiv1.ListAuditEventsRequest{})), strings.Join(all, "\n"))
}

// TestAuditFailsClosed makes each change of access, of a secret and of a grant while the journal cannot
// store its event. The caller gets an error, and neither the change nor an event is there, also after a
// restart. The same call then succeeds and makes both.
func TestAuditFailsClosed(t *testing.T) {
	for _, standsBy := range []bool{false, true} {
		t.Run(fmt.Sprintf("standby %t", standsBy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &audited{world: newWorld(t), t: t}
				a.guard, a.standsBy, a.checkpointEvery = guardOfTest, standsBy, 50*time.Millisecond
				seen := &witness{}
				a.wrap = func(inner journal.Journal) journal.Journal {
					a.d = &disk{Journal: inner, note: a.note()}
					seen.Journal = a.d
					return seen
				}
				a.start()
				a.c, a.admin = a.client(), withToken(t, adminOfTest)
				defer a.end()
				of := func() apiv1.AccessClient { return apiv1.NewAccessClient(a.c.conn) }
				token, err := of().CreateToken(a.admin, &apiv1.CreateTokenRequest{Name: "ci", Role: "viewer", Scope: "app:shop"})
				if err != nil {
					t.Fatal(err)
				}
				binding := &apiv1.Binding{}
				for _, tt := range []struct {
					name string
					call func() error
				}{
					{"create a token", func() error {
						_, err := of().CreateToken(a.admin, &apiv1.CreateTokenRequest{Name: "other", Role: "admin", Scope: "cluster"})
						return err
					}},
					{"add a binding", func() (err error) {
						made, err := of().AddBinding(a.admin, &apiv1.AddBindingRequest{Principal: "ci", Role: "admin", Scope: "cluster"})
						if err == nil {
							binding = made
						}
						return err
					}},
					{"remove a binding", func() error {
						_, err := of().RemoveBinding(a.admin, &apiv1.RemoveBindingRequest{Id: binding.Id})
						return err
					}},
					{"rotate a token", func() error {
						_, err := of().RotateToken(a.admin, &apiv1.RotateTokenRequest{Id: token.Id})
						return err
					}},
					{"revoke a token", func() error {
						_, err := of().RevokeToken(a.admin, &apiv1.RevokeTokenRequest{Id: token.Id})
						return err
					}},
					{"create a user", func() error {
						_, err := of().CreateUser(a.admin, &apiv1.CreateUserRequest{Name: "ada"})
						return err
					}},
					{"disable a user", func() error {
						_, err := of().DisableUser(a.admin, &apiv1.DisableUserRequest{Name: "ada", Disabled: true})
						return err
					}},
					{"set a secret", func() error {
						_, err := apiv1.NewSecretsClient(a.c.conn).SetSecret(a.admin, &apiv1.SetSecretRequest{App: "shop", Name: "s", ValueBytes: []byte("v")})
						return err
					}},
					{"delete a secret", func() error {
						_, err := apiv1.NewSecretsClient(a.c.conn).DeleteSecret(a.admin, &apiv1.DeleteSecretRequest{App: "shop", Name: "s"})
						return err
					}},
					{"give grants", func() error {
						_, err := apiv1.NewModuleAccessClient(a.c.conn).PutGrants(a.admin, &apiv1.PutGrantsRequest{Grants: &apiv1.ModuleGrants{App: "shop", Module: "m", Grants: &apiv1.Grants{Kv: []*apiv1.BucketGrant{{Name: "b"}}}}})
						return err
					}},
				} {
					before, made := a.protected(), seen.changes.Load()
					a.d.cutPower(1, false)
					if err := tt.call(); err == nil {
						t.Errorf("%s: the call succeeds without an event", tt.name)
					}
					if !a.d.isDead() || seen.changes.Load() != made+1 {
						t.Fatalf("%s: the change was not the append that failed", tt.name)
					}
					if err := tt.call(); err == nil { // of a server that ends
						t.Errorf("%s: the second call succeeds", tt.name)
					}
					a.restart()
					if after := a.protected(); after != before {
						t.Errorf("%s: after a call that failed there is\n%s\nand before\n%s", tt.name, after, before)
					}
					if err := tt.call(); err != nil {
						t.Fatalf("%s: %v", tt.name, err)
					}
					if after := a.protected(); after == before || after[:strings.Index(after, " ")] == before[:strings.Index(before, " ")] {
						t.Errorf("%s: after a call that succeeds there is\n%s\nand before\n%s", tt.name, after, before)
					}
				}
				if seen.without.Load() > 0 || seen.changes.Load() < 20 {
					t.Errorf("%d of %d changes were appended without an event", seen.without.Load(), seen.changes.Load())
				}
				if c := a.verify(); !c.Ok {
					t.Error(c)
				}
			})
		})
	}
}

// TestAuditSizes gives the log events that are larger than a record of the journal may be, one and
// many at once. Texts are cut with a mark, and the server goes on: a caller that is refused must not be
// able to end it.
func TestAuditSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		huge := strings.Repeat("ü", 4<<20)
		one := audit.Event{By: &apiv1.Attribution{Author: huge, Address: huge, Token: huge}, Row: audit.Row{Code: "call.denied", App: huge, Object: huge, Outcome: audit.Denied, Message: huge}}
		if err := a.srv.Note(t.Context(), []audit.Event{one}); err != nil {
			t.Fatal(err)
		}
		many := slices.Repeat([]audit.Event{one}, 600)
		for i := range many {
			many[i].By = proto.CloneOf(&apiv1.Attribution{Author: fmt.Sprint("caller ", i), Note: strings.Repeat("n", 500)})
			many[i].Row.Message = strings.Repeat("m", 10_000)
		}
		if err := a.srv.Note(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		a.apply("j", "")
		events := a.events(&apiv1.ListAuditEventsRequest{})
		if len(events) != 602 || events[601].Code != "job.created" {
			t.Fatalf("%d events", len(events))
		}
		for i, e := range events {
			if e.Sequence != uint64(i+1) || proto.Size(e) > 32<<10 {
				t.Fatalf("event %d has the sequence %d and %d bytes", i, e.Sequence, proto.Size(e))
			}
		}
		for what, text := range map[string]string{"app": events[0].App, "object": events[0].Object, "actor": events[0].Actor, "address": events[0].Address, "token": events[0].Token, "message": events[0].Message} {
			if !strings.HasPrefix(text, "üüü") || !strings.HasSuffix(text, "ü…") {
				t.Errorf("the %s of the event is cut to %d bytes: %.20s", what, len(text), text)
			}
		}
		if n := len(a.events(&apiv1.ListAuditEventsRequest{App: events[0].App, Actor: events[0].Actor})); n != 1 {
			t.Errorf("%d events are found by the cut names", n)
		}
		if c := a.verify(); !c.Ok || c.Events != 602 {
			t.Error(c)
		}
		a.restart() // the state comes from the journal too
		if c := a.verify(); !c.Ok || c.Events != 602 {
			t.Error(c)
		}
	})
}
