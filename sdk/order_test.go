package sdk_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// listed reads jobs of the form "name: its dependencies / the jobs of its nodes".
func listed(lines ...string) iter.Seq2[*sdk.Job, error] {
	return func(yield func(*sdk.Job, error) bool) {
		for i, line := range lines {
			name, names, _ := strings.Cut(line, ":")
			up, nodes, _ := strings.Cut(names, "/")
			job := &sdk.Job{Name: name, Description: fmt.Sprint(i)}
			if name, app, ok := strings.Cut(name, "@"); ok {
				job.Name, job.App = name, app
			}
			if jobs := strings.Fields(up); len(jobs) > 0 {
				job.Dependency = &sdk.Dependency{Jobs: jobs}
			}
			if jobs := strings.Fields(nodes); len(jobs) > 0 {
				job.Workflow = &sdk.Workflow{}
				for i, name := range jobs {
					job.Workflow.Nodes = append(job.Workflow.Nodes, &sdk.Node{Name: fmt.Sprint("n", i), Job: name})
				}
			}
			if !yield(job, nil) {
				return
			}
		}
	}
}

func inOrder(t *testing.T, jobs iter.Seq2[*sdk.Job, error]) (names, circles []string) {
	t.Helper()
	for job, err := range sdk.InOrder(jobs, func(names []string) { circles = append(circles, strings.Join(names, " ")) }) {
		if err != nil {
			t.Fatal(err)
		}
		name := job.GetName()
		if job.GetApp() != "" {
			name += "@" + job.GetApp()
		}
		names = append(names, name)
	}
	return names, circles
}

func TestInOrder(t *testing.T) {
	tests := map[string]struct {
		jobs    []string
		want    string
		circles []string
	}{
		"nothing named":              {[]string{"c", "a", "b"}, "c a b", nil},
		"a dependency":               {[]string{"a: z", "m", "z"}, "m z a", nil},
		"nodes":                      {[]string{"a: / y z", "b: / a", "y", "z"}, "y z a b", nil},
		"a chain":                    {[]string{"a: b", "b: c", "c: d", "d"}, "d c b a", nil},
		"both ways of names":         {[]string{"a: b / c", "c", "b"}, "c b a", nil},
		"absent":                     {[]string{"a: gone", "b: a"}, "a b", nil},
		"absent, and one that comes": {[]string{"a: gone z", "b: a", "z"}, "z a b", nil},
		"itself":                     {[]string{"a: / a"}, "a", nil},
		"defined twice":              {[]string{"a: z", "a", "z"}, "z a a", nil},
		"other apps":                 {[]string{"a@x: z", "z@y", "z@x"}, "z@y z@x a@x", nil},
		"the default app by name":    {[]string{"a@default: z", "z"}, "z a@default", nil},
		"a circle":                   {[]string{"x", "a: b", "b: c", "c: a", "y: c"}, "x a c b y", []string{"a b c a"}},
		"behind a circle":            {[]string{"q: p", "p: a", "a: b", "b: a"}, "a p b q", []string{"a b a"}},
		"two circles":                {[]string{"a: b", "b: a", "c: d", "d: c", "e: b d"}, "a b c d e", []string{"a b a", "c d c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			names, circles := inOrder(t, listed(test.jobs...))
			if got := strings.Join(names, " "); got != test.want || !slices.Equal(circles, test.circles) {
				t.Errorf("order %q with circles %q, want %q with %q", got, circles, test.want, test.circles)
			}
		})
	}
}

// TestInOrderTwice checks that two definitions of one job keep their order.
func TestInOrderTwice(t *testing.T) {
	var got []string
	for job := range sdk.InOrder(listed("a: z", "a", "z"), nil) {
		got = append(got, job.GetName()+job.GetDescription())
	}
	if want := []string{"z2", "a0", "a1"}; !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestInOrderEnds(t *testing.T) {
	broken := errors.New("broken")
	var got []error
	for _, err := range sdk.InOrder(func(yield func(*sdk.Job, error) bool) { yield(nil, broken) }, nil) {
		got = append(got, err)
	}
	if len(got) != 1 || !errors.Is(got[0], broken) {
		t.Errorf("errors %v, want the one of the list", got)
	}
	for range sdk.InOrder(listed("a: b", "b", "c"), nil) {
		break // InOrder must not read further
	}
}

// TestInOrderOfMany orders random graphs without cycles.
func TestInOrderOfMany(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		const jobs = 60
		lines := make([]string, jobs)
		for i := range lines {
			lines[i] = fmt.Sprintf("j%d:", i)
			for range random.IntN(4) {
				if i > 0 {
					if name := fmt.Sprintf(" j%d", random.IntN(i)); !strings.Contains(lines[i]+" ", name+" ") {
						lines[i] += name
					}
				}
			}
		}
		random.Shuffle(jobs, func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		done := map[string]bool{}
		for job, err := range sdk.InOrder(listed(lines...), func(names []string) { t.Errorf("circle %q", names) }) {
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range sdk.References(job) {
				if !done[name] {
					t.Errorf("%s comes before %s, which it names", job.GetName(), name)
				}
			}
			done[job.GetName()] = true
		}
		if len(done) != jobs {
			t.Errorf("%d jobs came, want %d", len(done), jobs)
		}
	}
}
