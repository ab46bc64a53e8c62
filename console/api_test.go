package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const bearer = "Bearer " + goodToken

// call sends a request with the token and decodes the JSON of the response.
func (s *site) call(t *testing.T, method, path, body string, headers ...string) (int, map[string]any) {
	t.Helper()
	resp, text := s.do(t, method, path, strings.NewReader(body), append(headers, "Authorization", bearer)...)
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("%s %s: Content-Type %q", method, path, ct)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return resp.StatusCode, v
}

func TestGatewayShapes(t *testing.T) {
	s := newSite(t, newFake().populate())
	code, job := s.call(t, "GET", "/api/v1/apps/default/jobs/totals", "")
	if code != http.StatusOK || job["name"] != "totals" || job["next_at"] == nil {
		t.Errorf("get job: %d %v", code, job)
	}
	if v, ok := job["input_bytes"]; !ok || v != "" {
		t.Errorf("a field without a value is left out: input_bytes is %v", v)
	}
	code, run := s.call(t, "POST", "/api/v1/apps/default/jobs/totals:trigger", `{"input":"x"}`)
	if code != http.StatusOK || run["input"] != "x" || run["state"] != "running" || run["planned_at"] == nil {
		t.Errorf("trigger: %d %v", code, run)
	}
	if code, v := s.call(t, "POST", "/api/v1/apps/default/jobs/totals:pause", ""); code != http.StatusOK || v["paused"] != true {
		t.Errorf("pause: %d %v", code, v)
	}
	code, v := s.call(t, "PUT", "/api/v1/apps/default/jobs/new", `{"handler":{"module":"totals@1"},"schedule":{"every":"1m"}}`)
	if code != http.StatusOK || v["result"] != "created" {
		t.Errorf("apply: %d %v", code, v)
	}
	code, v = s.call(t, "GET", "/api/v1/apps/default/runs?state=failed&page_size=10", "")
	if runs, ok := v["runs"].([]any); code != http.StatusOK || !ok || len(runs) != 1 {
		t.Errorf("list runs: %d %v", code, v)
	}
}

func TestGatewayErrors(t *testing.T) {
	s := newSite(t, newFake().populate())
	for _, c := range []struct {
		method, path, body string
		code               int
		grpc               codes.Code
		message            string
	}{
		{"GET", "/api/v1/apps/default/jobs/none", "", http.StatusNotFound, codes.NotFound, `there is no job "none"`},
		{"PUT", "/api/v1/apps/default/jobs/new", "{}", http.StatusBadRequest, codes.InvalidArgument, "handler.module"},
		{"PUT", "/api/v1/apps/default/jobs/new", `{"handler":`, http.StatusBadRequest, codes.InvalidArgument, ""},
		{"PUT", "/api/v1/apps/default/jobs/new", `{"handlr":{}}`, http.StatusBadRequest, codes.InvalidArgument, "handlr"},
		{"GET", "/api/v1/nothing", "", http.StatusNotFound, codes.NotFound, ""},
	} {
		code, v := s.call(t, c.method, c.path, c.body)
		message, _ := v["message"].(string)
		if code != c.code || v["code"] != float64(c.grpc) || !strings.Contains(message, c.message) || message == "" || len(v) != 2 {
			t.Errorf("%s %s: %d %v", c.method, c.path, code, v)
		}
	}
	for _, token := range []string{"", "Bearer wrong", goodToken} {
		resp, body := s.do(t, "GET", "/api/v1/hosts", nil, "Authorization", token)
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, `"code":16`) || resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("with Authorization %q: %s %s", token, resp.Status, body)
		}
	}
}

// TestIdempotencyKeyHeader sends the key of a trigger as a header. The status of the
// response shows a key that was used with other input.
func TestIdempotencyKeyHeader(t *testing.T) {
	s := newSite(t, newFake().populate())
	for _, c := range []struct {
		header, body string
		code         int
		reason       any
	}{
		{"fresh", `{"input":"x"}`, http.StatusOK, nil},
		{"used", `{"input":"x"}`, http.StatusUnprocessableEntity, "key_reused"},
		{"used", `{"input":"x","idempotency_key":"used"}`, http.StatusUnprocessableEntity, "key_reused"},
		{"one", `{"input":"x","idempotency_key":"two"}`, http.StatusBadRequest, nil},
	} {
		code, v := s.call(t, "POST", "/api/v1/apps/default/jobs/totals:trigger", c.body, "Idempotency-Key", c.header)
		if code != c.code || v["reason"] != c.reason {
			t.Errorf("key %s with %s: %d %v, want %d and the reason %v", c.header, c.body, code, v, c.code, c.reason)
		}
	}
}

