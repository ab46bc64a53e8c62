package console

import (
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// maxNotices bounds the notices that one session holds, and noticeLife how long a
	// notice waits for its page.
	maxNotices = 8
	noticeLife = time.Minute
)

// notices hold the results of changes between the change and the page to which it
// redirects. They are not in the address of that page, so that no link can make a page say
// something, and a reload does not repeat it.
type notices struct {
	mu  sync.Mutex
	all []notice // the oldest first; at most maxNotices
}

type notice struct {
	path  string // of the page that shows it
	value any
	until time.Time
}

func (n *notices) put(path string, value any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.all) == maxNotices {
		n.all = n.all[1:]
	}
	n.all = append(n.all, notice{path, value, time.Now().Add(noticeLife)})
}

// take returns and forgets the first notice for a page.
func (n *notices) take(path string) any {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, x := range n.all {
		if x.path == path {
			n.all = append(n.all[:i:i], n.all[i+1:]...)
			if time.Now().After(x.until) {
				return nil
			}
			return x.value
		}
	}
	return nil
}

// redirectWith redirects to a page that shows a notice once.
func (v *visit) redirectWith(to string, value any) {
	if u, err := url.Parse(to); err == nil {
		v.session.notices.put(u.Path, value)
	}
	v.redirect(to)
}

// noticeOf returns the notice for the page of a visit. A page that refreshes itself leaves
// it to the visitor.
func noticeOf[T any](v *visit) (value T, ok bool) {
	if v.r.Method != http.MethodGet || !byPerson(v.r) {
		return value, false
	}
	value, ok = v.session.notices.take(v.r.URL.Path).(T)
	return value, ok
}
