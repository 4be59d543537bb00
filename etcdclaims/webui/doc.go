// Package webui is a page for people on call: it shows who holds which key, who
// waits, the records of work, scheduled jobs, queues and dead letters, and the
// clients' sessions, live. It is an http.Handler for a server of yours.
//
//	page, err := webui.New(claims, webui.Config{Title: "production"})
//	// ...
//	defer page.Close()
//	mux.Handle("/claims/", requireLogin(page)) // any path that ends in a slash
//
// The handler has no login of its own: put yours in front of it. Without Config.Access,
// every visitor can read the pages, and no visitor can change anything.
//
// # What it costs
//
// All tabs share what the process has read. Claims are followed by one watch. Lines,
// work, schedules, queues and sessions are read while a tab shows them, each at most
// every two to ten seconds. They are read sooner after an action or a change of the key
// shown. A further tab on the same page costs etcd nothing. A minute after the last
// request and the last tab, nothing is read or watched.
//
// The handler keeps every held claim in memory while it is in use. Other lists are cut off:
// after the first thousand lines, works and jobs, 500 sessions, 200 queues and 100 groups. It also
// keeps what etcd does not store: the times of 2,000 terms, and the numbers of the last hour.
//
// # Without JavaScript
//
// Every page is complete as it is served, and every action is a form. The script
// replaces what has changed, and needs one EventSource for each visible tab.
package webui