// TestClientsCannotMakeUpMetadata checks that the gateway does not convert
// Grpc-Metadata-… headers to metadata of the call, which is its default.
func TestClientsCannotMakeUpMetadata(t *testing.T) {
	s := newSite(t, newFake().populate())
	resp, _ := s.do(t, "GET", "/api/v1/hosts", nil, "Grpc-Metadata-Authorization", bearer)
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s", resp.Status)
	}
}

func TestGatewayStreamsTheLog(t *testing.T) {
	s := newSite(t, newFake().populate())
	resp, body := s.do(t, "GET", "/api/v1/apps/default/runs/"+failedRun+"/log", nil, "Authorization", bearer)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"text":"gave up"`) {
		t.Errorf("%s %s", resp.Status, body)
	}
}

// TestStreamsFailLikeOtherRequests checks that a stream without a first message is refused
// with the status and the body of any refused request.
func TestStreamsFailLikeOtherRequests(t *testing.T) {
	s := newSite(t, newFake().populate())
	for _, path := range []string{"/api/v1/apps/default/runs/none:watch", "/api/v1/apps/default/runs/none/log"} {
		code, v := s.call(t, "GET", path, "")
		if message, _ := v["message"].(string); code != http.StatusNotFound || v["code"] != float64(codes.NotFound) || message == "" || len(v) != 2 {
			t.Errorf("%s: %d %v", path, code, v)
		}
	}
}

func TestUploadAPI(t *testing.T) {
	s := newSite(t, newFake())
	const path = "/api/v1/apps/default/modules/big/versions/1.0"
	wasm := "\x00asm" + strings.Repeat("x", 3<<20)
	code, v := s.call(t, "PUT", path, wasm, "X-Wheelwork-Manifest", `{"a":1}`)
	if code != http.StatusCreated || v["result"] != "created" {
		t.Fatalf("%d %v", code, v)
	}
	m := s.fake.modules[0]
	if m.Name != "big" || m.Version != "1.0" || m.Size != int64(len(wasm)) || m.Manifest != `{"a":1}` {
		t.Errorf("stored as %v", m)
	}
	if code, v := s.call(t, "PUT", path, wasm); code != http.StatusOK || v["result"] != "unchanged" {
		t.Errorf("again: %d %v", code, v)
	}
	if code, v := s.call(t, "PUT", path, "MZ not wasm"); code != http.StatusBadRequest || !strings.Contains(v["message"].(string), "not WebAssembly") {
		t.Errorf("garbage: %d %v", code, v)
	}
}

// endless is a module without an end.
type endless struct{ sent int }

func (e *endless) Read(p []byte) (int, error) {
	if e.sent == 0 {
		e.sent += 4
		return copy(p, "\x00asm"), nil
	}
	e.sent += len(p)
	return len(p), nil
}

func TestUploadLimit(t *testing.T) {
	f := newFake()
	h, err := New(Config{Conn: f.start(t)})
	if err != nil {
		t.Fatal(err)
	}
	for name, length := range map[string]int64{"announced": maxModule + 1, "not announced": -1} {
		r := httptest.NewRequestWithContext(t.Context(), "PUT", "/api/v1/apps/a/modules/m/versions/1", &endless{})
		r.ContentLength = length
		r.Header.Set("Authorization", bearer)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "larger than 64 MiB") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if len(f.modules) != 0 {
		t.Error("a part of a module was stored")
	}
}

// form builds an upload like a browser: the fields in the order of the page.
func form(t testing.TB, name, version, manifest string, file []byte) (contentType string, body *bytes.Buffer) {
	t.Helper()
	body = &bytes.Buffer{}
	m := multipart.NewWriter(body)
	for _, field := range [][2]string{{"name", name}, {"version", version}, {"manifest", manifest}} {
		if err := m.WriteField(field[0], field[1]); err != nil {
			t.Fatal(err)
		}
	}
	if file != nil {
		w, err := m.CreateFormFile("file", "x.wasm")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return m.FormDataContentType(), body
}

func TestUploadForm(t *testing.T) {
	s := newSite(t, newFake()).signIn(t)
	const path = "/apps/default/modules"
	ct, body := form(t, "m", "2", `{"k":"v"}`, []byte("\x00asm body"))
	resp, _ := s.do(t, "POST", path, body, "Content-Type", ct)
	if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || got != path {
		t.Fatalf("%s to %q", resp.Status, got)
	}
	if m := s.fake.modules[0]; m.App != "default" || m.Manifest != `{"k":"v"}` || m.Size != 9 {
		t.Errorf("stored as %v", m)
	}
	if _, page := s.do(t, "GET", resp.Header.Get("Location"), nil); !strings.Contains(page, "m@2 is stored.") {
		t.Error("the page does not confirm the upload")
	}

	for name, c := range map[string]struct {
		file     []byte
		manifest string
		want     string
	}{
		"garbage":       {[]byte("MZ is not wasm"), "", "this is not WebAssembly"},
		"long garbage":  {bytes.Repeat([]byte("MZ"), 1<<20), "", "this is not WebAssembly"},
		"no file":       {nil, "", "no file came with the form"},
		"long manifest": {[]byte("\x00asm"), strings.Repeat("x", maxField+1), "longer than 64 KiB"},
	} {
		ct, body := form(t, `m"><b>`, "3", c.manifest, c.file)
		resp, page := s.do(t, "POST", path, body, "Content-Type", ct)
		if resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s", name, resp.Status)
		}
		if !strings.Contains(page, c.want) || !strings.Contains(page, `value="m&#34;&gt;&lt;b&gt;"`) {
			t.Errorf("%s: the page does not hold the reason %q and what was typed", name, c.want)
		}
		checkPage(t, page)
	}
	if len(s.fake.modules) != 1 {
		t.Errorf("%d modules are stored, want the first one only", len(s.fake.modules))
	}
}

