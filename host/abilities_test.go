package host

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// fitful is an executor that the test turns up and down.
type fitful struct {
	mu   sync.Mutex
	up   map[string]bool
	tell func()
}

func (f *fitful) Run(context.Context, runtime.Task, runtime.Sink) runtime.Result {
	return runtime.Result{Outcome: runtime.Succeeded}
}

func (f *fitful) Up(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up[name]
}

// Apps limits the plugin named limited.
func (f *fitful) Apps(name string) []string {
	if name == "limited" {
		return []string{"pay", "shop"}
	}
	return nil
}

func (f *fitful) Watch(tell func()) { f.tell = tell }

func (f *fitful) turn(name string, up bool) {
	f.mu.Lock()
	f.up[name] = up
	f.mu.Unlock()
	f.tell()
}

// TestAbilities checks the abilities that the host reports to the server.
func TestAbilities(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		x := &fitful{up: map[string]bool{"b": true, "limited": true}}
		stop := b.start(func(c *Config) {
			c.ABI = []string{"wasi-p1"}
			c.Others = map[string]runtime.Executor{"plugin:a": x, "plugin:b": x, "plugin:limited": x, "builtin:http": told("http")}
		})
		hello := <-b.server.hello
		if got := strings.Join(hello.Abi, " "); got != "wasi-p1 builtin:http plugin:b plugin:limited@pay plugin:limited@shop" {
			t.Errorf("the hello says %q", got)
		}
		said := func() string {
			for m := range b.server.up {
				if m.Abilities != nil {
					return strings.Join(m.Abilities.Abi, " ")
				}
			}
			return ""
		}
		x.turn("a", true)
		if got := said(); got != "wasi-p1 builtin:http plugin:a plugin:b plugin:limited@pay plugin:limited@shop" {
			t.Errorf("when a is up the server is told %q", got)
		}
		x.turn("b", false)
		if got := said(); got != "wasi-p1 builtin:http plugin:a plugin:limited@pay plugin:limited@shop" {
			t.Errorf("when b is down the server is told %q", got)
		}
		b.server.end <- struct{}{}
		hello = <-b.server.hello
		if got := strings.Join(hello.Abi, " "); got != "wasi-p1 builtin:http plugin:a plugin:limited@pay plugin:limited@shop" {
			t.Errorf("a new hello says %q", got)
		}
		synctest.Wait()
		for len(b.server.up) > 0 {
			if m := <-b.server.up; m.Abilities != nil {
				t.Errorf("the server is told %v again", m.Abilities)
			}
		}
		stop()
	})
}

// TestAbilitiesThatChangeOnTheWay changes the abilities while there is no stream, and
// between a hello and its answer.
func TestAbilitiesThatChangeOnTheWay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		x := &fitful{up: map[string]bool{}}
		hold := make(chan struct{})
		b.server.welcome = func() { <-hold }
		stop := b.start(func(c *Config) { c.Others = map[string]runtime.Executor{"plugin:a": x} })
		if hello := <-b.server.hello; len(hello.Abi) != 0 {
			t.Errorf("the hello says %q", hello.Abi)
		}
		x.turn("a", true)
		close(hold)
		for m := range b.server.up {
			if m.Abilities != nil {
				if !slices.Equal(m.Abilities.Abi, []string{"plugin:a"}) {
					t.Errorf("the server is told %v", m.Abilities)
				}
				break
			}
		}
		stop()
	})
}

var (
	_ Sometimes  = (*fitful)(nil)
	_ Restricted = (*fitful)(nil)
)
