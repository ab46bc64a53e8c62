package event_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/event"
)

const (
	one   = "application/cloudevents+json"
	batch = "application/cloudevents-batch+json"
	paid  = `{"specversion":"1.0","id":"1","source":"/shop","type":"order.paid"`
)

func TestParse(t *testing.T) {
	binary := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "order.paid", "ce-subject": "caf%C3%A9"}
	with := func(content string) map[string]string {
		m := map[string]string{"content-type": content}
		for k, v := range binary {
			m[k] = v
		}
		return m
	}
	for _, tt := range []struct {
		name    string
		headers map[string]string
		body    string
		want    string // the events in the JSON format
	}{
		{"structured", map[string]string{"content-type": one}, paid + `, "data": {"total": 12.50, "b": "<é>"}}`, `{"data":{"b":"<é>","total":12.50},"id":"1","source":"/shop","specversion":"1.0","type":"order.paid"}`},
		{"charset", map[string]string{"content-type": one + "; charset=UTF-8"}, paid + `}`, `{"id":"1","source":"/shop","specversion":"1.0","type":"order.paid"}`},
		{"extension", map[string]string{"content-type": one}, paid + `,"level":3,"ok":true}`, `{"id":"1","level":3,"ok":true,"source":"/shop","specversion":"1.0","type":"order.paid"}`},
		{"batch", map[string]string{"content-type": batch}, `[` + paid + `},` + strings.Replace(paid, `"1"`, `"2"`, 1) + `}]`, `{"id":"1","source":"/shop","specversion":"1.0","type":"order.paid"}{"id":"2","source":"/shop","specversion":"1.0","type":"order.paid"}`},
		{"empty batch", map[string]string{"content-type": batch}, `[]`, ``},
		{"binary", with("application/json"), `{"total": 3}`, `{"data":{"total":3},"datacontenttype":"application/json","id":"1","source":"/shop","specversion":"1.0","subject":"café","type":"order.paid"}`},
		{"binary without data", binary, ``, `{"id":"1","source":"/shop","specversion":"1.0","subject":"café","type":"order.paid"}`},
		{"binary text", with("text/plain"), `hi`, `{"data":"hi","datacontenttype":"text/plain","id":"1","source":"/shop","specversion":"1.0","subject":"café","type":"order.paid"}`},
		{"binary bytes", with("image/png"), "\x89P", `{"data_base64":"iVA=","datacontenttype":"image/png","id":"1","source":"/shop","specversion":"1.0","subject":"café","type":"order.paid"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events, err := event.Parse(tt.headers, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, e := range events {
				got += string(e.JSON)
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, content, body, want string }{
		{"no event", "application/json", `{}`, "has no event"},
		{"another format", "application/cloudevents+xml", `<event/>`, "has no event"},
		{"malformed type", ";;", `{}`, "malformed"},
		{"no JSON", one, `{`, "ends too early"},
		{"empty", one, ``, "ends too early"},
		{"two values", one, paid + `}{}`, "something follows"},
		{"an array", one, `[]`, "no JSON object"},
		{"null", one, `null`, "specversion"},
		{"not UTF-8", one, paid + ",\"a\":\"\xff\"}", "UTF-8"},
		{"another charset", one + "; charset=latin1", paid + `}`, "utf-8"},
		{"old version", one, `{"specversion":"0.3","id":"1","source":"s","type":"t"}`, "specversion"},
		{"no id", one, `{"specversion":"1.0","source":"s","type":"t"}`, "id is missing"},
		{"number as id", one, `{"specversion":"1.0","id":1,"source":"s","type":"t"}`, "id is missing"},
		{"long type", one, `{"specversion":"1.0","id":"1","source":"s","type":"` + strings.Repeat("t", 1025) + `"}`, "longer than 1024"},
		{"name of an attribute", one, paid + `,"Bad":"x"}`, "lower-case"},
		{"object as attribute", one, paid + `,"bad":{}}`, "only data"},
		{"control character", one, paid + `,"subject":"a\u0007b"}`, "control character"},
		{"time", one, paid + `,"time":"today"}`, "RFC 3339"},
		{"base64", one, paid + `,"data_base64":"%"}`, "base64"},
		{"both", one, paid + `,"data":1,"data_base64":""}`, "both"},
		{"batch of no objects", batch, `[1]`, "array of objects"},
		{"wrong event of a batch", batch, `[` + paid + `},{}]`, "event 1 of the batch"},
		{"long batch", batch, `[` + strings.Repeat(paid+`},`, 100) + paid + `}]`, "the limit is 100"},
		{"large", one, paid + `,"data":"` + strings.Repeat("x", event.MaxBody) + `"}`, "the limit is 262144"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := event.Parse(map[string]string{"content-type": tt.content}, []byte(tt.body))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse = %v, want an error with %q", err, tt.want)
			}
		})
	}
	headers := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t%ff"}
	if _, err := event.Parse(headers, nil); err == nil || !strings.Contains(err.Error(), "type is not in UTF-8") {
		t.Errorf("a header that is not UTF-8: %v", err)
	}
	if _, err := event.Parse(nil, nil); !errors.Is(err, event.ErrContentType) {
		t.Errorf("nothing: %v", err)
	}
}

// FuzzParse checks that an event in the JSON format that Parse returns is read as the same event.
func FuzzParse(f *testing.F) {
	f.Add(one, paid+`,"data":[1,{"a":null}]}`)
	f.Add(batch, `[`+paid+`}]`)
	f.Add("text/plain", "hi")
	f.Fuzz(func(t *testing.T, content, body string) {
		headers := map[string]string{"content-type": content, "ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": body}
		events, err := event.Parse(headers, []byte(body))
		if err != nil {
			return
		}
		for _, e := range events {
			again, err := event.Parse(map[string]string{"content-type": one}, e.JSON)
			if len(e.JSON) > event.MaxBody {
				return
			}
			if err != nil || len(again) != 1 || string(again[0].JSON) != string(e.JSON) {
				t.Fatalf("%s is read again as %s, %v", e.JSON, fmt.Sprint(again), err)
			}
		}
	})
}

func TestReadSource(t *testing.T) {
	valid := &apiv1.EventSource{Name: "shop", Secret: &apiv1.EventKey{Secret: "shop-key"}, Revision: 7}
	m, err := event.ReadSource(valid)
	if err != nil || m.App != "default" || m.Revision != 0 || event.RateOf(m) != event.DefaultRate || !event.Admits(m, "any") {
		t.Errorf("ReadSource = %v, %v", m, err)
	}
	for _, tt := range []struct {
		want   string
		change func(*apiv1.EventSource)
	}{
		{"name", func(m *apiv1.EventSource) { m.Name = "" }},
		{"secret is missing", func(m *apiv1.EventSource) { m.Secret = nil }},
		{"previous has no secret", func(m *apiv1.EventSource) { m.Previous = &apiv1.EventKey{} }},
		{"secret", func(m *apiv1.EventSource) { m.Previous = &apiv1.EventKey{Secret: "a b"} }},
		{"rate is 10001", func(m *apiv1.EventSource) { m.Rate = 10_001 }},
		{"twice", func(m *apiv1.EventSource) { m.Types = []string{"a", "a"} }},
		{"the limit is 100", func(m *apiv1.EventSource) { m.Types = make([]string, 101) }},
	} {
		m := &apiv1.EventSource{Name: "shop", Secret: &apiv1.EventKey{Secret: "shop-key"}}
		tt.change(m)
		if _, err := event.ReadSource(m); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ReadSource = %v, want an error with %q", err, tt.want)
		}
	}
}
