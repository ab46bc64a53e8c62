package sched_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
)

// withToken returns a context whose calls send a token.
func withToken(t *testing.T, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

const adminOfTest = "the token of the administrator"

func guardOfTest() *access.Guard {
	g := access.New()
	g.Allow(adminOfTest, access.Admin)
	return g
}

// TestAccessPower creates, rotates and revokes tokens while the power fails at each append, before or
// after it reaches the disk. What was acknowledged holds after the restart, whether the state comes
// from the journal or from the store, and a standby has it too.
func TestAccessPower(t *testing.T) {
	for _, standsBy := range []bool{false, true} {
		t.Run(fmt.Sprintf("standby %t", standsBy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.guard, w.standsBy, w.checkpointEvery = guardOfTest, standsBy, 50*time.Millisecond
				var d *disk
				w.wrap = func(inner journal.Journal) journal.Journal {
					d = &disk{Journal: inner, note: w.note()}
					return d
				}
				w.start()
				c := w.client()
				defer func() {
					c.close()
					w.close()
				}()
				api := func() apiv1.AccessClient { return apiv1.NewAccessClient(c.conn) }
				admin := withToken(t, adminOfTest)
				type known struct {
					id   string
					text string
					gone bool
				}
				var tokens []*known
				unanswered := 0
				for round := range 60 {
					cuts := round%3 == 2
					if cuts {
						d.cutPower(1, round%2 == 0)
					}
					var err error
					switch pick := round % 5; {
					case pick < 3 || len(tokens) == 0:
						var made *apiv1.Token
						if made, err = api().CreateToken(admin, &apiv1.CreateTokenRequest{Name: fmt.Sprint("p-", round%7), Role: "viewer", Scope: "app:shop"}); err == nil {
							tokens = append(tokens, &known{id: made.Id, text: made.Token})
						}
					case pick == 3:
						x := tokens[round%len(tokens)]
						if x.gone || x.text == "" {
							d.spare()
							continue
						}
						var made *apiv1.Token
						if made, err = api().RotateToken(admin, &apiv1.RotateTokenRequest{Id: x.id, Keep: "0s"}); err == nil {
							x.text = made.Token
						} else {
							x.text = "" // the answer is lost: the former text or an unknown one holds
						}
					default:
						x := tokens[round%len(tokens)]
						if x.gone || x.text == "" {
							d.spare()
							continue
						}
						if _, err = api().RevokeToken(admin, &apiv1.RevokeTokenRequest{Id: x.id}); err == nil {
							x.gone = true
						} else {
							x.text = ""
						}
					}
					if cuts {
						if err != nil {
							unanswered++
						}
						synctest.Wait()
						w.stopServer()
						w.start()
						c.reconnect(w)
					} else if err != nil {
						t.Fatal(err)
					}
					if round%10 == 9 {
						time.Sleep(time.Second) // the rows are in the store
					}
					for _, x := range tokens {
						if x.text == "" {
							continue
						}
						_, err := api().WhoAmI(withToken(t, x.text), &apiv1.WhoAmIRequest{})
						if want := map[bool]codes.Code{true: codes.Unauthenticated}[x.gone]; status.Code(err) != want {
							t.Fatalf("round %d: the token %s, revoked %t: %v", round, x.id, x.gone, err)
						}
					}
				}
				if unanswered < 5 || len(tokens) < 20 {
					t.Errorf("%d changes without an answer, %d tokens", unanswered, len(tokens))
				}
			})
		})
	}
}

// TestAccessFull checks that a full disk refuses a new token, and that the server goes on.
func TestAccessFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.guard = guardOfTest
		var d *disk
		w.wrap = func(inner journal.Journal) journal.Journal {
			d = &disk{Journal: inner, note: w.note()}
			return d
		}
		w.start()
		c := w.client()
		api, admin := apiv1.NewAccessClient(c.conn), withToken(t, adminOfTest)
		create := func() error {
			_, err := api.CreateToken(admin, &apiv1.CreateTokenRequest{Name: "p", Role: "viewer", Scope: "cluster"})
			return err
		}
		d.fill(1 << 20)
		if err := create(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("on a full disk: %v", err)
		}
		d.free()
		if err := create(); err != nil {
			t.Error(err)
		}
		list, err := api.ListTokens(admin, &apiv1.ListTokensRequest{})
		if err != nil || len(list.Tokens) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		c.close()
		w.close()
	})
}
