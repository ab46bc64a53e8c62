package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestMistakes checks what a client reads that sends a wrong body or query: the field, what
// it wants and what was found, without words of the libraries behind.
func TestMistakes(t *testing.T) {
	s := newSite(t, newFake().populate())
	const trigger, job = "POST /api/v1/apps/default/jobs/totals:trigger", "PUT /api/v1/apps/default/jobs/totals"
	for _, c := range []struct{ call, body, want string }{
		{trigger, `{"inptu":"x"}`, `unknown field "inptu": did you mean "input"?`},
		{trigger, `{"zzzzzzzz":1}`, `unknown field "zzzzzzzz": want one of app, idempotency_key, input, input_bytes, name, wait`},
		{trigger, `{"input":5}`, `input: want a text, found 5`},
		{trigger, `{"input":{"a":1}}`, `input: want a text, found an object`},
		{trigger, `{"input":"a","input":"b"}`, `input is set twice`},
		{trigger, `{"input_bytes":"YQ==","inputBytes":"Yg=="}`, `inputBytes is set twice`},
		{trigger, `{"input_bytes":"%%"}`, `input_bytes: want bytes in base64, found "%%"`},
		{trigger, `[1]`, `the body: want an object with fields, found a list`},
		{trigger, `null`, `the body: want an object with fields, found null`},
		{trigger, `"x"`, `the body: want an object with fields, found "x"`},
		{trigger, `{"input":`, `the body is not JSON: unexpected EOF`},
		{trigger, `{input:1}`, `the body is not JSON: invalid character 'i'`},
		{trigger, `{} {}`, `the body goes on after its JSON value`},
		{trigger, "{\"input\":\"\xff\"}", `the body is wrong: `},
		{job, `{"schedule":{"crn":"x"}}`, `unknown field "schedule.crn": did you mean "cron"?`},
		{job, `{"schedule":"every minute"}`, `schedule: want an object with fields, found "every minute"`},
		{job, `{"retry":{"max":"three"}}`, `retry.max: want a whole number, found "three"`},
		{job, `{"retry":{"max":1.5}}`, `retry.max: want a whole number, found 1.5`},
		{job, `{"retry":{"max":99999999999}}`, `retry.max: want a whole number, found 99999999999`},
		{job, `{"retry":{"jitter":true}}`, `retry.jitter: want a number, found true`},
		{job, `{"paused":"yes"}`, `paused: want true or false, found "yes"`},
		{job, `{"labels":["a"]}`, `labels: want an object with names and values, found a list`},
		{job, `{"labels":{"a":1}}`, `labels.a: want a text, found 1`},
		{job, `{"labels":{"a":null}}`, `labels.a: want a text, found null`},
		{job, `{"workflow":{"nodes":[{"name":"a"},{"name":"b","after":"a"}]}}`, `workflow.nodes[1].after: want a list, found "a"`},
		{job, `{"workflow":{"nodes":[null]}}`, `workflow.nodes[0]: want an object with fields, found null`},
		{job, `{"schedule": null, "handler":{"args":[1]}}`, `handler.args[0]: want a text, found 1`},
		{job, `{"next_at":"soon"}`, `next_at: want a time such as "2026-01-31T08:00:00Z", found "soon"`},
		{"GET /api/v1/apps/default/runs?page_size=many", "", `page_size: want a whole number, found "many"`},
		{"GET /api/v1/apps/default/jobs?with_input=maybe", "", `with_input: want true or false, found "maybe"`},
		{"GET /api/v1/dead-letters?filter.since=yesterday", "", `filter.since: want a time such as "2026-01-31T08:00:00Z", found "yesterday"`},
		{"GET /api/v1/dead-letters?filter=x", "", `filter is no parameter of the query`},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		code, v := s.call(t, method, path, c.body)
		message, _ := v["message"].(string)
		if code != http.StatusBadRequest || !strings.HasPrefix(message, c.want) || strings.Contains(message, "proto") || strings.Contains(message, "strconv") {
			t.Errorf("%s %s: %d %q, want %q", c.call, c.body, code, message, c.want)
		}
	}
	// Right requests are not searched for mistakes.
	for _, body := range []string{`{}`, ``, `{"input":null}`, `{"idempotencyKey":"k"}`} {
		if code, v := s.call(t, "POST", "/api/v1/apps/default/jobs/totals:trigger", body); code != http.StatusOK {
			t.Errorf("%s: %d %v", body, code, v)
		}
	}
}

// FuzzMistake checks that a body that is a job has no mistake, and that each mistake is
// short and in the words of the API.
func FuzzMistake(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `{"schedule":{"crn":1}}`, `{"retry":{"max":1e2}}`, `{"labels":{"a":"b"},"paused":null}`, `{"created_at":"2026-01-31T08:00:00.5+01:00"}`, `{"input_bytes":"_-8="}`, strings.Repeat(`{"workflow":`, 99) + `1` + strings.Repeat(`}`, 99)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		job := &apiv1.Job{}
		err := protojson.Unmarshal(text, job)
		wrong := check(text, job.ProtoReflect().Descriptor())
		if err == nil && wrong != nil {
			t.Fatalf("%s is a job, and has the mistake %v", text, wrong)
		}
		if wrong != nil && (len(wrong.Error()) > 2000 || strings.Contains(wrong.Error(), "protobuf")) {
			t.Fatalf("%s has the mistake %v", text, wrong)
		}
	})
}
