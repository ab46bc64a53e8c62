package trigger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/trigger"
)

// decode returns the JSON object of an event.
func decode(t testing.TB, text string) (event map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&event); err != nil {
		t.Fatal(err)
	}
	return event
}

const order = `{"type": "order.paid", "subject": "o-17", "data": {"total": 12.50, "count": 3, "vip": true, "note": null, "to": {"country": "DE"}, "items": [{"sku": "a1"}, {"sku": "b2"}]}}`

func TestFits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		of    *apiv1.EventTrigger
		fits  bool
		other string // the source that the event came by; "": shop
	}{
		{"type", &apiv1.EventTrigger{Event: "order.paid"}, true, ""},
		{"another type", &apiv1.EventTrigger{Event: "order"}, false, ""},
		{"source", &apiv1.EventTrigger{Event: "order.paid", Source: "shop"}, true, ""},
		{"another source", &apiv1.EventTrigger{Event: "order.paid", Source: "shop"}, false, "bank"},
		{"attribute", on("subject", "o-17"), true, ""},
		{"text", on("data.to.country", "DE"), true, ""},
		{"another text", on("data.to.country", "FR"), false, ""},
		{"the beginning alone", on("data.to.country", "D"), false, ""},
		{"prefix", on("data.to.country", "D*"), true, ""},
		{"any text", on("data.to.country", "*"), true, ""},
		{"another prefix", on("data.to.country", "DEX*"), false, ""},
		{"number", on("data.count", "3"), true, ""},
		{"number as written", on("data.total", "12.50"), true, ""},
		{"prefix of a number", on("data.count", "3*"), false, ""},
		{"truth", on("data.vip", "true"), true, ""},
		{"not true", on("data.vip", "false"), false, ""},
		{"null", on("data.note", "null"), false, ""},
		{"missing", on("data.nothing", ""), false, ""},
		{"missing, any text", on("data.nothing.deeper", "*"), false, ""},
		{"object", on("data.to", "*"), false, ""},
		{"element", on("data.items.1.sku", "b2"), true, ""},
		{"no such element", on("data.items.2.sku", "b2"), false, ""},
		{"no number of an element", on("data.items.-1.sku", "b2"), false, ""},
		{"all", &apiv1.EventTrigger{Event: "order.paid", Match: map[string]string{"data.count": "3", "subject": "o-*"}}, true, ""},
		{"not all", &apiv1.EventTrigger{Event: "order.paid", Match: map[string]string{"data.count": "4", "subject": "o-*"}}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := trigger.Check(tt.of); err != nil {
				t.Fatal(err)
			}
			source := "shop"
			if tt.other != "" {
				source = tt.other
			}
			if got := trigger.Of(tt.of).Fits(source, decode(t, order)); got != tt.fits {
				t.Errorf("Fits = %v, want %v", got, tt.fits)
			}
		})
	}
}

// on returns a trigger with one condition.
func on(path, value string) *apiv1.EventTrigger {
	return &apiv1.EventTrigger{Event: "order.paid", Match: map[string]string{path: value}}
}

func TestNoTrigger(t *testing.T) {
	if trigger.Of(nil) != nil || trigger.Check(nil) != nil {
		t.Error("a job without a trigger has one, or is refused")
	}
}

func TestCheck(t *testing.T) {
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprintf("data.k%d", i)] = ""
	}
	for _, tt := range []struct {
		name, want string
		of         *apiv1.EventTrigger
	}{
		{"no type", "trigger.event is missing", &apiv1.EventTrigger{}},
		{"long type", "the limit is 256", &apiv1.EventTrigger{Event: strings.Repeat("x", 257)}},
		{"control character", "does not show", &apiv1.EventTrigger{Event: "a\nb"}},
		{"name of a source", "trigger.source", &apiv1.EventTrigger{Event: "a", Source: "a b"}},
		{"conditions", "the limit is 16", &apiv1.EventTrigger{Event: "a", Match: many}},
		{"empty step", "empty step", on("data..x", "")},
		{"no path", "empty step", on("", "")},
		{"into an attribute", "neither an attribute", on("subject.x", "")},
		{"long path", "longer than 256", on("data."+strings.Repeat("x", 256), "")},
		{"long value", "longer than 1024", on("data.x", strings.Repeat("x", 1025))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := trigger.Check(tt.of); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// FuzzFits checks that a condition on a text that is at its path holds, with the whole text and with
// its beginning.
func FuzzFits(f *testing.F) {
	f.Add("order", "o-17", 2)
	f.Add("a.b", "*", 0)
	f.Fuzz(func(t *testing.T, path, value string, n int) {
		exact := on("data."+path, value)
		if trigger.Check(exact) != nil {
			return
		}
		inner := any(value)
		steps := strings.Split(path, ".")
		for i := len(steps) - 1; i >= 0; i-- {
			inner = map[string]any{steps[i]: inner}
		}
		event := map[string]any{"type": "order.paid", "data": inner}
		if !trigger.Of(exact).Fits("shop", event) && !strings.HasSuffix(value, "*") {
			t.Errorf("%q does not fit itself", value)
		}
		if n < 0 || n > len(value) {
			return
		}
		if begin := on("data."+path, value[:n]+"*"); trigger.Check(begin) == nil && !trigger.Of(begin).Fits("shop", event) {
			t.Errorf("%q* does not fit %q", value[:n], value)
		}
	})
}
