package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestPartGrid shows every part of a run with its state, and only counts of a large run.
func TestPartGrid(t *testing.T) {
	f := newFake().populate()
	f.change(func() {
		f.run(partRun(3)).State = "succeeded"
		f.run(partRun(59)).State = "running"
		f.run(parentRun()).Parts = 64
	})
	s := newSite(t, f).signIn(t)
	for lang, want := range map[string][]string{
		"en": {`aria-label="3: Succeeded">3</a>`, "4 more parts have no run here"},
		"zh": {`aria-label="3: 成功">3</a>`, "另有 4 个分片在此没有运行"},
	} {
		resp, body := s.do(t, "GET", "/apps/default/runs/"+parentRun(), nil, "Accept-Language", lang)
		checkPage(t, body)
		for _, part := range append(want, `class="cell s-stopped off" id="cell-0" href="/apps/default/runs/`+partRun(0)+`"`, `class="cell s-running" id="cell-59"`) {
			if resp.StatusCode != http.StatusOK || !strings.Contains(body, part) {
				t.Errorf("%s: the page does not hold %s", lang, part)
			}
		}
		if n := strings.Count(body, `class="cell `); n != 60 {
			t.Errorf("%s: %d cells, want 60", lang, n)
		}
	}
	// Without time a page has what one call reads, and continues after it.
	f.change(func() { f.cut = 40 })
	v := &visit{ctx: s.c.withToken(mustRequest(t), goodToken), app: "default"}
	parent := &apiv1.Run{Id: parentRun(), Parts: 64}
	first, err := s.c.gridOf(v, parent, "", time.Time{})
	if err != nil || len(first.Parts) != 40 || first.Next == "" || first.Without != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	rest, err := s.c.gridOf(v, parent, first.Next, time.Time{})
	if err != nil || len(rest.Parts) != 20 || rest.Next != "" || rest.Parts[0].Part != 40 || rest.Without != 0 {
		t.Errorf("%+v, %v", rest, err)
	}
	if all, err := s.c.gridOf(v, parent, "", time.Now().Add(time.Minute)); err != nil || len(all.Parts) != 60 || all.Without != 4 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, body := s.do(t, "GET", "/apps/default/runs/"+parentRun()+"?cells="+first.Next, nil); strings.Contains(body, `id="cell-39"`) || !strings.Contains(body, `id="cell-40"`) || !strings.Contains(body, ">The first parts</a>") {
		t.Error("the page does not continue the grid")
	}
	f.change(func() { f.run(parentRun()).Parts = maxCells + 1 })
	if _, body := s.do(t, "GET", "/apps/default/runs/"+parentRun(), nil); strings.Contains(body, `class="cell `) || !strings.Contains(body, "12 succeeded, 48 did not") {
		t.Error("a run with too many parts has a grid, or lacks its counts")
	}
}
