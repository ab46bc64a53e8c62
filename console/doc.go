// Package console serves Wheelwork to browsers and HTTP clients: the web console, and the
// API as HTTP/JSON.
//
// It owns pages, sessions and the translation between HTTP and gRPC, and no product
// state. It reads everything from the API, and sends every change of a visitor to the API
// with the visitor's own token. It opens no store. Its only rooms are the API, the terms
// of job, and the cron engine that describes schedules in words.
//
// The console has two separate entrances:
//
//   - /api/v1/… accepts an Authorization: Bearer header and nothing else. A session
//     cookie does not give access, so another site cannot use the API through a
//     visitor's browser.
//   - Pages accept the session cookie that /login sets in exchange for a token.
//
// Pages are html/template, with htmx for refreshing and scripts of our own for live logs,
// the command palette, the keys and the progress of uploads. All files are embedded. The Content-Security-Policy
// allows neither inline scripts nor inline styles. Every page works without scripts, except
// for these.
package console