func FuzzUploadForm(f *testing.F) {
	_, body := form(f, "m", "1", "{}", []byte("\x00asm"))
	f.Add(body.Bytes(), "x")
	f.Add([]byte("--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\x00asm\r\n--x--"), "x")
	f.Add([]byte("--x--"), "x")
	f.Add([]byte{}, "")
	s := newSite(f, newFake()).signIn(f)
	f.Fuzz(func(t *testing.T, body []byte, boundary string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/apps/default/modules", bytes.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		v := &visit{w: httptest.NewRecorder(), r: r, ctx: s.c.withToken(r, goodToken), session: &session{token: goodToken}, app: "default"}
		head, answer, err := s.c.pushForm(v)
		if (answer == nil) == (err == nil) {
			t.Fatalf("answer %v, error %v", answer, err)
		}
		if len(head.Name) > maxField || len(head.Manifest) > maxField {
			t.Fatalf("a field of %d bytes came through", max(len(head.Name), len(head.Manifest)))
		}
		if err != nil && status.Code(err) == codes.Unknown {
			t.Fatalf("an error without a code: %v", err)
		}
	})
}

func FuzzPayload(f *testing.F) {
	f.Add("", []byte(nil))
	f.Add(`{"a":[1,2,{"b":null}]}`, []byte(nil))
	f.Add(strings.Repeat("é", shownPayload), []byte(nil))
	f.Add("", []byte{0, 1, 2})
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		p := newPayload(strings.ToValidUTF8(text, ""), raw)
		if strings.ToValidUTF8(p.Text, "") != p.Text {
			t.Fatal("a character was cut in two")
		}
		if p.Cut && len(p.Text) > 6*shownPayload {
			t.Fatalf("%d bytes are shown of a payload that was cut", len(p.Text))
		}
	})
}

// sse is an event as a browser decodes it.
type sse struct{ name, id, data string }

// listen opens an event stream and passes each event to each until it returns false.
func (s *site) listen(t *testing.T, path string, each func(sse) bool, headers ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || ct != "text/event-stream" {
		t.Fatalf("%s, %q", resp.Status, ct)
	}
	if err := parseEvents(resp.Body, each); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// parseEvents passes each event to each until it returns false or the stream ends.
func parseEvents(r io.Reader, each func(sse) bool) error {
	lines := bufio.NewReader(r)
	var e sse
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data += value
		case "":
			if e.name != "" && !each(e) {
				return nil
			}
			e = sse{}
		}
	}
}

func TestEventsResume(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	path := "/apps/default/runs/" + liveRun + "/events"
	read := func(n int, headers ...string) (ids []string) {
		s.listen(t, path, func(e sse) bool {
			if e.name == "log" {
				ids = append(ids, e.id)
			}
			return len(ids) < n
		}, headers...)
		return ids
	}
	if got := fmt.Sprint(read(3)); got != "[0 1 2]" {
		t.Errorf("from the beginning: %s", got)
	}
	if got := fmt.Sprint(read(1, "Last-Event-ID", "1")); got != "[2]" {
		t.Errorf("after line 1: %s", got)
	}
	path += "?from=1"
	if got := fmt.Sprint(read(2)); got != "[1 2]" {
		t.Errorf("from line 1: %s", got)
	}
	if got := fmt.Sprint(read(1, "Last-Event-ID", "1")); got != "[2]" {
		t.Errorf("the browser's position must win over the address: %s", got)
	}
	for _, bad := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		if resp, _ := s.do(t, "GET", path, nil, "Last-Event-ID", bad); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("Last-Event-ID %q: %s", bad, resp.Status)
		}
	}
}

