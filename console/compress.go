package console

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
)

// minCompressed is the size, in bytes, from which compression saves a packet.
const minCompressed = 1400

// compressed returns a body with gzip.
func compressed(body []byte, level int) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	_, _ = z.Write(body) // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

// acceptsGzip reports whether a client takes a body with gzip.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			weight, found := strings.CutPrefix(strings.TrimSpace(params), "q=")
			q, err := strconv.ParseFloat(weight, 64)
			return !found || err == nil && q > 0
		}
	}
	return false
}

// mayCompress reports whether the page for a request may be compressed. The length of a
// compressed page tells an observer of the network whether a text in the address occurs in
// the page (BREACH). Another site can choose that address for a visitor's browser, so its
// requests get plain pages; without TLS the observer reads the page anyway. Pages contain
// no session ids and no tokens against forged requests. Event streams and downloads are
// never compressed.
func (c *console) mayCompress(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return acceptsGzip(r)
	case "": // an old browser, or an address that browsers do not trust
		return !c.secure && acceptsGzip(r)
	}
	return false
}
