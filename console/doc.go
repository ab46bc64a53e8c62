// Package console is the face of Wheelwork for browsers and for HTTP clients:
// the web console, and the API as HTTP/JSON.
//
// It owns pages, sessions and the translation between HTTP and gRPC, and no
// state of the product: whatever it shows it asks of the API, and whatever a
// visitor changes goes through the API, with the visitor's own token. It opens
// no store and knows no other room than the API, the words of job and the
// cron engine that puts schedules into words.
//
// Two ways in, kept apart:
//
//   - /api/v1/… takes an Authorization: Bearer header and nothing else. A
//     session cookie does not open it, so another site cannot use it through a
//     visitor's browser.
//   - Pages take the session cookie that /login hands out for a token.
//
// Pages are html/template with htmx for refreshing and one script of our own
// for live logs. Everything is embedded, the Content-Security-Policy allows
// neither inline script nor inline style, and every page works without script
// except for what moves by itself.
package console
