package console

import (
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	sessionLife = 12 * time.Hour
	maxSessions = 1024
	// maxPerToken bounds the sessions of one token, so that repeated logins with one
	// token evict only its own sessions.
	maxPerToken = 16
	// maxStreams bounds the runs that one session follows: each holds two streams of the
	// API.
	maxStreams = 32
)

// session is one signed-in browser. Its token never leaves the process.
type session struct {
	id      string // opaque, random, the value of the cookie
	token   string
	expires time.Time
	streams atomic.Int32 // number of followed runs
}

// acquire takes n of the runs that a session may follow; release returns them.
func (s *session) acquire(n int) bool {
	if s.streams.Add(int32(n)) > maxStreams {
		s.release(n)
		return false
	}
	return true
}

func (s *session) release(n int) { s.streams.Add(-int32(n)) }

// sessions holds the signed-in browsers in memory only: a restart signs out all of them.
type sessions struct {
	mu   sync.Mutex
	byID map[string]*session // at most maxSessions
}

func newSessions() *sessions { return &sessions{byID: map[string]*session{}} }

// add starts a session for a token that the API has accepted. When the token has
// maxPerToken sessions, add ends the one of them that expires first. It never ends a
// session of another token, and returns nil when there is no room.
func (s *sessions) add(token string) *session {
	n := &session{id: rand.Text(), token: token, expires: time.Now().Add(sessionLife)}
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []*session
	for id, c := range s.byID {
		switch {
		case time.Now().After(c.expires):
			delete(s.byID, id)
		case c.token == token:
			own = append(own, c)
		}
	}
	switch {
	case len(own) >= maxPerToken:
		first := slices.MinFunc(own, func(a, b *session) int { return a.expires.Compare(b.expires) })
		delete(s.byID, first.id)
	case len(s.byID) >= maxSessions:
		return nil
	}
	s.byID[n.id] = n
	return n
}

// get returns the valid session of a request, or nil.
func (s *sessions) get(r *http.Request, cookie string) *session {
	c, err := r.Cookie(cookie)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byID[c.Value]
	if found == nil {
		return nil
	}
	if time.Now().After(found.expires) {
		delete(s.byID, found.id)
		return nil
	}
	return found
}

func (s *sessions) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// cookieName returns a name with the prefix that makes browsers reject the cookie from a
// subdomain or from plain HTTP, where the prefix is available.
func (c *console) cookieName() string {
	if c.secure {
		return "__Host-wheelwork_session"
	}
	return "wheelwork_session"
}

func (c *console) setCookie(w http.ResponseWriter, name, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name:     name,
		Value:    value,
		Path:     "/",
		MaxAge:   int(life / time.Second),
		HttpOnly: true,
		Secure:   c.secure,
		SameSite: http.SameSiteLaxMode,
	})
}