func TestEventsKeepLinesWhole(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.listen(t, "/apps/default/runs/"+liveRun+"/events", func(e sse) bool {
		if e.name == "end" {
			t.Error("a line of the log ended the stream")
			return false
		}
		if e.id != "1" {
			return true
		}
		var line logFact
		if err := json.Unmarshal([]byte(e.data), &line); err != nil {
			t.Fatal(err)
		}
		if want := evil + "\nsecond line\r\nevent: end"; line.Text != want || line.Level != "warn" || line.Attempt != 2 {
			t.Errorf("%+v", line)
		}
		return false
	})
}

func TestEventsFollowTheRunToItsEnd(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	var got []string
	s.listen(t, "/apps/default/runs/"+liveRun+"/events?from=2", func(e sse) bool {
		switch {
		case e.name == "log" && e.id == "2":
			s.fake.appendLog(liveRun, "info", "last words")
		case e.name == "log":
			s.fake.finish(liveRun, "succeeded")
		}
		if e.name != "run" || strings.Contains(e.data, "succeeded") {
			got = append(got, e.name+e.id)
		}
		return true // read until the server closes the stream
	})
	all := strings.Join(got, " ")
	if !strings.HasSuffix(all, " end") || !strings.Contains(all, "log2") || !strings.Contains(all, "log3") || !strings.Contains(all, "run") {
		t.Errorf("events: %s", all)
	}
}

func TestEventsOfNoRun(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	ended := ""
	s.listen(t, "/apps/default/runs/none/events", func(e sse) bool {
		ended = e.name + e.data
		return true
	})
	if !strings.HasPrefix(ended, "end") || !strings.Contains(ended, "there is no run") {
		t.Errorf("a browser would ask for ever: the last event is %q", ended)
	}
}

// TestEventsOfSeveralRuns reads two logs in one stream, each from its own line, and the end
// of a run that does not exist.
func TestEventsOfSeveralRuns(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	want := map[string]bool{"log default/" + liveRun + " 2": true, "log default/" + failedRun + " 0": true, "end default/" + failedRun + " ": true, "end default/none ": true}
	s.listen(t, "/events?run=default/"+liveRun+"@2&run=default/"+failedRun+"@0&run=default/none@0", func(e sse) bool {
		var fact struct {
			Run    string
			Offset *int64
		}
		if err := json.Unmarshal([]byte(e.data), &fact); err != nil {
			t.Fatal(err)
		}
		got := e.name + " " + fact.Run + " "
		if fact.Offset != nil {
			got += fmt.Sprint(*fact.Offset)
		}
		if e.name != "run" && !want[got] || e.id != "" {
			t.Errorf("unexpected event %q, id %q", got, e.id)
		}
		delete(want, got)
		return len(want) > 0
	})
	if len(want) > 0 {
		t.Errorf("missing events: %v", want)
	}
	for _, bad := range []string{"", "?run=default", "?run=default/x", "?run=default/x@-1", "?run=/x@1", "?run=default/x@y"} {
		if resp, _ := s.do(t, "GET", "/events"+bad, nil); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("/events%s: %s", bad, resp.Status)
		}
	}
	if resp, _ := s.do(t, "GET", "/events?run=a/b@0"+strings.Repeat("&run=a/b@0", maxStreams), nil); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("more runs than a session may follow: %s", resp.Status)
	}
}

func TestEventsAreBoundedPerSession(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	var held *session
	for _, held = range s.c.sessions.byKey {
		for held.acquire(1) {
		}
	}
	path := "/apps/default/runs/" + liveRun + "/events"
	if resp, body := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "close some") {
		t.Errorf("%s %s", resp.Status, body)
	}
	held.release(1)
	s.listen(t, path, func(sse) bool { return false })
}

// TestEventsEndWithTheBrowser checks that a closed tab leaves no goroutine behind.
func TestEventsEndWithTheBrowser(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.listen(t, "/apps/default/runs/"+liveRun+"/events", func(sse) bool { return false })
	s.Server.Close() // returns when every handler has returned
	for _, open := range s.c.sessions.byKey {
		if n := open.streams.Load(); n != 0 {
			t.Errorf("%d streams are still counted", n)
		}
	}
}

func FuzzWriteEvent(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\nb", "\r\n\r\nevent: end\n\n", evil, "\xff\xfe", "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b bytes.Buffer
		if err := writeEvent(&b, event{name: "log", id: "7", data: logFact{Offset: 7, Text: text}}); err != nil {
			t.Fatal(err)
		}
		var events []sse
		if err := parseEvents(&b, func(e sse) bool { events = append(events, e); return true }); err != nil {
			t.Fatal(err)
		}
		if len(events) != 1 || events[0].name != "log" || events[0].id != "7" {
			t.Fatalf("%q became %v", text, events)
		}
		var line logFact
		if err := json.Unmarshal([]byte(events[0].data), &line); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(text, "\ufffd"); !strings.ContainsRune(want, '\ufffd') && line.Text != want {
			t.Fatalf("%q arrived as %q", text, line.Text)
		}
	})
}
