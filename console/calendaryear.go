package console

import (
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// firstYear and lastYear bound the years that a page of a calendar shows.
const firstYear, lastYear = 1970, 9999

// calendarYear are the days of one year in a calendar.
type calendarYear struct {
	Year   int
	Months [12]calendarMonth
	Days   int // in the calendar
}

// Others returns the years beside this one that the page can show.
func (y calendarYear) Others() []int {
	var years []int
	for _, n := range []int{y.Year - 1, y.Year + 1} {
		if n >= firstYear && n <= lastYear {
			years = append(years, n)
		}
	}
	return years
}

// calendarMonth has the weeks of a month, which begin on Monday.
type calendarMonth struct {
	Name  string // as 2026-01
	Weeks [][7]calendarDay
	Days  int // in the calendar
}

// calendarDay is a day of a month; its number is 0 if the day of the week is in another month.
type calendarDay struct {
	Number    int
	In, Today bool
}

// yearOf returns the year that an address names, by default that of today.
func yearOf(m *apiv1.Calendar, text string, today time.Time) (calendarYear, error) {
	y := calendarYear{Year: today.Year()}
	if text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < firstYear || n > lastYear {
			return y, status.Errorf(codes.InvalidArgument, "%.20q is not a year from %d to %d", text, firstYear, lastYear)
		}
		y.Year = n
	}
	c, err := schedule.CompileCalendar(m)
	if err != nil {
		return y, err
	}
	for i := range y.Months {
		y.Months[i] = monthOf(c, y.Year, time.Month(i+1), today)
		y.Days += y.Months[i].Days
	}
	return y, nil
}

func monthOf(c *schedule.Calendar, year int, month time.Month, today time.Time) calendarMonth {
	day := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	m := calendarMonth{Name: day.Format("2006-01")}
	now := today.Format(time.DateOnly)
	for ; day.Month() == month; day = day.AddDate(0, 0, 1) {
		weekday := (int(day.Weekday()) + 6) % 7
		if weekday == 0 || len(m.Weeks) == 0 {
			m.Weeks = append(m.Weeks, [7]calendarDay{})
		}
		d := calendarDay{Number: day.Day(), In: c.Has(day.Date()), Today: day.Format(time.DateOnly) == now}
		if d.In {
			m.Days++
		}
		m.Weeks[len(m.Weeks)-1][weekday] = d
	}
	return m
}
