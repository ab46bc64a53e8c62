package console

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"
)

// codeLife is how long after its issue a code signs in.
const codeLife = 10 * time.Minute

// Codes are codes that sign a browser in, each once. A link may hold one where it
// must not hold a token: what is left of it in histories and logs opens nothing. It
// is safe for concurrent use.
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

// take returns the token of a code, and the code is spent.
func (c *Codes) take(text string) (token string, ok bool) {
	key := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.byKey[key]
	delete(c.byKey, key)
	return found.token, ok && time.Now().Before(found.expires)
}

// chosen reports whether a person has opened an address, by typing it or from outside
// the browser. Another site could open it to sign the person in as another user, and
// a browser that looks ahead would spend the code.
func chosen(r *http.Request) bool {
	from := r.Header.Get("Sec-Fetch-Site") // absent outside browsers
	return r.Method == http.MethodGet && (from == "" || from == "none" || from == "same-origin") &&
		r.Header.Get("Sec-Purpose") == "" && r.Header.Get("Purpose") == ""
}
