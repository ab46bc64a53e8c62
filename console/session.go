package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sessionLife is how long a session lasts without use, and longestSession how long it
	// lasts in all. A session in use is renewed every renewEvery.
	sessionLife    = 12 * time.Hour
	longestSession = 7 * 24 * time.Hour
	renewEvery     = 10 * time.Minute
	maxSessions    = 1024
	// maxPerToken bounds the sessions of one token, so that repeated logins with one
	// token evict only its own sessions.
	maxPerToken = 16
	// maxStreams bounds the runs that one session follows: each holds two streams of the
	// API.
	maxStreams = 32
)

// Storage keeps the sessions over a restart of the process. Load returns nil when nothing
// was saved. Save replaces the saved bytes, durably.
type Storage interface {
	Load() ([]byte, error)
	Save([]byte) error
}

// session is one signed-in browser. Its token never leaves the process.
type session struct {
	id      string // opaque, random, the value of the cookie
	key     sessionKey
	token   string
	owner   string // digest of the token, or of the name that the proxy gave
	proxied string // what the proxy said about the visitor, see [Proxied.identity]; "": the visitor signed in without one
	sealed  []byte // the token, encrypted with a key that only the cookie yields
	started time.Time
	expires time.Time
	streams atomic.Int32 // number of followed runs
	notices notices
	counts  errorCounts
	hosts   hostNames
	sweeps  sweeps
	visitors
}

// sessionKey is the digest of a session's id.
type sessionKey [sha256.Size]byte

// acquire takes n of the runs that a session may follow; release returns them.
func (s *session) acquire(n int) bool {
	if s.streams.Add(int32(n)) > maxStreams {
		s.release(n)
		return false
	}
	return true
}

func (s *session) release(n int) { s.streams.Add(-int32(n)) }

// sessions holds the signed-in browsers. The storage has digests of ids, and tokens that
// are encrypted with the ids. So a copy of it starts no session and reveals no token.
type sessions struct {
	storage Storage // nil: a restart signs out all browsers
	log     *slog.Logger
	saving  sync.Mutex // held from the snapshot to the end of its save
	mu      sync.Mutex
	byKey   map[sessionKey]*session // at most maxSessions
}

// newSessions loads the sessions of the previous process. Damaged or unreadable storage
// signs all browsers out.
func newSessions(storage Storage, log *slog.Logger) *sessions {
	s := &sessions{storage: storage, log: log, byKey: map[sessionKey]*session{}}
	if storage == nil {
		return s
	}
	b, err := storage.Load()
	if err == nil && b != nil {
		err = s.restore(b)
	}
	if err != nil {
		log.Warn("the sessions of the console cannot be restored: everybody has to sign in again", "error", err)
	}
	return s
}

// savedSessions is the content of the storage.
type savedSessions struct {
	Version  int            `json:"version"` // 1
	Sessions []savedSession `json:"sessions"`
}

type savedSession struct {
	Key     string    `json:"key"` // hexadecimal
	Owner   string    `json:"owner"`
	Proxied string    `json:"proxied,omitempty"`
	Sealed  []byte    `json:"sealed"`
	Started time.Time `json:"started"`
	Expires time.Time `json:"expires"`
}

func (s *sessions) restore(b []byte) error {
	var saved savedSessions
	if err := json.Unmarshal(b, &saved); err != nil {
		return err
	}
	if saved.Version != 1 || len(saved.Sessions) > maxSessions {
		return fmt.Errorf("version %d with %d sessions: this program reads version 1 with at most %d", saved.Version, len(saved.Sessions), maxSessions)
	}
	for _, x := range saved.Sessions {
		key, err := hex.DecodeString(x.Key)
		if err != nil || len(key) != sha256.Size {
			return fmt.Errorf("the key %.80q is not a digest", x.Key)
		}
		if time.Now().Before(x.Expires) {
			n := &session{key: sessionKey(key), owner: x.Owner, proxied: x.Proxied, sealed: x.Sealed, started: x.Started, expires: x.Expires}
			s.byKey[n.key] = n
		}
	}
	return nil
}

