package cron

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"

	"pgregory.net/rapid"
)

// TestProperties checks Next, Prev and String against each other, at random instants in
// six centuries.
func TestProperties(t *testing.T) {
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Antarctica/Troll", "Africa/Casablanca"}
	rapid.Check(t, func(t *rapid.T) {
		r := drawSchedule(t)
		loc, err := LoadZone(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		opt := Options{Gap: r.gap, Fold: r.fold}
		s, err := Parse(r.expr, loc, opt)
		if err != nil {
			return // impossible date
		}
		checkRoundTrip(t, s, opt)
		from := time.Unix(rapid.Int64Range(-10_000_000_000, 10_000_000_000).Draw(t, "from"), rapid.Int64Range(0, 1).Draw(t, "nanosecond"))
		checkNeighbours(t, s, from)
	})
}

// checkRoundTrip parses the String of a schedule and compares the two schedules.
func checkRoundTrip(t fataler, s *Schedule, opt Options) {
	again, err := Parse(s.String(), s.loc, opt)
	if err != nil {
		t.Fatalf("printed form does not parse: %v", err)
	}
	if again.String() != s.String() || again.interval != s.interval || again.last != s.last || !reflect.DeepEqual(again.calendar, s.calendar) {
		t.Fatalf("%s parses to another schedule, which prints as %s", s, again)
	}
}

// checkNeighbours checks that a few instants after from rise strictly and are whole
// seconds, and that Prev reverses Next.
func checkNeighbours(t fataler, s *Schedule, from time.Time) {
	at := from
	for range 5 {
		next, ok := s.Next(at)
		if !ok {
			return
		}
		if !next.After(at) || next.Nanosecond() != 0 || next.Location() != s.loc {
			t.Fatalf("%s: Next(%s) = %s", s, at, next)
		}
		if prev, ok := s.Prev(next); ok && prev.After(at) {
			t.Fatalf("%s: Next(%s) = %s passes over %s", s, at, next, prev)
		}
		if back, ok := s.Prev(next.Add(time.Nanosecond)); !ok || !back.Equal(next) {
			t.Fatalf("%s: Prev just after %s = %s", s, next, back)
		}
		at = next
	}
}

func FuzzParse(f *testing.F) {
	for _, expr := range []string{
		"* * * * *", "30 2 * * *", "0 */5 * * * *", "0 0 0 L-3W * ?", "0 0 ? * FRI#5,2L", "0 0 29 2 */6", "0 22-2/2 25-5 NOV-FEB 5-7",
		"H H(9-17)/2 H * H", "0 0 0 1 1 ? 2030/7", "@weekly", "@every 1s", "0 0 30 2 *", "0 30 2/23 ? 3 1#2", "*,*/2,5/9 * 1W,LW,31W * SUN-SAT",
	} {
		f.Add(expr, "America/New_York", int64(1_772_928_000), byte(0))
		f.Add(expr, "Australia/Lord_Howe", int64(-1), byte(4))
		f.Add(expr, "Pacific/Apia", int64(1_325_239_000), byte(8))
	}
	gaps := []GapPolicy{GapShift, GapSkip}
	folds := []FoldPolicy{FoldFirst, FoldSecond, FoldBoth}
	f.Fuzz(func(t *testing.T, expr, zoneName string, from int64, policy byte) {
		loc, err := LoadZone(zoneName)
		if err != nil {
			loc = time.UTC
		}
		opt := Options{Gap: gaps[policy%2], Fold: folds[policy/2%3], Seed: expr}
		s, err := Parse(expr, loc, opt)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("error is not one sentence: %q", err)
			}
			return
		}
		checkRoundTrip(t, s, opt)
		checkNeighbours(t, s, time.Unix(from, 0))
		for _, lang := range []string{"en", "zh"} {
			if s.Explain(lang) == "" {
				t.Fatalf("%s: no explanation in %s", s, lang)
			}
		}
		s.Lint(time.Unix(from, 0))
	})
}

