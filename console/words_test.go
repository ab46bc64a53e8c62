package console

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/reason"
)

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		count(0):                           "0",
		count(int32(999)):                  "999",
		count(int64(1234567)):              "1\u202f234\u202f567",
		count(-1234):                       "-1\u202f234",
		count(-123):                        "-123",
		byteSize(1023):                     "1023 B",
		byteSize(1536):                     "1.5 KiB",
		byteSize(1 << 62):                  "4096.0 PiB",
		percent(1, 3):                      "33.3 %",
		percent(99999, 100000):             "99.9 %",
		percent(0, 0):                      "–",
		span(-time.Second):                 "0s",
		span(1234 * time.Millisecond):      "1.23s",
		span(90*time.Minute + time.Second): "1h30m1s",
		span(30 * time.Minute):             "30m",
		span(2 * time.Hour):                "2h",
		span(80 * time.Minute):             "1h20m",
		span(1500 * time.Nanosecond):       "2µs",
		shorten(3, "日本語だ"):                 "日本語…",
		shorten(4, "日本語だ"):                 "日本語だ",
		shortDigest("sha256:abc"):          "abc",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRelativeTimes(t *testing.T) {
	now := time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)
	for _, lang := range languages() {
		texts, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		w := words{lang: lang, texts: texts, loc: time.UTC}
		want := map[string][]string{
			"en": {"just now", "5 s ago", "in 5 s", "2 min ago", "47 h ago", "2 days ago", "now"},
			"zh": {"刚刚", "5 秒前", "5 秒后", "2 分钟前", "47 小时前", "2 天前", "现在"},
		}[lang]
		for i, d := range []time.Duration{0, 5 * time.Second, -5 * time.Second, 150 * time.Second, 47 * time.Hour, 50 * time.Hour, -time.Millisecond} {
			if got := w.relative(now.Add(-d), now); got != want[i] {
				t.Errorf("%s: %s ago: %q, want %q", lang, d, got, want[i])
			}
		}
		if got := w.relative(time.Time{}, now); got != "–" {
			t.Errorf("never: %q", got)
		}
	}
}

func TestUpcoming(t *testing.T) {
	now := time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC) // the night in which New York's clocks go forward
	at := func(s string) *timestamppb.Timestamp {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return timestamppb.New(v)
	}
	for name, c := range map[string]struct {
		job  *apiv1.Job
		want []string
	}{
		"cron":   {&apiv1.Job{Schedule: &apiv1.Schedule{Cron: "30 2 * * *", Zone: "America/New_York"}, NextAt: at("2026-03-08T07:30:00Z")}, []string{"2026-03-08T03:30:00-04:00", "2026-03-09T02:30:00-04:00"}},
		"paused": {&apiv1.Job{Schedule: &apiv1.Schedule{Cron: "30 2 * * *", Zone: "America/New_York"}, Paused: new(true)}, []string{"2026-03-08T03:30:00-04:00", "2026-03-09T02:30:00-04:00"}},
		"every":  {&apiv1.Job{Schedule: &apiv1.Schedule{Every: "30s"}, NextAt: at("2026-03-08T06:00:10Z")}, []string{"2026-03-08T06:00:10Z", "2026-03-08T06:00:40Z"}},
		"delay":  {&apiv1.Job{Schedule: &apiv1.Schedule{Delay: "30s"}, NextAt: at("2026-03-08T06:00:10Z")}, []string{"2026-03-08T06:00:10Z"}},
		"late":   {&apiv1.Job{Schedule: &apiv1.Schedule{Every: "30s"}, NextAt: at("2026-03-08T05:59:50Z")}, []string{"2026-03-08T06:00:20Z", "2026-03-08T06:00:50Z"}},
		"manual": {&apiv1.Job{}, nil},
		"broken": {&apiv1.Job{Schedule: &apiv1.Schedule{Cron: "what?"}}, nil},
	} {
		got := upcoming(c.job, nil, now, 2)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
			continue
		}
		for i := range got {
			if s := got[i].Format(time.RFC3339); s != c.want[i] {
				t.Errorf("%s: %s, want %s", name, s, c.want[i])
			}
		}
	}
}