// save writes all sessions to the storage.
func (s *sessions) save() error {
	if s.storage == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	saved := savedSessions{Version: 1}
	s.mu.Lock()
	for _, x := range s.byKey {
		saved.Sessions = append(saved.Sessions, savedSession{hex.EncodeToString(x.key[:]), x.owner, x.proxied, x.sealed, x.started, x.expires})
	}
	s.mu.Unlock()
	b, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	return s.storage.Save(b)
}

// saveOrLog is for changes that a visitor need not know about when they are lost.
func (s *sessions) saveOrLog() {
	if err := s.save(); err != nil {
		s.log.Error("the sessions of the console cannot be saved: a restart signs browsers out", "error", err)
	}
}

// add starts a session for a token that the API has accepted. When the token has
// maxPerToken sessions, add ends the one of them that expires first. It never ends a
// session of another token, and returns nil when there is no room.
//
// With proxied, the session is of a visitor that the proxy has named. Each of its sign-ins makes another
// token, so the bound is that of the name.
func (s *sessions) add(token, proxied string) *session {
	n := openSession(token)
	if n.proxied = proxied; proxied != "" {
		n.owner, _, _ = strings.Cut(proxied, "/")
	}
	if !s.insert(n) {
		return nil
	}
	s.saveOrLog()
	return n
}

func openSession(token string) *session {
	owner := sha256.Sum256([]byte(token))
	n := &session{id: rand.Text(), token: token, owner: hex.EncodeToString(owner[:]), started: time.Now(), expires: time.Now().Add(sessionLife)}
	n.key = sha256.Sum256([]byte(n.id))
	n.sealed = sealer(n.id).Seal(nil, make([]byte, sealer(n.id).NonceSize()), []byte(token), n.key[:])
	return n
}

// sealer returns the cipher of one session. Its key seals one text, so the nonce is zero.
func sealer(id string) cipher.AEAD {
	key, err := hkdf.Key(sha256.New, []byte(id), nil, "wheelwork console session", 32)
	if err != nil {
		panic(err) // only for a length over 8160 bytes
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for another length of the key
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // only for another block size
	}
	return aead
}

func (s *sessions) insert(n *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []*session
	for key, c := range s.byKey {
		switch {
		case time.Now().After(c.expires):
			delete(s.byKey, key)
		case c.owner == n.owner:
			own = append(own, c)
		}
	}
	switch {
	case len(own) >= maxPerToken:
		first := slices.MinFunc(own, func(a, b *session) int { return a.expires.Compare(b.expires) })
		delete(s.byKey, first.key)
	case len(s.byKey) >= maxSessions:
		return false
	}
	s.byKey[n.key] = n
	return true
}

// get returns the valid session of a request, or nil.
func (s *sessions) get(r *http.Request, cookie string) *session {
	c, err := r.Cookie(cookie)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byKey[sha256.Sum256([]byte(c.Value))]
	if found == nil {
		return nil
	}
	if time.Now().After(found.expires) {
		delete(s.byKey, found.key)
		return nil
	}
	if found.token == "" { // of the previous process
		aead := sealer(c.Value)
		token, err := aead.Open(nil, make([]byte, aead.NonceSize()), found.sealed, found.key[:])
		if err != nil {
			delete(s.byKey, found.key) // the storage is damaged
			return nil
		}
		found.id, found.token = c.Value, string(token)
	}
	return found
}

// renew extends a session that is used, and returns its new end if it did. It never extends one
// beyond longestSession after its start.
func (s *sessions) renew(x *session) (end time.Time, renewed bool) {
	s.mu.Lock()
	now := time.Now()
	expires := now.Add(sessionLife)
	if last := x.started.Add(longestSession); expires.After(last) {
		expires = last
	}
	due := expires.Sub(x.expires) >= renewEvery && s.byKey[x.key] == x
	if due {
		x.expires = expires
	}
	s.mu.Unlock()
	if due {
		s.saveOrLog()
	}
	return expires, due
}

// remove ends a session. After an error a restart could bring it back.
func (s *sessions) remove(key sessionKey) error {
	s.mu.Lock()
	delete(s.byKey, key)
	s.mu.Unlock()
	return s.save()
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
