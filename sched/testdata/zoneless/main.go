// Command zoneless prints what becomes of schedules with a time zone. It does not import
// time/tzdata, and runs where there is no tz database.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
)

func main() {
	_, err := calendar.Cron("30 2 * * *", calendar.In("Europe/Berlin"))
	fmt.Println("cron:", err)
	_, err = calendar.Cron("TZ=Europe/Berlin 30 2 * * *")
	fmt.Println("text:", err)
	_, err = calendar.Dates("Europe/Berlin", "12-25")
	fmt.Println("dates:", err)
	const event = "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n" +
		"BEGIN:VEVENT\nUID:1\n" +
		"DTSTART;TZID=Europe/Berlin:20260101T000000\n" +
		"DTEND;TZID=Europe/Berlin:20260102T000000\n" +
		"END:VEVENT\nEND:VCALENDAR\n"
	_, err = ical.ParseText(event, "UTC")
	fmt.Println("ical:", err)
	d := sched.Definition{Name: "a", Kind: "k", Schedule: "TZ=Europe/Berlin 30 2 * * *"}
	fmt.Println("definition:", d.Validate())
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		panic(err)
	}
	s, err := sched.New(claims, sched.Config{Group: "default"})
	if err != nil {
		panic(err)
	}
	if err := s.Handle("k", func(context.Context, sched.Tick, json.RawMessage) error { return nil }); err != nil {
		panic(err)
	}
	utc, err := calendar.Cron("30 2 * * *")
	fmt.Println("utc:", err, utc.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
}