func TestTimeline(t *testing.T) {
	begin := time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)
	at := func(s int) *timestamppb.Timestamp { return timestamppb.New(begin.Add(time.Duration(s) * time.Second)) }
	run := &apiv1.Run{
		AcceptedAt: at(-2), PlannedAt: at(0), FinishedAt: at(100),
		Attempts: []*apiv1.Attempt{
			{Number: 1, DispatchedAt: at(10), StartedAt: at(20), FinishedAt: at(40), Outcome: "retryable"},
			{Number: 2, DispatchedAt: at(60), StartedAt: at(60), FinishedAt: at(100), Outcome: "succeeded"},
		},
	}
	lanes := timeline(run, begin)
	want := []struct {
		kind, lasted string
		x, width     float64
	}{{"wait", "10s", 0, 10}, {"attempt", "20s", 20, 20}, {"retry", "20s", 40, 20}, {"attempt", "40s", 60, 40}}
	if len(lanes) != len(want) {
		t.Fatalf("%d lanes, want %d", len(lanes), len(want))
	}
	for i, w := range want {
		l := lanes[i]
		last := l.Bars[len(l.Bars)-1]
		if l.Kind != w.kind || l.Lasted != w.lasted || last.X != w.x || last.Width != w.width {
			t.Errorf("lane %d: %s %s %+v, want %+v", i, l.Kind, l.Lasted, last, w)
		}
	}
	if first := lanes[1].Bars[0]; first.Kind != "start" || first.X != 10 || first.Width != 10 {
		t.Errorf("the way to the host: %+v", first)
	}
	if lanes[1].Start != "10s" || lanes[3].Start != "" {
		t.Errorf("the attempts start after %q and %q", lanes[1].Start, lanes[3].Start)
	}
	if kinds := strings.Join(barKinds(lanes), " "); kinds != "wait start retry" {
		t.Errorf("the legend has %s", kinds)
	}
}

// TestTimelineOfLateAcceptance: the time before the server accepts a run is no wait for a host.
func TestTimelineOfLateAcceptance(t *testing.T) {
	begin := time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)
	at := func(s int) *timestamppb.Timestamp { return timestamppb.New(begin.Add(time.Duration(s) * time.Second)) }
	for accepted, want := range map[int]string{-5: "wait 0+10", 0: "wait 0+10", 4: "accept 0+4, wait 4+6", 40: "wait 0+10"} {
		run := &apiv1.Run{PlannedAt: at(0), AcceptedAt: at(accepted), FinishedAt: at(100), Attempts: []*apiv1.Attempt{{Number: 1, DispatchedAt: at(10), StartedAt: at(10), FinishedAt: at(100)}}}
		var got []string
		lanes := timeline(run, begin)
		for _, l := range lanes[:len(lanes)-1] {
			got = append(got, fmt.Sprintf("%s %v+%v", l.Kind, l.Bars[0].X, l.Bars[0].Width))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("accepted at %d s: %q, want %q", accepted, got, want)
		}
	}
}

