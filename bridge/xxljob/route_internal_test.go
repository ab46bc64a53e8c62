package xxljob

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
)

func TestRoutes(t *testing.T) {
	no := func(context.Context, string) bool { return false }
	choose := func(r *router, strategy string, job int32, addresses ...string) string {
		got := r.choose(t.Context(), strategy, job, addresses, no, no)
		if len(got) != 1 {
			t.Fatalf("%s chooses %v", strategy, got)
		}
		return got[0]
	}
	r := newRouter()
	if a, z := choose(r, routeFirst, 1, "a", "b", "c"), choose(r, routeLast, 1, "a", "b", "c"); a != "a" || z != "c" {
		t.Errorf("first %s, last %s", a, z)
	}
	for _, strategy := range []string{routeRound, routeLeastUsed, routeLeastRecen} {
		r, counts := newRouter(), map[string]int{}
		for range 9 {
			counts[choose(r, strategy, 1, "a", "b", "c")]++
		}
		if counts["a"] != 3 || counts["b"] != 3 || counts["c"] != 3 {
			t.Errorf("%s: %v, want each three times", strategy, counts)
		}
		// A new executor gets its share, and not all.
		counts = map[string]int{}
		for range 8 {
			counts[choose(r, strategy, 1, "a", "b", "c", "d")]++
		}
		if counts["d"] < 1 || counts["d"] > 3 {
			t.Errorf("%s: the new executor got %d of 8", strategy, counts["d"])
		}
	}
	counts := map[string]int{}
	for job := range int32(300) {
		before := choose(r, routeHash, job, "a", "b", "c")
		counts[before]++
		if again := choose(r, routeHash, job, "a", "b", "c"); again != before {
			t.Errorf("job %d: %s, then %s", job, before, again)
		}
		if after := choose(r, routeHash, job, "a", "b"); before != "c" && after != before {
			t.Errorf("job %d moved from %s to %s though its executor is there", job, before, after)
		}
	}
	for address, n := range counts {
		if n < 50 {
			t.Errorf("%s has %d of 300 jobs", address, n)
		}
	}
	if got := r.choose(t.Context(), routeFailover, 1, []string{"a"}, no, no); got != nil {
		t.Errorf("failover chooses %v though none answers", got)
	}
}

func TestIDsStayAndDoNotCollide(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ids")
	s, err := openIDs(file)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.of("default", "a")
	if err != nil || first != hashed("default/a") || first <= 0 {
		t.Fatalf("%d %v", first, err)
	}
	// Another name has the number of the next one.
	other := hashed("default/b")
	s.byID[other] = "default/taken"
	second, err := s.of("default", "b")
	if err != nil || second == other {
		t.Fatalf("two names have the number %d: %v", second, err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openIDs(file); err != nil {
		t.Fatal(err)
	}
	defer s.close() //nolint:errcheck // it was read only
	for name, want := range map[string]int32{"a": first, "b": second} {
		if got, err := s.of("default", name); err != nil || got != want {
			t.Errorf("%s has %d, then %d %v", name, want, got, err)
		}
	}
}

func TestCallbacks(t *testing.T) {
	for text, want := range map[string]string{
		`[{"logId":1,"handleCode":200,"handleMsg":"a"},{"logId":2,"handleCode":500}]`: "[1 200 a][2 500 ]",
		`{"logId":3,"handleCode":502,"handleMsg":"b"}`:                                "[3 502 b]",
		`[{"logId":4,"executeResult":{"code":200,"msg":"old"}}]`:                      "[4 200 old]",
		`[]`: "",
	} {
		list, err := parseCallbacks([]byte(text))
		got := ""
		for _, c := range list {
			got += fmt.Sprintf("[%d %d %s]", c.LogID, c.Code, c.Msg)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s %v", text, got, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	for text, want := range map[string]string{
		`{"code":200,"msg":null}`: "200 ",
		`{"code":500,"msg":"no"}`: "500 no",
		`[{"logId":4,"executeResult":{"code":500,"msg":"x"},"handleCode":500,"handleMsg":"Task not registered"}]`: "500 Task not registered",
	} {
		a, err := parseAnswer([]byte(text))
		if got := fmt.Sprintf("%d %s", a.Code, a.text()); err != nil || got != want {
			t.Errorf("%s: %s %v", text, got, err)
		}
	}
	for _, text := range []string{"", "[]", "no", "[1]"} {
		if a, err := parseAnswer([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, a)
		}
	}
}
