package calendar_test

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

func ExampleCron() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	// Half past two on workdays.
	s, err := calendar.Cron("30 2 * * MON-FRI", calendar.In("Europe/Berlin"))
	if err != nil {
		fmt.Println(err)
		return
	}
	friday := time.Date(2026, time.March, 27, 12, 0, 0, 0, time.UTC)
	next := s.Next(friday)
	fmt.Println(next)
	fmt.Println(next.In(berlin))
	fmt.Println(s)
	// Output:
	// 2026-03-30 00:30:00 +0000 UTC
	// 2026-03-30 02:30:00 +0200 CEST
	// TZ=Europe/Berlin GAP=fire FOLD=first 0 30 2 * * 1-5
}

// On 29 March 2026 Berlin has no 02:30, on 25 October it has two.
func ExampleCron_changeOfClocks() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, options := range [][]calendar.CronOption{
		nil, // the default: GapFire and FoldFirst
		{calendar.GapSkip, calendar.FoldBoth},
	} {
		s, err := calendar.Cron("30 2 * * *", append(options, calendar.In("Europe/Berlin"))...)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s)
		for _, day := range []time.Time{
			time.Date(2026, time.March, 29, 0, 0, 0, 0, berlin),
			time.Date(2026, time.October, 25, 0, 0, 0, 0, berlin),
		} {
			for due := range calendar.Between(s, day, day.AddDate(0, 0, 1)) {
				fmt.Println("  ", due.In(berlin))
			}
		}
	}
	// Output:
	// TZ=Europe/Berlin GAP=fire FOLD=first 0 30 2 * * *
	//    2026-03-29 03:00:00 +0200 CEST
	//    2026-10-25 02:30:00 +0200 CEST
	// TZ=Europe/Berlin GAP=skip FOLD=both 0 30 2 * * *
	//    2026-10-25 02:30:00 +0200 CEST
	//    2026-10-25 02:30:00 +0100 CET
}

func ExampleCron_error() {
	_, err := calendar.Cron("*/90 * * * *")
	fmt.Println(err)
	// Output: calendar: cron "*/90 * * * *": minute, column 3: "90" is not a step; want 1-60
}

func ExampleEvery() {
	// Five minutes after each full hour, whenever a process was started.
	s := calendar.Must(calendar.Every(time.Hour, 5*time.Minute))
	started := time.Date(2026, time.March, 1, 10, 17, 42, 0, time.UTC)
	fmt.Println(s.Next(started))
	// Output: 2026-03-01 11:05:00 +0000 UTC
}

func ExampleBetween() {
	// The last workday of each month, at six in the evening.
	s := calendar.Must(calendar.Cron("0 18 LW * *"))
	year := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for due := range calendar.Between(s, year, year.AddDate(0, 4, 0)) {
		fmt.Println(due.Format("Mon 2 Jan 15:04"))
	}
	// Output:
	// Fri 30 Jan 18:00
	// Fri 27 Feb 18:00
	// Tue 31 Mar 18:00
	// Thu 30 Apr 18:00
}
