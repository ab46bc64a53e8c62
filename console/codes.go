package console

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"
)

// codeLife is how long a code is valid after its issue.
const codeLife = 10 * time.Minute

// Codes holds one-time codes that sign a browser in. A link contains a code instead of a
// token, so that a copy of the link in a history or log opens nothing after its use.
// Codes is safe for concurrent use.
type Codes struct {
	mu    sync.Mutex
	byKey map[[sha256.Size]byte]code
}

type code struct {
	token   string
	expires time.Time
}

// NewCodes returns an empty set of codes.
func NewCodes() *Codes { return &Codes{byKey: map[[sha256.Size]byte]code{}} }

// Issue returns a new code that signs in with a token.
func (c *Codes) Issue(token string) string {
	text := strings.ToLower(rand.Text() + rand.Text())
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, old := range c.byKey {
		if !now.Before(old.expires) {
			delete(c.byKey, key)
		}
	}
	c.byKey[sha256.Sum256([]byte(text))] = code{token, now.Add(codeLife)}
	return text
}

// take returns the token of a code and invalidates the code.
func (c *Codes) take(text string) (token string, ok bool) {
	key := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.byKey[key]
	delete(c.byKey, key)
	return found.token, ok && time.Now().Before(found.expires)
}

// chosen reports whether a person opened an address, by typing it or from outside the
// browser. A link on another site could sign the person in as another user, and a
// prefetching browser would use up the code.
func chosen(r *http.Request) bool {
	from := r.Header.Get("Sec-Fetch-Site") // absent in requests that do not come from a browser
	return r.Method == http.MethodGet && (from == "" || from == "none" || from == "same-origin") &&
		r.Header.Get("Sec-Purpose") == "" && r.Header.Get("Purpose") == ""
}