func TestTimelineOfRunsThatGoOn(t *testing.T) {
	now := time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)
	at := func(s int) *timestamppb.Timestamp { return timestamppb.New(now.Add(time.Duration(s) * time.Second)) }
	for name, c := range map[string]struct {
		run  *apiv1.Run
		want string // kind of the last lane
	}{
		"armed ahead":  {&apiv1.Run{AcceptedAt: at(-1), PlannedAt: at(5)}, ""},
		"queued":       {&apiv1.Run{PlannedAt: at(-5)}, "wait"},
		"running":      {&apiv1.Run{PlannedAt: at(-5), Attempts: []*apiv1.Attempt{{DispatchedAt: at(-4), StartedAt: at(-3)}}}, "attempt"},
		"to be tried":  {&apiv1.Run{PlannedAt: at(-5), Attempts: []*apiv1.Attempt{{DispatchedAt: at(-4), FinishedAt: at(-3)}}}, "retry"},
		"clocks apart": {&apiv1.Run{PlannedAt: at(-5), FinishedAt: at(-4), Attempts: []*apiv1.Attempt{{DispatchedAt: at(-60), StartedAt: at(60), FinishedAt: at(-70)}}}, "attempt"},
		"nothing":      {&apiv1.Run{}, ""},
	} {
		lanes := timeline(c.run, now)
		got := ""
		for _, l := range lanes {
			got = l.Kind
			for _, b := range l.Bars {
				if b.X < 0 || b.Width <= 0 || b.X+b.Width > 100.001 {
					t.Errorf("%s: a bar leaves the drawing: %+v", name, b)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: the last lane is %q, want %q", name, got, c.want)
		}
	}
}

// TestTimelineOfLedRuns checks that a run which other runs execute never waits for a host.
func TestTimelineOfLedRuns(t *testing.T) {
	begin := time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)
	at := func(s int) *timestamppb.Timestamp { return timestamppb.New(begin.Add(time.Duration(s) * time.Second)) }
	nodes := []*apiv1.NodeState{
		{Name: "kept", State: "succeeded", StartedAt: at(-50), FinishedAt: at(-40), Kept: true},
		{Name: "a", State: "succeeded", StartedAt: at(20), FinishedAt: at(60)},
		{Name: "b", State: "running", StartedAt: at(60)},
		{Name: "c", State: "pending"},
	}
	for name, c := range map[string]struct {
		run  *apiv1.Run
		want string
	}{
		"workflow":            {&apiv1.Run{PlannedAt: at(0), Nodes: nodes}, "before 0+20, a 20+40, b 60+40"},
		"workflow not begun":  {&apiv1.Run{PlannedAt: at(0), Nodes: nodes[3:]}, "before 0+100"},
		"parts":               {&apiv1.Run{PlannedAt: at(0), Parts: 3}, "parts 0+100"},
		"parts that have run": {&apiv1.Run{PlannedAt: at(0), FinishedAt: at(50), Parts: 3, PartsSucceeded: 3}, "parts 0+100"},
		"a part":              {&apiv1.Run{PlannedAt: at(0), Parts: 3, Parent: "x"}, "wait 0+100"},
	} {
		var got []string
		for _, l := range timeline(c.run, begin.Add(100*time.Second)) {
			got = append(got, fmt.Sprintf("%s %v+%v", cmp.Or(l.Name, l.Kind), l.Bars[0].X, l.Bars[0].Width))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestChart(t *testing.T) {
	ch := newChart([]*apiv1.Minute{{Succeeded: 3, Failed: 1}, {}, {Succeeded: 2}})
	if ch.Max != 4 || ch.Succeeded != 5 || ch.Failed != 1 || len(ch.Bars) != 3 {
		t.Errorf("%+v", ch)
	}
	if b := ch.Bars[0]; b.OKY != 25 || b.OKH != 75 || b.BadY != 0 || b.BadH != 25 {
		t.Errorf("the first bar: %+v", b)
	}
	if b := ch.Bars[1]; b.OKH != 0 || b.BadH != 0 {
		t.Errorf("an empty minute: %+v", b)
	}
	if ch := newChart(nil); ch.Max != 0 || ch.Bars != nil {
		t.Errorf("no minutes: %+v", ch)
	}
}

// TestScheduleOfADependency checks that a job with dependencies is not shown as a job
// that only people start.
func TestScheduleOfADependency(t *testing.T) {
	for lang, want := range map[string]string{"en": "When the jobs that it depends on have ended", "zh": "在其依赖的任务结束后"} {
		texts, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		j := &apiv1.Job{Dependency: &apiv1.Dependency{Jobs: []string{"totals"}}}
		if got, err := (words{lang: lang, texts: texts, loc: time.UTC}).schedule(j); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", lang, got, err, want)
		}
	}
}

// TestTriggerInWords checks the sentence about the events that start a job.
func TestTriggerInWords(t *testing.T) {
	for lang, want := range map[string]string{
		"en": "Each event of the type order.paid, from the event source shop, data.country is DE, subject begins with o-",
		"zh": "每个类型为 order.paid 的事件，来自事件源 shop，data.country 为 DE，subject 以 o- 开头",
	} {
		texts, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		j := &apiv1.Job{Trigger: &apiv1.EventTrigger{Event: "order.paid", Source: "shop", Match: map[string]string{"data.country": "DE", "subject": "o-*"}}}
		list, err := (words{lang: lang, texts: texts, loc: time.UTC}).policies(j)
		if err != nil || len(list) != 1 || list[0].Text != want {
			t.Errorf("%s: %v, %v, want %q", lang, list, err, want)
		}
	}
}

// TestEveryTriggerHasAName checks that no page shows a trigger by its API name.
func TestEveryTriggerHasAName(t *testing.T) {
	for _, lang := range languages() {
		texts, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		for _, trigger := range job.Triggers() {
			if texts["trigger."+string(trigger)] == "" {
				t.Errorf("%s: the trigger %s has no name", lang, trigger)
			}
		}
	}
}

// TestEveryReasonHasAText checks that each reason of a server has a sentence in each language,
// with the same values, and that the English one is the server's.
func TestEveryReasonHasAText(t *testing.T) {
	named := regexp.MustCompile(`\{\w+\}`)
	values := func(text string) string {
		found := named.FindAllString(text, -1)
		slices.Sort(found)
		return strings.Join(slices.Compact(found), " ")
	}
	for _, lang := range languages() {
		texts, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		for code, english := range reason.Texts() {
			text := texts["why."+code]
			if text == "" || lang == "en" && text != english || lang != "en" && text == english {
				t.Errorf("%s: the reason %s has the text %q, the server's is %q", lang, code, text, english)
			}
			if got, want := values(text), values(english); got != want {
				t.Errorf("%s: the text of %s has the values %s, the server's %s", lang, code, got, want)
			}
		}
		for key := range texts {
			if code, ok := strings.CutPrefix(key, "why."); ok && reason.Texts()[code] == "" {
				t.Errorf("%s: there is no reason %s", lang, code)
			}
		}
	}
}

// TestWhyOnThePage reads the explanation of a run in both languages. A reason that this version
// does not know, and one of an older server, keep the server's sentence.
func TestWhyOnThePage(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for lang, want := range map[string]string{"en": "has no label gpu", "zh": "没有标签 gpu"} {
		found := false
		for path := range pages() {
			_, body := s.do(t, "GET", path, nil, "Accept-Language", lang)
			if !strings.Contains(body, `id="why-host-c"`) {
				continue
			}
			found = true
			for _, text := range []string{want, "is of a later version", "it lacks the label gpu", "no host may take it"} {
				if !strings.Contains(body, text) {
					t.Errorf("%s in %s does not say %q", path, lang, text)
				}
			}
		}
		if !found {
			t.Error("no page explains a run")
		}
	}
}
