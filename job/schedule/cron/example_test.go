package cron_test

import (
	"fmt"
	"log"
	"time"

	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// berlin parses an expression whose times are those of Berlin.
func berlin(expr string, opt cron.Options) *cron.Schedule {
	zone, err := cron.LoadZone("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	s, err := cron.Parse(expr, zone, opt)
	if err != nil {
		log.Fatal(err)
	}
	return s
}

func ExampleSchedule_Next() {
	s, err := cron.Parse("30 9 * * 1-5", nil, cron.Options{}) // nil: UTC
	if err != nil {
		log.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 3 {
		at, _ = s.Next(at)
		fmt.Println(at.Format("Mon 2006-01-02 15:04"))
	}
	// Output:
	// Fri 2026-01-02 09:30
	// Mon 2026-01-05 09:30
	// Tue 2026-01-06 09:30
}

// An error names the field and the allowed values.
func ExampleParse_error() {
	_, err := cron.Parse("0 24 * * *", nil, cron.Options{})
	fmt.Println(err)
	// Output: parse cron expression "0 24 * * *": hour: 24 is out of range, allowed are 0-23
}

// On 29 March 2026 the clocks of Berlin go from 02:00 to 03:00. A time of day
// that does not exist is shifted or skipped.
func ExampleGapPolicy() {
	from := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for _, gap := range []cron.GapPolicy{cron.GapShift, cron.GapSkip} {
		at, _ := berlin("30 2 * * *", cron.Options{Gap: gap}).Next(from)
		fmt.Println(gap, at.Format(time.RFC3339))
	}
	// Output:
	// shift 2026-03-29T03:30:00+02:00
	// skip 2026-03-30T02:30:00+02:00
}

// On 25 October 2026 the clocks of Berlin show 02:30 twice.
func ExampleFoldPolicy() {
	from, to := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC)
	for _, fold := range []cron.FoldPolicy{cron.FoldFirst, cron.FoldSecond, cron.FoldBoth} {
		fmt.Print(fold)
		for _, at := range berlin("30 2 * * *", cron.Options{Fold: fold}).Between(from, to, 10) {
			fmt.Print(" ", at.Format("15:04-07:00"))
		}
		fmt.Println()
	}
	// Output:
	// first 02:30+02:00
	// second 02:30+01:00
	// both 02:30+02:00 02:30+01:00
}

func ExampleSchedule_Explain() {
	s := berlin("0 0 9 ? * MON#1", cron.Options{})
	fmt.Println(s.Explain("en"))
	// Output: At 09:00, on the first Monday of the month (Europe/Berlin)
}

// Lint warns about behaviour that the author of a schedule may not expect.
func ExampleSchedule_Lint() {
	s := berlin("30 2 * * *", cron.Options{})
	for _, warning := range s.Lint(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		fmt.Println(warning)
	}
	// Output: on 2026-03-29 the clocks in Europe/Berlin go from 02:00:00 to 03:00:00, so 02:30:00 does not exist: that run fires at 2026-03-29T03:30:00+02:00
}