func FuzzLoadZone(f *testing.F) {
	for _, name := range []string{"", "UTC", "Local", "Asia/Shanghai", "new york", "UTC+8", "../x", "Asia/\x00", "北京"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		loc, err := LoadZone(name)
		if (loc == nil) == (err == nil) {
			t.Fatalf("LoadZone(%q) = %v, %v", name, loc, err)
		}
	})
}

// TestZoneNames compares zones.txt with the zone database of the Go toolchain.
func TestZoneNames(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	var archive *zip.ReadCloser
	if err == nil {
		archive, err = zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	}
	if err != nil {
		testkit.Lacks(t, "the Go toolchain's lib/time/zoneinfo.zip is missing: %v", err)
	}
	defer archive.Close()
	names := strings.Fields(zoneNames)
	if !slices.IsSorted(names) {
		t.Error("zones.txt is not sorted")
	}
	for _, file := range archive.File {
		if _, found := slices.BinarySearch(names, file.Name); !found && !strings.HasSuffix(file.Name, "/") {
			t.Errorf("zones.txt lacks %s", file.Name)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	tests := []struct {
		name, expr, zone, from string
		opt                    Options
	}{
		{"daily", "30 2 * * *", "America/New_York", "2026-06-01T00:00:00Z", Options{}},
		{"every second", "* * * * * *", "Asia/Shanghai", "2026-06-01T00:00:00Z", Options{}},
		{"rule year", "30 2 * * *", "America/New_York", "2500-06-01T00:00:00Z", Options{}},
		{"29 Feb", "0 0 29 2 *", "America/New_York", "2096-02-29T12:00:00Z", Options{}},
		// The longest wait of a day rule: 40 years over 2100.
		{"29 Feb on a weekend", "0 0 29 2 */6", "America/New_York", "2088-03-01T00:00:00Z", Options{}},
		{"fifth Monday of February", "0 0 0 ? 2 2#5", "America/New_York", "2072-03-01T00:00:00Z", Options{}},
		{"far year", "0 0 0 1 1 ? 2199", "America/New_York", "1971-01-01T00:00:00Z", Options{}},
		{"gap for ever", "0 30 2 ? 3 1#2", "America/New_York", "2026-06-01T00:00:00Z", Options{Gap: GapSkip}},
		{"past year", "0 0 0 1 1 ? 2020", "America/New_York", "2026-06-01T00:00:00Z", Options{}},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			s := mustParse(b, tt.expr, zone(b, tt.zone), tt.opt)
			from := instant(b, tt.from)
			b.ReportAllocs()
			for b.Loop() {
				s.Next(from)
			}
		})
	}
}

// BenchmarkNextNever measures the longest search: 400 years of months without a day.
func BenchmarkNextNever(b *testing.B) {
	s := mustParse(b, "0 30 2 ? * 2#5", zone(b, "America/New_York"), Options{}).On(func(int, int) uint32 { return 0 })
	from := instant(b, "2026-06-01T00:00:00Z")
	for b.Loop() {
		s.Next(from)
	}
}

func BenchmarkCountYear(b *testing.B) {
	for _, expr := range []string{"* * * * * *", "*/5 9-17 * * MON-FRI", "30 2 * * *"} {
		b.Run(expr, func(b *testing.B) {
			s := mustParse(b, expr, zone(b, "America/New_York"), Options{})
			from := instant(b, "2026-06-01T00:00:00Z")
			for b.Loop() {
				s.Count(from, from.AddDate(1, 0, 0))
			}
		})
	}
}

func BenchmarkInstant(b *testing.B) {
	loc, wall := zone(b, "America/New_York"), instant(b, "2026-03-08T02:30:00Z")
	for b.Loop() {
		Instant(loc, wall)
	}
}

func BenchmarkPrev(b *testing.B) {
	s := mustParse(b, "0 0 0 ? 2 2#5", zone(b, "America/New_York"), Options{})
	from := instant(b, "2112-01-01T00:00:00Z")
	for b.Loop() {
		s.Prev(from)
	}
}

func BenchmarkParse(b *testing.B) {
	loc := zone(b, "America/New_York")
	for b.Loop() {
		if _, err := Parse("0 30 2 ? * MON-FRI", loc, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
