package delivery

import (
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSignature compares with the example of Standard Webhooks.
func TestSignature(t *testing.T) {
	key, err := keyOf("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	if got := signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("the signature is %s", got)
	}
	for _, bad := range []string{"short", "whsec_?", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))} {
		if _, err := keyOf(bad); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestWebhookAddress refuses addresses that would show events to others.
func TestWebhookAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"https://siem.example/in": true, "http://localhost:9000": true, "http://127.0.0.1:9000/x": true, "http://[::1]:9000": true,
		"http://siem.example/in": false, "http://10.0.0.1": false, "http://localhost.example": false, "https://user:word@siem.example": false, "siem.example": false, "ftp://localhost": false, "": false, "https://": false,
	} {
		r, err := NewWebhook(address, "", nil)
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "word") {
			t.Errorf("%q: %v", address, err)
		}
		if err == nil {
			r.Close() //nolint:errcheck // no connection is open
		}
	}
}

// TestSigned checks the headers of requests as a receiver does: each attempt has a new time, and the
// same id.
func TestSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "a secret of 32 characters, ascii"
		from, to := &server{}, newTarget(t)
		for range 20 {
			from.add("main", "j")
		}
		ids, times := map[string]int{}, map[string]bool{}
		to.set(func(w http.ResponseWriter, r *http.Request, body []byte) {
			id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
			if want := signature([]byte(secret), id, at, body); !hmac.Equal([]byte(want), []byte(r.Header.Get("webhook-signature"))) || at != fmt.Sprint(time.Now().Unix()) ||
				r.Header.Get("content-type") != "application/json" || r.Method != http.MethodPost || r.URL.Path != "/in" {
				t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
			}
			times[at] = true
			if ids[id]++; ids[id] == 1 {
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			to.take(body)
		})
		f := follower(t, from, to.receiver(t, secret), filepath.Join(t.TempDir(), "state"))
		f.Once = true
		if err := f.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.To.Close() //nolint:errcheck // all is delivered
		if len(ids) != 3 || len(times) != 4 || len(to.events) != 20 {
			t.Errorf("%d requests at %d times with %d events", len(ids), len(times), len(to.events))
		}
		for id, n := range ids {
			if n != 2 || !strings.HasPrefix(id, "aud_") {
				t.Errorf("%s: %d attempts", id, n)
			}
		}
	})
}

// TestAnswers delivers to receivers that fail for a time, or refuse the events.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		answer   func(w http.ResponseWriter, r *http.Request)
		failures int           // of the receiver until it takes the events
		least    time.Duration // until then
		most     time.Duration
		refused  string // what the error says; "": the events are delivered
	}{
		{"500", status(500, ""), 6, 31 * time.Second, 63 * time.Second, ""}, // 1, 2, 4, 8, 16 and 32 s, or half of that
		{"many 503", status(503, ""), 20, 7 * time.Minute, 20 * time.Minute, ""},
		{"429 with seconds", status(429, "120"), 1, 120 * time.Second, 121 * time.Second, ""},
		{"503 with a date", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat))
			w.WriteHeader(503)
		}, 1, 599 * time.Second, 601 * time.Second, ""},
		{"429 with a day", status(429, "86400"), 1, time.Hour, time.Hour + time.Second, ""},
		{"408", status(408, ""), 1, time.Second / 2, 2 * time.Second, ""},
		{"425", status(425, ""), 1, time.Second / 2, 2 * time.Second, ""},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 2, 61 * time.Second, 65 * time.Second, ""},
		{"no status", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 1, time.Second / 2, 2 * time.Second, ""},
		{"400", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no field\x1b[31m \"severity\"\n", 400)
		}, 1, 0, 0, `answered 400 Bad Request: no field\x1b[31m "severity": it does not accept these events`},
		{"401", status(401, ""), 1, 0, 0, "check --webhook-secret-file"},
		{"404", status(404, ""), 1, 0, 0, "check the address of --webhook"},
		{"413", status(413, ""), 1, 0, 0, "a smaller --batch"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost/other", http.StatusTemporaryRedirect)
		}, 1, 0, 0, "give the address that answers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := &server{}, newTarget(t)
				from.add("main", "j")
				failed := 0
				to.set(func(w http.ResponseWriter, r *http.Request, body []byte) {
					if r.URL.Path != "/in" {
						t.Errorf("a request to %s", r.URL.Path)
					}
					if failed++; failed <= tt.failures {
						tt.answer(w, r)
						return
					}
					to.take(body)
				})
				path := filepath.Join(t.TempDir(), "state")
				f := follower(t, from, to.receiver(t, ""), path)
				f.Once = true
				begin := time.Now()
				err := f.Run(t.Context())
				took := time.Since(begin)
				if tt.refused != "" {
					if err == nil || !strings.Contains(err.Error(), tt.refused) || failed != 1 || took > 0 {
						t.Errorf("after %d requests and %v: %v", failed, took, err)
					}
					if s, err := OpenState(path); err != nil || s.after() != "" {
						t.Errorf("refused events are taken to be delivered: %v, %v", s, err)
					}
					to.set(nil) // the receiver was mended, and the command started again
					err = f.Run(t.Context())
				} else if took < tt.least || took > tt.most {
					t.Errorf("it took %v, want %v to %v", took, tt.least, tt.most)
				}
				if err != nil || len(to.events) != 1 {
					t.Errorf("%d events, %v", len(to.events), err)
				}
				f.To.Close() //nolint:errcheck // all is delivered
			})
		})
	}
}

func status(code int, retryAfter string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	}
}

// TestSizes delivers events that do not fit in one request, and one that is larger than a request.
func TestSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &server{}, newTarget(t)
		for n := range 40 {
			size := 100 << 10
			if n == 20 {
				size = 2 * MaxBody
			}
			from.add("main", strings.Repeat("x", size))
		}
		f := follower(t, from, to.receiver(t, ""), filepath.Join(t.TempDir(), "state"))
		f.Once, f.Size = true, 1000
		if err := f.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.To.Close() //nolint:errcheck // all is delivered
		if doubles, _ := checkOrder(t, to.events, from.next, 1); doubles > 0 {
			t.Error("events came again")
		}
		large := 0
		for _, n := range to.bodies {
			if n > MaxBody {
				large++
			}
		}
		if requests, _ := to.count(); large != 1 || requests < 5 || requests > 7 {
			t.Errorf("requests with %v bytes", to.bodies)
		}
	})
}
