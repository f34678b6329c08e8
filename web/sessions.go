package web

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"
)

// sessionLife is how long a browser stays signed in at most.
const sessionLife = 12 * time.Hour

// maxSessions bounds the memory of sessions; only who has signed in makes one.
const maxSessions = 10_000

// session is somebody who signed in: with a token, or as a member of groups.
type session struct {
	token   [sha256.Size]byte
	name    string   // of who signed in with OIDC
	groups  []string // nil = with a token
	expires time.Time
}

// sessions are the signed-in browsers. They are kept in memory by the hash of their id:
// signing out ends one for good, there is no key to keep, and a restart ends all.
type sessions struct {
	now  func() time.Time
	mu   sync.Mutex
	byID map[[sha256.Size]byte]session
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, byID: map[[sha256.Size]byte]session{}}
}

// begin returns the id of a new session.
func (l *sessions) begin(s session) string {
	id := rand.Text() + rand.Text() // at least 256 bits
	now := l.now()
	s.expires = now.Add(sessionLife)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byID) >= maxSessions {
		l.prune(now)
	}
	l.byID[sha256.Sum256([]byte(id))] = s
	return id
}

// prune makes room: it drops what has expired and, when that is nothing, the oldest.
func (l *sessions) prune(now time.Time) {
	var oldest [sha256.Size]byte
	var first time.Time
	for id, s := range l.byID {
		if !now.Before(s.expires) {
			delete(l.byID, id)
		} else if first.IsZero() || s.expires.Before(first) {
			oldest, first = id, s.expires
		}
	}
	if len(l.byID) >= maxSessions {
		delete(l.byID, oldest)
	}
}

func (l *sessions) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, sha256.Sum256([]byte(id)))
}

// identity says who has a session, as the directory knows them now. Nobody has one that
// is over, or whose token or groups are gone.
func (l *sessions) identity(id string, d Directory) Identity {
	l.mu.Lock()
	s, ok := l.byID[sha256.Sum256([]byte(id))]
	l.mu.Unlock()
	if !ok || !l.now().Before(s.expires) {
		return Identity{}
	}
	if s.groups == nil {
		who, _ := d.Token(s.token)
		return who
	}
	who, ok := d.Groups(s.groups)
	if ok {
		who.Name = s.name
	}
	return who
}
